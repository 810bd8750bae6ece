"""`nas finetune`."""

from pathlib import Path

import click

from nas.cli.shell import Shell


@click.command(short_help="Train a run's best networks with a recipe.")
@click.argument("run")
@click.option("--top", type=click.IntRange(min=1), default=3, show_default=True, help="How many of the run's networks.")
@click.option(
    "--recipe", help="A recipe of the task or a YAML file.  [default: the task's fast one, as classification-fast]"
)
@click.option("--set", "overrides", multiple=True, metavar="KEY.SUB=VALUE", help="Change one setting (repeatable).")
@click.option("--data", help="Train on other data than the run's.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="[default: finetune/RECIPE in RUN or beside the network]",
)
@click.option(
    "--resolution",
    type=click.IntRange(min=8),
    metavar="PX",
    help="Rows and columns of the input of a library's network.  [default: those of the images]",
)
@click.option("--smoke", is_flag=True, help="Only two batches of each stage, to see whether all works; keeps nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def finetune(
    context: click.Context,
    /,
    *,
    run: str,
    top: int,
    recipe: str | None,
    overrides: tuple[str, ...],
    data: str | None,
    out: Path | None,
    resolution: int | None,
    smoke: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train the first networks of RUN, or the one of RUN#k, with a recipe; `nas recipes` lists them.

    A run's networks are its winners, then its other finalists by accuracy. The folder of a bundle and NAME.network.json
    are networks too. So are torchvision:NAME and timm:NAME, with the weights that the library publishes or those of a
    file (torchvision:NAME:FILE): all but the last layer of a network that was trained on other images is kept.

    Interrupted, also by force, the same command goes on after the last finished epoch; finished, it shows the result
    again. With more than one processor: torchrun --nproc-per-node 2 -m nas finetune RUN.

    \b
    Example:
      nas finetune runs/classification-local-10ms
      nas finetune runs/classification-local-10ms#1 --recipe classification --set epochs=30
      nas finetune runs/small#1 --recipe classification-distill --set distillation.teacher=runs/large#1
      nas finetune runs/detection-local-25ms#1 --recipe detection
      nas finetune torchvision:resnet18 --data ./photos
    """
    import os

    from nas.machine import threads_that_sleep
    from nas.measure.others import crowded_now

    if crowded_now():
        threads_that_sleep()  # before anything loads torch
    from nas.finetune.run import finetune as run_finetune
    from nas.progress import progress_for

    shell = context.ensure_object(Shell)
    shell.resume = shell.command
    # Of several processes one speaks.
    first = os.environ.get("RANK", "0") == "0"
    document = run_finetune(
        run,
        recipe=recipe,
        overrides=overrides,
        top=top,
        data=data,
        out=out,
        resolution=resolution,
        smoke=smoke,
        progress=progress_for(quiet=quiet or not first),
    )
    if not first:
        return
    if as_json:
        from nas.report.document import to_json

        click.echo(to_json(document))
    else:
        from nas.finetune.tables import print_finetuning

        print_finetuning(document)
