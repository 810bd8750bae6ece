"""What makes a text network fast in ONNX Runtime: int8 that is calibrated, int8 whose ranges are found in each call,
and attention joined into one operator by onnxruntime's own optimiser.

`python -m experiments.text_int8` times untrained networks of the kinds of `experiments.text_gate` in the deployments
that are tried for texts, and fp32 after the optimiser, which is not among them. Latencies of one table are of the same
sessions. Speed alone is looked at: what is not faster need not be accurate.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import click
import onnx

from experiments.text_gate import KINDS, architecture
from nas.deployment import DYNAMIC_INT8, Deployment
from nas.measure.host import fingerprint, threads_here
from nas.measure.measurement import MeasureRequest
from nas.measure.protocol import measure
from nas.targets.preparing import deploy_untrained, new_folder
from search_spaces import TextSpace, resolve_space

PRECISIONS = ("fp32", "int8", DYNAMIC_INT8)
WAYS = (*PRECISIONS, "fp32, optimised")
FUSED = ("Attention", "MultiHeadAttention")
"""Operators that the optimiser joins an attention into."""


def optimised(model: Path, heads: int, width: int) -> tuple[Path, int]:
    """The network after onnxruntime's optimiser for transformers, and how many attentions it has joined."""
    from onnxruntime.transformers.optimizer import optimize_model

    made = model.with_name("optimised.onnx")
    found = optimize_model(str(model), model_type="bert", num_heads=heads, hidden_size=width, only_onnxruntime=False)
    found.save_model_to_file(str(made))
    return made, sum(node.op_type in FUSED for node in onnx.load(made).graph.node)


@click.command()
@click.option("--tokens", default=48, show_default=True)
@click.option("--vocabulary", default=8000, show_default=True)
@click.option("--sessions", default=3, show_default=True)
def main(tokens: int, vocabulary: int, sessions: int) -> None:
    space = resolve_space("text")
    assert isinstance(space, TextSpace)
    threads = threads_here(None)
    deployments = [Deployment("onnxruntime", precision, threads) for precision in PRECISIONS]
    with TemporaryDirectory(prefix="nas-text-int8-") as temporary:
        requests: list[MeasureRequest] = []
        joined = []
        for number, (kind, options) in enumerate(KINDS.items()):
            folder = new_folder(Path(temporary) / str(number))
            arch = architecture(space, kind, "none", tokens, vocabulary)
            made = deploy_untrained(arch, deployments, folder, 0, (2,))
            heads = int(options.get("stage1.heads", 0))
            width = int(options["stage1.width"]) if heads else 0
            faster, count = optimised(made[0].path, heads, width)
            joined.append(count)
            requests += [*made, MeasureRequest(faster, deployments[0])]
        measured = measure(requests, sessions=sessions)
    click.echo(f"p50 ms, {tokens} tokens, {threads} threads of {fingerprint().cpu_model}")
    click.echo(f"| network | {' | '.join(WAYS)} | attentions joined |\n|{'---|' * (len(WAYS) + 2)}")
    for number, kind in enumerate(KINDS):
        row = measured[number * len(WAYS) : (number + 1) * len(WAYS)]
        cells = [f"{m.p50_ms:.3g}" if m.failed is None else m.failed for m in row]
        click.echo(f"| {kind} | {' | '.join(cells)} | {joined[number]} |")


if __name__ == "__main__":
    main()
