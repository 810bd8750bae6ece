"""`nas compare`."""

from pathlib import Path

import click

from nas.cli.shell import Shell


@click.command(short_help="Compare two devices or deployments by their benches.")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option(
    "--deployments", nargs=2, metavar="OF_A OF_B", help="openvino-int8 torch-fp16@cuda:0.  [default: the fastest ones]"
)
@click.option("--prices", type=click.Path(path_type=Path), help="YAML file with machines' prices.")
@click.option("--machines", nargs=2, metavar="OF_A OF_B", help="Names of their prices.  [default: in their order]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.pass_context
def compare(
    context: click.Context,
    /,
    *,
    a: Path,
    b: Path,
    deployments: tuple[str, str] | None,
    prices: Path | None,
    machines: tuple[str, str] | None,
    as_json: bool,
) -> None:
    """Compare the networks that two benches have in common: latency, throughput, energy, cost, roofline.

    A and B are files of `nas bench --json`, of two devices or of two deployments on one. Nothing is measured now.

    \b
    Example:
      nas bench runs/photos#1 --batch 1 --batch 8 --batch 64 --roofline --json > cpu.json
      nas compare cpu.json gpu.json --prices prices.yaml
      nas compare cpu.json cpu.json --deployments onnxruntime-fp32 openvino-int8
    """
    from nas.compare.compare import CompareConfig, run_compare
    from nas.report.document import to_json

    config = CompareConfig(
        a=a, b=b, deployments=deployments, prices=prices, machines=machines,
        command=context.ensure_object(Shell).command,
    )  # fmt: skip
    document = run_compare(config)
    if as_json:
        click.echo(to_json(document))
    else:
        from nas.compare.tables import print_comparison

        print_comparison(document)
