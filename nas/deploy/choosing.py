"""Which of the deployments that were tried is delivered: a pure function of what was measured."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from nas.deploy.answers import difference_error
from nas.deploy.onnx import Parity
from nas.deploy.tried import FP32, TriedDeployment
from nas.deployment import Deployment
from nas.measure.measurement import slowed, summarise

UpperBound = Callable[[Deployment], float]
"""The predicted upper latency bound (ms) of the network at hand, for targets that are not this host."""
VIEWS_TAKE = 1.8
"""Time of a call that asks about an image and its mirror image, by that of the network alone, roughly: 1.5 to 1.9
(docs/search-options.md)."""
Rejection = Callable[[TriedDeployment], str]
"""Reason why a deployment that works breaks a limit; empty where it keeps all."""


def no_rejection(tried: TriedDeployment) -> str:
    """No limits at all."""
    return ""


def choose(
    tried: Sequence[TriedDeployment],
    max_drop: float,
    rejection: Rejection = no_rejection,
    upper_bound: UpperBound | None = None,
    *,
    parity: Parity | None = None,
    check_accuracy: bool = True,
    metric: str = "accuracy",
    slack: float | None = None,
) -> list[TriedDeployment]:
    """Accept or reject each deployment with its reason, and choose one of the accepted.

    That is the fastest; with `slack` the fastest of those that are level with the most accurate one (`tie_of`).

    A pure function of what was measured: with other limits it can be asked again. Deployments that have no file keep
    the reason they have; where `parity` does not hold none is accepted. `metric` is what accuracies are called.
    """
    floor = accuracy_floor(tried, max_drop) if check_accuracy else None
    wrong = parity.defect if parity is not None else ""
    checked = []
    for t in tried:
        reason = t.reason if t.path is None else wrong or _defect(t, floor, metric) or rejection(t)
        checked.append(replace(t, accepted=not reason, chosen=False, reason=reason))
    accepted = [i for i, t in enumerate(checked) if t.accepted]
    if not accepted:
        return checked
    most_accurate = max((checked[i] for i in accepted), key=_accuracy)

    def is_level(t: TriedDeployment) -> bool:
        return slack is None or _accuracy(t) >= _accuracy(most_accurate) - tie_of(most_accurate, t, slack) - 1e-9

    best = min((i for i in accepted if is_level(checked[i])), key=lambda i: _speed(checked[i], upper_bound))

    def passed_over(t: TriedDeployment) -> str:
        # One that is not level can be more accurate than the chosen one, whose answers differ more from the best ones.
        surpassed = _accuracy(t) >= _accuracy(checked[best])
        return (
            f"slower than {checked[best].name}" if is_level(t)
            else f"less accurate than {most_accurate.name if surpassed else checked[best].name}"
        )  # fmt: skip

    return [
        replace(t, chosen=True) if i == best else replace(t, reason=passed_over(t)) if t.accepted else t
        for i, t in enumerate(checked)
    ]


def base_of_views(checked: Sequence[TriedDeployment], rejection: Rejection, slack: float) -> TriedDeployment | None:
    """The file to be tried with mirrored views: what `choose` would choose of those that would keep the limits if each
    call took `VIEWS_TAKE` times as long. The fastest accepted one where none would, None where none is accepted.

    Args:
        checked: of `choose`, measured.
        rejection: see `choose`.
        slack: see `choose`.
    """
    accepted = [t for t in checked if t.accepted]

    def longer(t: TriedDeployment) -> str:
        return "" if t.measurement is None else rejection(replace(t, measurement=slowed(t.measurement, VIEWS_TAKE)))

    with_time = choose(accepted, 1.0, longer, slack=slack)  # what loses too much is not accepted in the first place
    best = next((t for t in with_time if t.chosen), None)
    return best or min(accepted, key=lambda t: t.p50_ms, default=None)


def tie_of(most_accurate: TriedDeployment, other: TriedDeployment, slack: float) -> float:
    """Accuracy (a fraction) by which `other` may be below `most_accurate`, a file of the same network, and be level.

    One standard error of the difference between the two: they were asked about the same examples, and what is hard for
    one is hard for the other, so that it is mostly smaller than that of either accuracy. `slack` where the answers of
    one are not known.
    """
    if most_accurate.answers is None or other.answers is None:
        return slack
    return difference_error(most_accurate.answers, other.answers)


def doubt_of(tried: Sequence[TriedDeployment], rejection: Rejection) -> str | None:
    """What disturbed the measurement of a file that would keep the limits by its undisturbed sessions, or where there
    are none by its fastest one. None where a file is chosen, or no file would."""
    if any(t.chosen for t in tried):
        return None
    for t in tried:
        m = t.measurement
        if t.path is None or m is None or m.failed is not None or m.disturbance is None or not rejection(t):
            continue
        quiet = [s for s in m.sessions if s.disturbance is None] or [min(m.sessions, key=lambda s: s.p50_ms)]
        alone = [replace(s, disturbance=None, attempts_ms=()) for s in quiet]
        if not rejection(replace(t, measurement=summarise(m.request, alone, None, m.reference_p50_ms))):
            return m.disturbance
    return None


def _accuracy(t: TriedDeployment) -> float:
    """The accuracy; that of networks whose accuracy nobody asks for is the same for all."""
    return t.accuracy if t.accuracy is not None else 0.0


def accuracy_floor(tried: Sequence[TriedDeployment], max_drop: float) -> float:
    """The least accuracy that may be delivered; a drop of just `max_drop` may, whatever rounding says.

    Mirrored views do not count: a network alone must not be rejected because two views of an image are better.
    """
    plain = [(t.deployment.precision, t.accuracy) for t in tried if t.accuracy is not None and not t.mirrored]
    accuracies = [a for precision, a in plain if precision == FP32] or [a for _, a in plain]
    return max(accuracies, default=0.0) - max_drop - 1e-9


def without_defect(tried: Sequence[TriedDeployment], max_drop: float) -> list[TriedDeployment]:
    """Those that nothing but a limit keeps from being delivered, where accuracies count."""
    floor = accuracy_floor(tried, max_drop)
    return [t for t in tried if t.path is not None and not _defect(t, floor, "accuracy")]


def _defect(t: TriedDeployment, floor: float | None, metric: str) -> str:
    """Reason why a deployment cannot be delivered under any limit; empty where it can."""
    if t.measurement is not None and t.measurement.failed is not None:
        return f"could not be measured: {t.measurement.failed}"
    if floor is not None and t.accuracy is not None and t.accuracy < floor:
        return f"{metric} {t.accuracy:.1%} is below {floor:.1%}, what --max-drop allows"
    return ""


def _speed(t: TriedDeployment, upper_bound: UpperBound | None) -> float:
    return upper_bound(t.deployment) if upper_bound is not None else t.p50_ms
