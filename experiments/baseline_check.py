"""What `nas search --baseline` makes of a strong network for a fixed price, in epochs of that network's own training.

    python -m experiments.baseline_check experiments.strong_teachers:resnet18:resnet18.safetensors --data cifar10.npz \
        --speedup 3 --library-epochs 2 --final-epochs 20 --seed 1 --out runs/check-1

Epochs are fixed, so that seeds and machines differ in what they find and not in how much they train: all options are
taught for `--library-epochs` passes over the training images, up to three networks are compared after `--tried-epochs`,
and the best learns for `--final-epochs`. Networks are made for the fastest deployment of the baseline alone. The line
printed is a JSON document: factor, loss against the baseline on validation and test images with its interval, price,
and seconds of every stage.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nas.baseline import run
from nas.baseline.config import BaselineConfig
from nas.baseline.proposing import TEACHING_BATCH
from nas.baseline.run import run_baseline
from nas.baseline.steps import Steps
from nas.cli.durations import parse_duration
from nas.errors import UserError
from nas.progress import progress_for
from nas.report.baseline import best_of


@contextmanager
def fixed(library_epochs: int, tried_epochs: int, final_epochs: int) -> Iterator[None]:
    """Within it derivations train so many epochs, whatever their budget."""
    planned, considered = Steps.planned, run.CONSIDERED

    def plan(steps: Steps, name: str, decide: Callable[[], int]) -> int:
        match name.partition("-")[0]:
            case "library":
                return planned(
                    steps, name, lambda: library_epochs * steps.room.objective.train_examples // TEACHING_BATCH
                )
            case "tried":
                return planned(steps, name, lambda: tried_epochs)
            case "final":
                return planned(steps, name, lambda: final_epochs)
        return planned(steps, name, decide)

    Steps.planned, run.CONSIDERED = plan, 1  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Steps.planned, run.CONSIDERED = planned, considered  # type: ignore[method-assign]


def figures(document: dict[str, Any]) -> dict[str, Any]:
    """What is told of a run."""
    best, baseline = document["best"][0], document["baseline"]
    _, own_ms = best_of(baseline)
    # Both as fast as the machine was when what is delivered was measured: `speedup` is of one session.
    fp32 = {n: best["speedup"] * ms / own_ms for n, ms in baseline["latency_ms"].items() if n.endswith("fp32")}
    return {
        "deployment": f"{best['runtime']}-{best['precision']}",
        "ms": best["measured_latency_ms"]["p50"],
        "session_ms": best["session_p50_ms"],
        "baseline_ms": baseline["latency_ms"],
        "speedup": best["speedup"],
        "speedup_in_deployment": best["speedup_in_deployment"],
        "speedup_over_fp32": fp32,
        "accuracy": {"baseline": baseline["accuracy"], "network": best["accuracy"]},
        "loss": best["loss"],
        "epochs": best["epochs"],
        "teacher_epochs": baseline["teacher_epochs"],
        "became": [unit["became"] for unit in baseline["units"]],
        "seconds": document["seconds"],
        "notes": document["notes"],
    }


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser of what both studies of derivations are told."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("baseline", help="the trained network, as `nas search --baseline` takes it")
    parser.add_argument("--data", required=True)
    parser.add_argument("--speedup", type=float, default=3.0)
    parser.add_argument("--budget", type=parse_duration, default=3600.0)
    parser.add_argument("--library-epochs", type=int, default=2)
    parser.add_argument("--runtime", nargs="*", help="runtimes to deploy in; all that are here otherwise")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    return parser


def config_of(given: argparse.Namespace, max_loss: float) -> BaselineConfig:
    """The derivation that `arguments` ask for; `max_loss`: a fraction."""
    return BaselineConfig(
        baseline=given.baseline, data=given.data, speedup=given.speedup, max_loss=max_loss, budget_s=given.budget,
        runtimes=tuple(given.runtime) if given.runtime else None, threads=given.threads, seed=given.seed,
        out=given.out,
    )  # fmt: skip


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--max-loss", type=float, default=5.0, help="percentage points")
    parser.add_argument("--tried-epochs", type=int, default=1)
    parser.add_argument("--final-epochs", type=int, default=20)
    given = parser.parse_args()
    config = config_of(given, given.max_loss / 100)
    with fixed(given.library_epochs, given.tried_epochs, given.final_epochs):
        try:
            document = run_baseline(config, progress_for()).document
        except UserError as error:
            raise SystemExit(str(error)) from error
    print(json.dumps(figures(document)))


if __name__ == "__main__":
    main()
