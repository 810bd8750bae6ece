"""The page and the plot of `experiments.supernet_check`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.scatter_chart import scatter_svg
from nas.evaluation.estimate import kendall

Floats = NDArray[np.float64]
AGGREGATED = ("macs", "synflow", "jacob_cov", "naswot", "zico")
"""What the rank aggregate sees: cost, and one score of each kind."""
_RESAMPLES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the page is made from."""

    records: Sequence[Mapping[str, Any]]
    """Networks trained alone."""
    paths: Mapping[str, Mapping[str, float]]
    """Network -> `nas.evaluation.supernet.scoring.PathScore` as a document; empty where no supernet takes part."""
    adapted: Mapping[int, Mapping[str, Mapping[str, float]]]
    """Steps that each path was trained alone for -> the same."""
    adapt_lr: float
    """Peak learning rate of those steps."""
    short: Mapping[int, Mapping[str, Mapping[str, float]]]
    """Steps that each network was trained from scratch for -> its score as a document."""
    log: Mapping[str, Any]
    """Of the supernet's training."""
    proxies: Mapping[str, Mapping[str, Sequence[float | None]]]
    """Proxy -> network -> score and core-seconds."""
    learned: Mapping[str, Sequence[float | None]]
    """What the learned predictor was given -> its predictions (n,), each learned from all other networks. Of the
    supernet it gets the accuracies of the paths that were trained alone for longest."""
    learned_core_s: float
    """Of one fit."""
    epochs: int
    part: Mapping[str, Any]
    recipe: Mapping[str, Any]
    config: Mapping[str, Any]
    again: Mapping[str, float]
    """Accuracies of some of the networks, trained with another seed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One estimator."""

    name: str
    scores: Floats
    core_s: float
    """Per network, what is paid once not included."""
    once_core_s: float = 0.0


def rows(evidence: Evidence) -> list[Row]:
    """Every estimator with its scores (n,), NaN where there is none."""
    from experiments.proxies import rank_aggregate
    from nas.evaluation.zero_cost import DEFAULT_PROXIES

    records, keys = evidence.records, [r["key"] for r in evidence.records]
    found = [
        Row("parameters", _column(records, "params"), 0.0),
        Row("MACs", _column(records, "macs"), 0.0),
    ]
    columns: dict[str, Floats] = {}
    prices: dict[str, float] = {}
    for name, scores in evidence.proxies.items():
        both = np.array([[np.nan if v is None else v for v in scores[key]] for key in keys], dtype=np.float64)
        columns[name], prices[name] = both[:, 0], float(both[:, 1].mean())
        if name not in ("params", "macs"):
            found.append(Row(name, both[:, 0], prices[name]))
    aggregate = rank_aggregate(np.column_stack([columns[name] for name in AGGREGATED]))
    found.append(Row(f"rank aggregate of {', '.join(AGGREGATED)}", aggregate, sum(prices[n] for n in AGGREGATED)))
    default = np.column_stack([columns[name] for name in DEFAULT_PROXIES])
    standard = np.nanmean((default - np.nanmean(default, axis=0)) / np.nanstd(default, axis=0), axis=1)
    names = ", ".join(DEFAULT_PROXIES)
    found.append(Row(f"mean of {names}, standardised", standard, sum(prices[n] for n in DEFAULT_PROXIES)))
    whole = float(_column(records, "core_seconds").mean())
    curves = np.array([r["curve"] for r in records], dtype=np.float64)
    for epoch in range(1, evidence.epochs):
        price = whole * epoch / evidence.epochs
        found.append(Row(f"first {epoch} of {evidence.epochs} epochs", curves[:, epoch - 1], price))
    found.append(Row("the whole training, its validation accuracy", _column(records, "val_accuracy"), whole))
    for steps, brief in sorted(evidence.short.items()):
        found.append(_measured(f"{steps} steps from scratch", brief, keys))
    once = evidence.log.get("core_seconds", 0.0)
    if evidence.paths:
        found += _by_accuracy_and_loss("supernet", evidence.paths, keys, once)
    for steps, paths in sorted(evidence.adapted.items()):
        found += _by_accuracy_and_loss(f"supernet, {steps} steps of each path alone", paths, keys, once)
    path_price = found[-1].core_s  # where there are paths
    for given, predictions in evidence.learned.items():
        price = (sum(prices.values()) if "proxies" in given else 0.0) + (path_price if "supernet" in given else 0.0)
        paid = evidence.learned_core_s + (once if "supernet" in given else 0.0)
        found.append(Row(f"learned predictor, {given}", np.array(predictions, dtype=np.float64), price, paid))
    return found


def _measured(
    name: str, scores: Mapping[str, Mapping[str, float]], keys: Sequence[str], once_core_s: float = 0.0
) -> Row:
    accuracy = np.array([scores[key]["accuracy"] for key in keys])
    price = float(np.mean([scores[key]["core_seconds"] for key in keys]))
    return Row(name, accuracy, price, once_core_s)


def _by_accuracy_and_loss(
    name: str, scores: Mapping[str, Mapping[str, float]], keys: Sequence[str], once_core_s: float
) -> list[Row]:
    """What paths are judged by in a search, and by their loss beside it."""
    row = _measured(name, scores, keys, once_core_s)
    return [row, replace(row, name=f"{name}, by its loss", scores=-np.array([scores[key]["loss"] for key in keys]))]


def page(evidence: Evidence, plot_name: str) -> str:
    """Markdown."""
    truth = _column(evidence.records, "test_accuracy")
    part, recipe = evidence.part, evidence.recipe
    whole = float(_column(evidence.records, "core_seconds").mean())
    lines = [
        "# Estimates against networks trained alone",
        "",
        f"Made by `python -m experiments.supernet_check`: {len(truth)} random networks of `{part['space']}` at "
        f"{part['resolution']} px (the first {part['widths']} widths, up to {part['depth']} blocks per stage, kernels "
        f"up to {part['kernel']}, nominal training cost up to {part['image_ms']:g} ms per image), each trained alone "
        f"on {recipe['train_images']} images of {recipe['data']} for {recipe['epochs']} epochs (batches of "
        f"{recipe['batch_size']}, peak learning rate {recipe['lr']:g}) with seed "
        f"{recipe['seed']}, {whole:.0f} core-seconds per network. What is to be predicted is the accuracy on "
        f"{recipe['test_images']} test images ({truth.min():.1%} to {truth.max():.1%}, standard deviation "
        f"{truth.std():.1%}); the estimators see training and {recipe['val_images']} validation images only.",
        "",
        "| estimator | Kendall tau | 90 % interval | core-seconds per network | paid once, core-seconds |",
        "|---|---|---|---|---|",
    ]
    for row in rows(evidence):
        seen = np.isfinite(row.scores)
        tau, low, high = tau_interval(row.scores[seen], truth[seen])
        missing = "" if seen.all() else f" ({int(seen.sum())} networks)"
        lines.append(
            f"| {row.name}{missing} | {tau:.2f} | {low:.2f} to {high:.2f} | {row.core_s:.2f} | {row.once_core_s:.0f} |"
        )
    lines += [
        "",
        "The intervals are bootstrapped over the networks. The learned predictor is asked about each network after "
        "learning from all the others, whose trainings are not in its price. The "
        "price of first epochs is the share of a whole training. "
        "The whole training is no estimator: it says how far two counts of the same trained networks agree.",
    ]
    if evidence.paths:
        lines.append(_supernet_line(evidence))
    twice = [
        (a, evidence.again[r["key"]])
        for a, r in zip(truth, evidence.records, strict=True)
        if r["key"] in evidence.again
    ]
    if len(twice) >= 4:
        tau, low, high = tau_interval(*np.array(twice).T)
        lines.append(
            f"{len(twice)} of the networks were trained a second time with another seed: the two accuracies agree with "
            f"a tau of {tau:.2f} ({low:.2f} to {high:.2f}), which is about as far as any estimate can be expected to."
        )
    return "\n".join([*lines, "", f"![supernet and first epochs against trained accuracy]({plot_name})", ""])


def _supernet_line(evidence: Evidence) -> str:
    """How the supernet was trained and what its paths reach."""
    config, log = evidence.config, evidence.log
    recipe, optimizer = config["recipe"], config["recipe"]["optimizer"]
    reached = np.array([path["accuracy"] for path in evidence.paths.values()])
    sandwich = (
        f" besides a largest and a smallest, distillation {config['distillation']:g}" if config["sandwich"] else ""
    )
    adapted = (
        f" Where paths were trained alone before they were scored, it was with a peak learning rate of "
        f"{evidence.adapt_lr:g}."
        if evidence.adapted
        else ""
    )
    return (
        f"The supernet: {log['steps']} steps of {recipe['batch_size']} images, {config['random_paths']} random paths "
        f"each{sandwich}, {optimizer['name']} with a peak learning rate of {optimizer['lr']:g}, {log['precision']}, "
        f"seed {recipe['seed']}; batch norms measured afresh on 512 training images per network. Its paths' accuracies "
        f"are {reached.min():.1%} to {reached.max():.1%}.{adapted}"
    )


def plot(evidence: Evidence) -> str:
    """SVG: the supernet's and the first epoch's accuracy against the trained one, in percent."""
    truth = 100 * _column(evidence.records, "test_accuracy")
    chosen = [r for r in rows(evidence) if r.name == "supernet" or r.name.startswith("first 1 ")]
    x = np.concatenate([np.maximum(100 * row.scores, 1.0) for row in chosen])
    groups = np.repeat([row.name for row in chosen], len(truth))
    return scatter_svg(x, np.tile(truth, len(chosen)), groups, "estimated accuracy, %", "accuracy trained alone, %")


def tau_interval(a: Floats, b: Floats, seed: int = 0) -> tuple[float, float, float]:
    """Kendall's tau of (n,) and (n,) with the central 90 % of its bootstrap; NaN where it is not defined."""
    tau = kendall(a, b)
    if tau is None:
        return (float("nan"),) * 3
    drawn = np.random.default_rng(seed).integers(len(a), size=(_RESAMPLES, len(a)))
    times = (drawn[:, :, None] == np.arange(len(a))).sum(1).astype(np.float64)  # of each network in each resample

    def pairs(signs: Floats) -> Floats:
        """(resamples,) the sum over the pairs of each resample."""
        total: Floats = ((times @ signs) * times).sum(1)
        return total

    order_a, order_b = (np.sign(values[:, None] - values) for values in (a, b))
    untied = pairs(np.abs(order_a)) * pairs(np.abs(order_b))
    resampled = pairs(order_a * order_b)[untied > 0] / np.sqrt(untied[untied > 0])
    if not len(resampled):
        return (float("nan"),) * 3
    low, high = np.quantile(resampled, [0.05, 0.95])
    return tau, float(low), float(high)


def _column(records: Sequence[Mapping[str, Any]], name: str) -> Floats:
    return np.array([r[name] for r in records], dtype=np.float64)
