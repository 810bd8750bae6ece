"""Accuracy prediction on tables of trained networks: `python -m experiments.tabular accuracy`.

Trains the product's predictor on n random rows and scores it on the others, beside simple baselines. Columns are named
`FILE.npz:COLUMN`; a list may leave out the file of the one before (`t.npz:ks,e,d`), and 2-d columns expand.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from zipfile import BadZipFile

import click
import numpy as np
from numpy.typing import NDArray

from experiments.tabular.cells import conv_weights
from experiments.tabular.views import NB201_VIEWS, chain_views, staged_views
from predictors.accuracy import AccuracyPredictor
from predictors.accuracy_features import FeatureView
from predictors.target_scale import NormalScores
from search_spaces.errors import UnknownNameError, UserError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MAX_TEST_ROWS = 5000
_SPEED_CANDIDATES = 100_000
_Z90 = 1.6448536269514722


@dataclass(frozen=True, slots=True)
class TableSpace:
    """A known table: the shape that gives it away, and the views of its choices."""

    decisions: int
    largest_id: int
    views: tuple[FeatureView, ...]


SPACES = {
    "nb201": TableSpace(6, 4, NB201_VIEWS),
    "nbmacro": TableSpace(8, 2, chain_views((2, 3, 3), widths=(0.0, 3.0, 6.0))),
    "anb": TableSpace(28, 6, staged_views(4, depth_field=2)),
}


@dataclass(frozen=True, slots=True)
class Scores:
    """How well one predictor ranks the held-out networks of one split; NaN where it has no such output."""

    kendall: float
    spearman: float
    top1pct_hit: float  # 1 if the network predicted best is among the true best 1 % of the test rows
    top1pct_overlap: float  # share of the true best 1 % that is in the predicted best 1 %
    regret_of_best: float  # best accuracy among the test rows minus that of the network predicted best
    coverage_90: float  # share of test rows inside mean +- 1.645 std


@dataclass(frozen=True, slots=True)
class SplitResult:
    """One random split: the product's predictor, the baselines from the same rows, and the predictor's price."""

    seed: int
    test_rows: int
    predictor: Scores
    baselines: dict[str, Scores]
    weights: dict[str, float]
    fit_cpu_s: float
    candidates_per_cpu_s: float


@dataclass(frozen=True, slots=True)
class Table:
    """Aligned rows: choices (n, d), accuracy (n,), extra (n, e) and the cost columns (n,) that serve as baselines."""

    choices: Ints
    accuracy: Floats
    extra: Floats | None
    extra_names: tuple[str, ...]
    costs: dict[str, Floats]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison and print it; returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        report = _report(args)
    except UserError as error:
        print(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)
        return error.exit_code
    print(json.dumps(report, indent=2) if args.json else _as_text(report))
    return 0


def load_table(choices: str, y: str, extra: str | None, rows: str | None) -> Table:
    """Read the columns; `rows` holds indices into the longer ones, columns of its own length are aligned already."""
    index = None if rows is None else _only(_columns(rows), rows).astype(np.int64)
    picked = [column for _, column in _columns(choices)]
    if not all(np.issubdtype(column.dtype, np.integer) for column in picked):
        raise UserError(f"choices {choices!r} are not integers", "name a column of operation or decision ids")
    codes = _aligned(np.column_stack(picked).astype(np.int64), index, choices)
    accuracy = _aligned(_only(_columns(y), y).astype(np.float64), index, y)
    extras = [] if extra is None else [(name, _aligned(column, index, name)) for name, column in _columns(extra)]
    for name, column in [(y, accuracy), *extras]:
        if len(column) != len(codes):
            raise UserError(f"{name!r} has {len(column)} rows, the choices have {len(codes)}", "align them with --rows")
    names = tuple(
        name if column.ndim == 1 else f"{name}[{at}]"
        for name, column in extras
        for at in range(1 if column.ndim == 1 else column.shape[1])
    )
    stacked = np.column_stack([column for _, column in extras]).astype(np.float64) if extras else None
    known = np.isfinite(accuracy)
    costs = {name: column[known] for name, column in _cost_columns(choices, index, len(codes)).items()}
    return Table(codes[known], accuracy[known], None if stacked is None else stacked[known], names, costs)


def score(mean: Floats, std: Floats | None, accuracy: Floats) -> Scores:
    """Compare predictions (m,) with measured accuracies (m,)."""
    from scipy.stats import kendalltau, spearmanr

    if np.ptp(mean) == 0:
        ranks = (0.0, 0.0)
    else:
        ranks = (float(kendalltau(mean, accuracy).statistic), float(spearmanr(mean, accuracy).statistic))
    count = max(1, len(accuracy) // 100)
    best_predicted, best = np.argsort(-mean, kind="stable")[:count], np.argsort(-accuracy, kind="stable")[:count]
    pick = int(best_predicted[0])
    return Scores(
        *ranks,
        float(accuracy[pick] >= accuracy[best[-1]]),
        len(np.intersect1d(best_predicted, best)) / count,
        float(accuracy.max() - accuracy[pick]),
        float("nan") if std is None else float(np.mean(np.abs(mean - accuracy) <= _Z90 * std)),
    )


def judge_split(table: Table, space: str, n: int, seed: int, *, fast: bool = False) -> SplitResult:
    """Fit on `n` rows drawn with `seed` and score on the others (at most 5,000 of them)."""
    if n >= len(table.accuracy):
        raise UserError(f"--n {n} leaves no test rows of {len(table.accuracy)}", "choose a smaller --n")
    order = np.random.default_rng(seed).permutation(len(table.accuracy))
    train, test = order[:n], order[n:][:_MAX_TEST_ROWS]
    start = time.process_time()
    predictor = AccuracyPredictor(features=SPACES[space].views if space in SPACES else None, seed=seed, fast=fast)
    predictor.fit(table.choices[train], table.accuracy[train], _rows(table.extra, train))
    fit_cpu_s = time.process_time() - start
    predicted = predictor.predict(table.choices[test], _rows(table.extra, test))
    guesses = _baselines(table, space, train, test, seed)
    return SplitResult(
        seed=seed,
        test_rows=len(test),
        predictor=score(predicted.mean, predicted.std, table.accuracy[test]),
        baselines={name: score(guess, None, table.accuracy[test]) for name, guess in guesses.items()},
        weights=predictor.weights,
        fit_cpu_s=fit_cpu_s,
        candidates_per_cpu_s=_candidates_per_s(predictor, table, seed),
    )


def _report(args: argparse.Namespace) -> dict[str, object]:
    table = load_table(args.choices, args.y, args.extra, args.rows)
    if args.seeds < 1:
        raise UserError(f"--seeds {args.seeds} is no positive number", "give at least 1")
    space = space_name(args.space, table.choices)
    seeds = list(range(args.first_seed, args.first_seed + args.seeds))
    splits = [judge_split(table, space, args.n, seed, fast=args.fast) for seed in seeds]
    own = [asdict(split.predictor) for split in splits]
    return {
        "space": space,
        "rows": len(table.accuracy),
        "n": args.n,
        "seeds": seeds,
        "test_rows": splits[0].test_rows,
        **_means([split.predictor for split in splits]),
        "kendall_std": float(np.std([one["kendall"] for one in own])),
        "baselines": {
            name: {
                f.name: float(np.mean([getattr(s.baselines[name], f.name) for s in splits]))
                for f in fields(Scores)[:-1]
            }
            for name in splits[0].baselines
        },
        "per_seed": own,
        "weights": {
            name: float(np.mean([split.weights.get(name, 0.0) for split in splits])) for name in splits[0].weights
        },
        "fit_cpu_s": float(np.mean([split.fit_cpu_s for split in splits])),
        "candidates_per_cpu_s": float(np.median([split.candidates_per_cpu_s for split in splits])),
    }


def _means(scores: Sequence[Scores]) -> dict[str, float]:
    """Mean of each figure that the scores have."""
    named = {f.name: float(np.mean([getattr(one, f.name) for one in scores])) for f in fields(Scores)}
    return {name: value for name, value in named.items() if np.isfinite(value)}


def _baselines(table: Table, space: str, train: Ints, test: Ints, seed: int) -> dict[str, Floats]:
    """Predictions (m,) of what any predictor must beat, from the same rows and columns."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    target = NormalScores.fit(table.accuracy[train]).to_scores(table.accuracy[train])
    found = {name: cost[test] for name, cost in table.costs.items()}
    if space == "nb201" and "params" not in found:
        # channels double where the side halves: in this skeleton MACs rank cells as parameters do
        found["params (= macs)"] = conv_weights(table.choices[test])
    codes = np.column_stack([c[:, None] == np.unique(c) for c in table.choices.T]).astype(np.float64)
    plain = table.choices.astype(np.float64)
    if table.extra is not None:
        extra = table.extra
        filled = np.column_stack([_imputed_scores(column, train) for column in extra.T])
        codes, plain = np.column_stack([codes, filled]), np.column_stack([plain, extra])
        fits = [
            abs(float(np.corrcoef(column[train], target)[0, 1])) if np.ptp(column[train]) else 0.0
            for column in filled.T
        ]
        best = int(np.argmax(fits))
        sign = np.sign(np.corrcoef(filled[train, best], target)[0, 1]) if fits[best] else 1.0
        found["best extra column alone"] = sign * filled[test, best]
    kernel = ConstantKernel() * RBF(np.sqrt(codes.shape[1])) + WhiteKernel(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a bound reached is an answer for a baseline
        gp = GaussianProcessRegressor(kernel, random_state=seed).fit(codes[train], target)
    found["gp on one-hot ranks"] = gp.predict(codes[test])
    boosting = HistGradientBoostingRegressor(min_samples_leaf=min(20, max(2, len(train) // 10)), random_state=seed)
    found["histogram boosting"] = boosting.fit(plain[train], target).predict(plain[test])
    return found


def _imputed_scores(column: Floats, train: Ints) -> Floats:
    seen = column[train][np.isfinite(column[train])]
    if not len(seen):
        return np.zeros(len(column))
    scores = NormalScores.fit(seen).to_scores(column)
    return np.where(np.isfinite(column), scores, 0.0)


def _candidates_per_s(predictor: AccuracyPredictor, table: Table, seed: int) -> float:
    rows = np.random.default_rng(seed).integers(0, len(table.choices), _SPEED_CANDIDATES)
    choices, extra = table.choices[rows], _rows(table.extra, rows)
    start = time.process_time()
    predictor.predict(choices, extra)
    return _SPEED_CANDIDATES / (time.process_time() - start)


def space_name(asked: str, choices: Ints) -> str:
    """The named space, or the known one whose number of decisions and largest id agree."""
    if asked in SPACES:
        if choices.shape[1] != SPACES[asked].decisions or choices.min() < 0 or choices.max() > SPACES[asked].largest_id:
            raise UserError(f"choices of shape {choices.shape} are not from {asked!r}", "use --space generic")
        return asked
    if asked not in ("auto", "generic"):
        raise UnknownNameError("space", asked, [*SPACES, "auto", "generic"])
    if asked == "auto":
        for name, space in SPACES.items():
            if choices.shape[1] == space.decisions and choices.min() >= 0 and choices.max() == space.largest_id:
                return name
    return "generic"


def _columns(spec: str) -> list[tuple[str, NDArray[np.generic]]]:
    found: list[tuple[str, NDArray[np.generic]]] = []
    file = ""
    for item in spec.split(","):
        head, colon, name = item.rpartition(":")
        file = head if colon else file
        if not file:
            raise UserError(f"{item!r} names no file", "write FILE.npz:COLUMN")
        if not Path(file).is_file():
            raise UserError(f"there is no file {file!r}", "write FILE.npz:COLUMN")
        try:
            with np.load(file, allow_pickle=False) as archive:
                if name not in archive.files:
                    raise UnknownNameError(f"column of {file}", name, archive.files)
                found.append((name, np.asarray(archive[name])))
        except (ValueError, OSError, TypeError, BadZipFile) as error:
            raise UserError(f"{file!r} cannot be read as a numpy archive", "write it with np.savez") from error
        if found[-1][1].ndim not in (1, 2):
            raise UserError(f"{item!r} has shape {found[-1][1].shape}", "expected one or two dimensions")
    return found


def _only(columns: list[tuple[str, NDArray[np.generic]]], spec: str) -> NDArray[np.generic]:
    if len(columns) != 1 or columns[0][1].ndim != 1:
        raise UserError(f"{spec!r} must name one column of one dimension")
    return columns[0][1]


def _aligned(column: NDArray[np.generic], index: Ints | None, name: str) -> NDArray[np.generic]:
    if index is None or len(column) == len(index):
        return column
    if index.min() < 0 or index.max() >= len(column):
        raise UserError(f"--rows asks for row {int(index.max())}, {name!r} has {len(column)}")
    return column[index]


def _cost_columns(choices: str, index: Ints | None, n: int) -> dict[str, Floats]:
    """Columns called params, macs or flops beside the choices."""
    file = choices.split(",")[0].rpartition(":")[0]
    with np.load(file, allow_pickle=False) as archive:
        found = {name: archive[name] for name in ("params", "macs", "flops") if name in archive.files}
    aligned = {name: _aligned(column, index, name).astype(np.float64) for name, column in found.items()}
    return {name: column for name, column in aligned.items() if column.shape == (n,)}


def _rows(extra: Floats | None, rows: Ints) -> Floats | None:
    return None if extra is None else extra[rows]


def _as_text(report: dict[str, object]) -> str:
    names = [f.name for f in fields(Scores)]
    lines = [
        f"space {report['space']}, n = {report['n']}, {report['test_rows']} test rows, seeds {report['seeds']}",
        " ".join([f"{'':26s}", *[f"{name:>16s}" for name in names]]),
    ]
    baselines = report["baselines"]
    assert isinstance(baselines, dict)
    for title, values in [("predictor", report), *baselines.items()]:
        cells = [f"{values[name]:16.3f}" if name in values else f"{'-':>16s}" for name in names]
        lines.append(" ".join([f"{title:26s}", *cells]))
    lines.append(f"fit {report['fit_cpu_s']:.2f} core-s, {report['candidates_per_cpu_s']:,.0f} candidates per core-s")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="experiments.tabular accuracy", description=__doc__)
    parser.add_argument("--choices", required=True, metavar="F:COL[,COL]", help="integer decisions")
    parser.add_argument("--y", required=True, metavar="F:COL", help="accuracy, higher is better; NaN rows are left out")
    parser.add_argument("--extra", metavar="F:COL[,COL]", help="proxies or short trainings; NaN is a missing value")
    parser.add_argument("--rows", metavar="F:COL", help="row indices into the columns that are longer than this one")
    parser.add_argument("--space", default="auto", help=f"{', '.join(SPACES)}, generic or auto (by shape and ids)")
    parser.add_argument("--n", type=int, default=100, help="labelled rows")
    parser.add_argument("--seeds", type=int, default=5, help="how many random splits")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--fast", action="store_true", help="the predictor's quick mode")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    return parser


@click.command(
    "accuracy",
    short_help="Predict accuracies from choices and cheap evidence.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, /, arguments: tuple[str, ...]) -> None:
    """The same as `python -m experiments.tabular.commands.accuracy`."""
    context.exit(main(arguments))


if __name__ == "__main__":
    sys.exit(main())
