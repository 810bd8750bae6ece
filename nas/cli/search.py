"""`nas search`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nas.calls import CONTINUOUS
from nas.cli.baseline import (
    OWN,
    baseline_options,
    refuse_without_baseline,
    search_again_from_baseline,
    search_from_baseline,
    search_from_weights,
)
from nas.cli.reading import data_options
from nas.cli.shell import Shell
from nas.cli.types import Calls, Device, LatencyMs, PercentagePoints, Positive, Seconds, TaskReference, only
from nas.deployment import ALONE, EXTENTS
from nas.limits import KINDS, NAMES, PERCENTILES, LatencyLimit, Limit, Limits


def _or_none(context: click.Context, parameter: click.Parameter, value: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """An option that may be repeated and was not given means: no restriction."""
    return value or None


def is_typed(context: click.Context, name: str) -> bool:
    """True if an option was given, not left at its default."""
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option for each kind of limit, in the order of the table, and --percentile behind that of the latency."""
    for kind in reversed(KINDS):
        if kind is LatencyLimit:
            command = click.option(
                "--percentile",
                type=click.Choice([str(p) for p in PERCENTILES]),
                default="50",
                show_default=True,
                help="Of the calls: the one that keeps --latency-ms, in each fresh session.",
            )(command)
        command = click.option(f"--{kind.name.replace('_', '-')}", type=_limit_type(kind), help=kind.help)(command)
    return command


def _limit_type(kind: type[Limit]) -> click.ParamType[float]:
    if kind.unit == "ms":
        return LatencyMs()
    return (
        PercentagePoints(kind.noun, kind.example) if kind.unit == "%" else Positive(kind.unit, kind.noun, kind.example)
    )


@click.command(short_help="Search the best network under limits.")
@click.option(
    "--task",
    type=TaskReference(),
    default="classification",
    show_default=True,
    help="What is learned: classification (a class per image), detection (boxes with their classes), pose (boxes "
    "with points, such as joints), text (a class per text), or a task of an installed package: MODULE:ATTRIBUTE, "
    "whose code is run.",
)
@click.option("--target", default="local", show_default=True, help="The device; `nas targets` lists them.")
@limit_options
@click.option(
    "--calls",
    type=Calls(),
    default=CONTINUOUS,
    show_default=True,
    help="How the network will be called, which its latency is measured for: continuous (the next call at once), a "
    "rate such as 20/s (a camera), or idle (a call now and then).",
)
@click.option(
    "--limit-on",
    type=click.Choice(EXTENTS),
    default=ALONE,
    show_default=True,
    help="What latencies are of: the network alone, or the pipeline from a decoded image in memory to the answer.",
)
@click.option(
    "--objective",
    type=click.Choice(["accuracy", "latency", "throughput", "pareto"]),
    default="accuracy",
    show_default=True,
    help="What to find: the most accurate network, the fastest with --min-accuracy, or a front of both.",
)
@click.option(
    "--data",
    default="",
    help="Classification: a named data set, a folder with one sub-folder of images per class, an archive of one, or an "
    ".npz file. Detection: a folder (or archive) in the layout of COCO, YOLO or VOC. Pose: COCO keypoints or "
    "YOLO pose labels. Text: a csv, tsv, jsonl or parquet file, or a folder with one sub-folder of .txt per class.  "
    "[default: digits]",
)
@data_options
@click.option(
    "--space",
    default="",
    help="What may be built: mobile, dense, compact or mixed; for detection detect, for pose pose, for text text; a "
    "JSON file with the table of a space; or package.module:ATTRIBUTE, whose code runs.  [default: that of the "
    "task; of images compact, or mixed for a target elsewhere whose profile lacks its blocks]",
)
@click.option(
    "--budget",
    "budget_s",
    type=Seconds(),
    help="Time for everything: measuring, searching and training (90s, 30m, 4h).  [default: 10m]",
)
@click.option("--max-trials", type=click.IntRange(min=1), help="Candidates that the search evaluates at most.")
@click.option("--max-cost", "max_cost_usd", type=Positive("USD", "cost", "2.50"), help="The budget as money.")
@click.option("--price-per-hour", type=Positive("USD", "price", "1.20"), help="Of this machine, to count the cost.")
@click.option(
    "--max-drop",
    type=PercentagePoints(),
    default="1.0",
    show_default=True,
    help="Accuracy that a faster precision may cost, in percentage points.",
)
@click.option("--top", type=click.IntRange(1, 5), help="How many winners to deliver.  [default: 1, or 3 of a front]")
@click.option(
    "--threads", type=click.IntRange(min=1), help="Threads of the deployed network.  [default: all, or fewer if faster]"
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Same seed, same proposals.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The run's folder; the same command on it resumes.  [default: runs/<task>-<target>-<limit>]",
)
@click.option(
    "--run",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Ask an earlier run for other limits: nothing is evaluated twice. The answer lies in RUN/limits.",
)
@click.option(
    "--device",
    "devices",
    type=Device(),
    multiple=True,
    callback=_or_none,
    help="Deploy only on this device of the target: cpu or cuda:N (repeatable).  [default: those of its profile]",
)
@click.option("--runtime", "runtimes", multiple=True, callback=_or_none, help="Allow only this runtime (repeatable).")
@click.option(
    "--precision", "precisions", multiple=True, callback=_or_none, help="Allow only this precision (repeatable)."
)
@click.option(
    "--resolution",
    "allowed",
    type=click.IntRange(min=1),
    multiple=True,
    callback=only("resolution"),
    help="Allow only this input height = width in pixels (repeatable).  [default: near the images' own]",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    multiple=True,
    callback=only("tokens"),
    help="Texts: allow only this number of tokens (repeatable).  [default: what most training texts have]",
)
@click.option(
    "--strict", is_flag=True, help="Refuse a profile of a host that differs from this one, instead of correcting it."
)
@click.option(
    "--baselines/--no-baselines",
    default=False,
    show_default=True,
    help="Also train random and well-known networks to compare with: takes about three fifths of the budget.",
)
@click.option(
    "--estimator",
    default="auto",
    show_default=True,
    help="What candidates are compared by: zero-cost, short (trainings), supernet or predictor; auto says why.",
)
@click.option(
    "--sampler", default="surrogate", show_default=True, help="Who proposes: surrogate, tpe, nsga2, gp or random."
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Short trainings at once.  [default: one per GPU, or 1; with --ray one per GPU, or per machine]",
)
@click.option(
    "--teacher",
    help="A trained network that candidates and finalists also learn from: RUN#1, a network's files, a bundle, or "
    "torchvision:NAME:FILE.safetensors (or timm:); for texts also a folder of the library transformers.",
)
@click.option("--unlabelled", help="Texts that --teacher labels and that are learnt too: a .txt file, table or folder.")
@baseline_options
@click.option("--ray", help="Train on a Ray cluster: `auto` for the one this machine belongs to, or HOST:PORT.")
@click.option("--asha", is_flag=True, help="Stop short trainings early whose curves are hopeless (needs --ray).")
@click.option("--storage", help="Database server for many machines (postgresql://..., mysql://...).  [default: SQLite]")
@click.option(
    "--resume", is_flag=True, expose_value=False, help="Go on with the run in --out: always done, also unasked."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def search(context: click.Context, /, *, as_json: bool, quiet: bool, run: Path | None, **options: Any) -> None:
    """Search the most accurate network that keeps the limits on a target, or the fastest, or a front of both.

    Limits are hard and may be combined. The winner is trained, exported, quantised where that pays, and measured again
    from its exported file in freshly loaded sessions: only a network that keeps every limit in each of them is accepted
    (exit code 3 otherwise). Candidates are compared by what --estimator says of them, the best are trained fully; the
    result tells how right the estimates were. Ctrl-C once ends the search early with the best so far, twice at once;
    the same command goes on.

    \b
    Example:
      nas search --target local --latency-ms 10 --data digits --budget 3m
      nas search --target xeon-spr --latency-ms 4 --data ./photos --budget 30m --json > result.json
      nas search --task detection --data ./coco --latency-ms 25 --budget 2h
      nas search --task pose --data ./coco-keypoints --latency-ms 25 --budget 4h
      nas search --task text --data reviews.csv --latency-ms 0.5 --budget 10m
      nas search --latency-ms 4 --calls 20/s --data ./frames --budget 30m
      nas search --latency-ms 5 --percentile 99 --max-size-mb 2 --data ./photos
      nas search --objective latency --min-accuracy 92 --data ./photos --max-cost 0.50 --price-per-hour 1.20
      nas search --objective pareto --data ./photos --top 5 --budget 1h
      nas search --latency-ms 10 --data ./photos --budget 5m --estimator zero-cost
      nas search --latency-ms 10 --data ./photos --budget 30m --weights auto
      nas search --run runs/classification-local-10ms --latency-ms 5
    """
    from nas.machine import threads_that_sleep
    from nas.measure.others import crowded_now

    if crowded_now():
        threads_that_sleep()  # before anything loads torch
    from nas.baseline.again import runs_from_baseline
    from nas.controller.config import SearchConfig
    from nas.controller.runs.storage import without_passwords
    from nas.controller.search import run_search
    from nas.progress import progress_for
    from nas.report.document import to_json

    shell = context.ensure_object(Shell)
    shell.resume = without_passwords(shell.command)
    typed = {name: value for name, value in options.items() if is_typed(context, name)}
    allowed = {"allowed": options["allowed"] | options.pop("tokens")}
    options |= allowed
    typed |= allowed if typed.pop("tokens", None) else {}
    if run is not None and runs_from_baseline(run):
        result = search_again_from_baseline(run, typed, shell.resume, progress_for(quiet=quiet))
    elif options["baseline"] is not None and run is None:
        result = search_from_baseline(options, typed, shell.resume, progress_for(quiet=quiet))
    elif run is None:
        refuse_without_baseline(options)
        own = {name: value for name, value in options.items() if name not in ("baseline", "weights", *OWN)}
        own["percentile"] = int(own["percentile"])
        limits = Limits.of(**{name: own.pop(name) for name in NAMES})
        config = SearchConfig(**own, limits=limits, command=shell.resume)
        if options["weights"]:
            result = search_from_weights(options, typed, config, progress_for(quiet=quiet))
        else:
            result = run_search(config, progress_for(quiet=quiet))
    else:
        from nas.controller.new_limits import search_again

        if "percentile" in typed:
            typed["percentile"] = int(typed["percentile"])
        result = search_again(run, {**typed, "command": shell.resume}, progress_for(quiet=quiet))
    if as_json:
        click.echo(to_json(result.document))
    else:
        from nas.report.tables import print_result

        print_result(result.document)
    if result.exit_code == 130:
        click.echo(f"Interrupted: this is the best so far. To continue, run: {shell.resume}", err=True)
    context.exit(result.exit_code)
