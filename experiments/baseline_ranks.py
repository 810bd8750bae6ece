"""Whether what is known of networks before they learn as a whole tells how accurate they become.

    python -m experiments.baseline_ranks experiments.strong_teachers:resnet18:resnet18.safetensors --data cifar10.npz \
        --speedup 3 --library-epochs 2 --networks 18 --epochs 5 --runtime onnxruntime --out runs/ranks-1

The steps of `nas search --baseline` up to its shortlist, for the fastest deployment of the baseline alone. Then,
instead of the best few, `--networks` of those that were assembled are measured together and trained under the baseline
for the same number of epochs: the nearest to the baseline of each form (width and size of images) and of each way to
choose (`exact`, which is mixed-integer programming, `greedy`, and `uniform`, which is plain rules), and others from the
nearest to the farthest. The line printed is a JSON document with Kendall's tau between what was known and the accuracy
after the training, and for each way to choose the network that it would have delivered. A network that is trained is
not trained again.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from experiments.baseline_check import arguments, config_of, fixed
from nas.baseline import run
from nas.baseline.finals import student_of
from nas.baseline.folder import read_step, write_step
from nas.baseline.proposing import Made
from nas.baseline.run import run_baseline
from nas.baseline.shortlist import SESSIONS, Proposal
from nas.baseline.steps import Steps
from nas.baseline.students import train_student
from nas.baseline.times import time_networks
from nas.errors import UserError
from nas.networks.derived import Form
from nas.progress import progress_for
from nas.training.folder import DivergedError

WAYS = ("exact", "greedy", "uniform")
BESIDE = 1.1
"""Networks whose predicted time is at most so many times the limit take part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A network of the study."""

    form: Form
    options: tuple[str, ...]
    way: str
    """How it was found, one of `WAYS`, or `fastest`."""
    score: float
    """Sum of what its options lose alone."""
    loss: float
    """Distance of the assembled network from the baseline before any training as a whole."""
    early_accuracy: float
    """On some validation examples, then."""
    ms: float | None
    """Milliseconds of a call, all networks measured in turns; None where that failed."""
    accuracy: float
    """On all validation examples after its training, in torch, a fraction; -1 where that diverged."""


def way_of(origin: str) -> str:
    """The way to choose that an origin of a proposal belongs to."""
    return origin if origin in ("exact", "greedy", "fastest") else "uniform"


def taking_part(proposals: Sequence[Proposal], limit_ms: float, count: int) -> list[Proposal]:
    """Up to `count` different networks near the limit, see the module."""
    distinct: dict[tuple[Form, tuple[str, ...]], Proposal] = {}
    for p in sorted(proposals, key=lambda p: p.loss):
        if (p.measured_ms or p.predicted_ms) <= BESIDE * limit_ms:
            distinct.setdefault((p.form, p.options), p)
    near = list(distinct.values())
    first: dict[tuple[Form, str], Proposal] = {}
    for p in near:
        first.setdefault((p.form, way_of(p.origin)), p)
    chosen = list(first.values())[:count]
    others = [p for p in near if p not in chosen]
    left = min(count - len(chosen), len(others))
    if left:
        chosen += [others[i] for i in np.linspace(0, len(others) - 1, left).round().astype(int)]
    return chosen


def summary(rows: Sequence[Row], limit_ms: float) -> dict[str, Any]:
    """The figures of a study.

    `tau`: by what was known, over all networks and within the forms (weighted by their pairs). `ways`: of the networks
    that were measured within `limit_ms`, the one nearest to the baseline of each way to choose.
    """
    known: dict[str, Callable[[Row], float]] = {
        "loss": lambda r: -r.loss, "score": lambda r: -r.score, "early_accuracy": lambda r: r.early_accuracy,
    }  # fmt: skip
    forms = [[r for r in rows if r.form == form] for form in dict.fromkeys(r.form for r in rows)]
    taus = {name: {"all": _tau(rows, value), "within_forms": _mean_tau(forms, value)} for name, value in known.items()}
    within = sorted((r for r in rows if r.ms is not None and r.ms <= limit_ms), key=lambda r: r.loss)
    delivered = {way: next((asdict(r) for r in within if r.way == way), None) for way in WAYS}
    return {"networks": len(rows), "within_limit": len(within), "tau": taus, "ways": delivered}


def _tau(rows: Sequence[Row], value: Callable[[Row], float]) -> float | None:
    if len(rows) < 2:
        return None
    tau = float(kendalltau([value(r) for r in rows], [r.accuracy for r in rows]).statistic)
    return tau if np.isfinite(tau) else None


def _mean_tau(groups: Sequence[Sequence[Row]], value: Callable[[Row], float]) -> float | None:
    found = [(len(g) * (len(g) - 1), tau) for g in groups if (tau := _tau(g, value)) is not None]
    return sum(pairs * tau for pairs, tau in found) / sum(pairs for pairs, _ in found) if found else None


class Answered(Exception):
    """The study is done: what follows in a derivation is not needed."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__("the study is done")
        self.document = document


@contextmanager
def instead_of_training(networks: int, epochs: int) -> Iterator[None]:
    """Within it derivations end with the study, in place of their last trainings: they raise `Answered`."""
    train_best = run.train_best  # type: ignore[attr-defined]

    def study(steps: Steps, made: Made, limit_ms: float, attempt: int) -> Any:
        rows = studied(steps, made, limit_ms, networks, epochs)
        found = {"limit_ms": limit_ms, "epochs": epochs, **summary(rows, limit_ms), "rows": [asdict(r) for r in rows]}
        raise Answered(found)

    run.train_best = study  # type: ignore[attr-defined]
    try:
        yield
    finally:
        run.train_best = train_best  # type: ignore[attr-defined]


def studied(steps: Steps, made: Made, limit_ms: float, networks: int, epochs: int) -> list[Row]:
    """Measure and train the networks that take part."""
    chosen = taking_part(made.shortlist.proposals, limit_ms, networks)
    milliseconds = _measured(steps, made, chosen)
    rows = []
    with steps.stage("students", len(chosen)) as bar:
        for p, ms in zip(chosen, milliseconds, strict=True):
            accuracy = _trained(steps, made, p, epochs)
            rows.append(
                Row(
                    form=p.form,
                    options=p.options,
                    way=way_of(p.origin),
                    score=p.score,
                    loss=p.loss,
                    early_accuracy=p.accuracy,
                    ms=ms,
                    accuracy=accuracy,
                )
            )
            bar.advance(1, note=f"{accuracy:.1%}")
    return rows


def _measured(steps: Steps, made: Made, chosen: Sequence[Proposal]) -> list[float | None]:
    file = steps.folder.path / "ranks.json"
    identity = {**steps.origin, "networks": [[p.form.key, list(p.options)] for p in chosen]}
    found: list[float | None] | None = read_step(file, identity)
    if found is None:
        deployment = made.shortlist.tables[0].deployment
        by_number: dict[int, float] = {}
        for form in {p.form.resolution: p.form for p in chosen}.values():
            named = [
                ((str(i),), made.library(p.form.width).network(p.options).eval().cpu())
                for i, p in enumerate(chosen)
                if p.form.resolution == form.resolution
            ]
            with steps.scratch("ranks") as place:
                timed = time_networks(
                    named, form.input(steps.input), [deployment], place, partial(steps.preparing, form=form),
                    SESSIONS, steps.references,
                )  # fmt: skip
            by_number |= {int(t.options[0]): t.p50_ms for t in timed[deployment]}
        found = [by_number.get(i) for i in range(len(chosen))]
        write_step(file, identity, found)
    return found


def _trained(steps: Steps, made: Made, proposal: Proposal, epochs: int) -> float:
    student = student_of(steps, made, proposal)
    try:
        train_student(steps.room, student, "ranks", epochs)
    except DivergedError:
        return -1.0
    return student.accuracy


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--networks", type=int, default=18)
    parser.add_argument("--epochs", type=int, default=5, help="of each network's training as a whole")
    given = parser.parse_args()
    config = config_of(given, max_loss=1.0)
    with fixed(given.library_epochs, 0, 0), instead_of_training(given.networks, given.epochs):
        try:
            run_baseline(config, progress_for())
        except Answered as found:
            print(json.dumps(found.document))
        except UserError as error:
            raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
