"""`nas predict`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nas.cli.shell import Shell
from nas.cli.types import Share

_FOLDER = ("restart", "max_bad", "ray")
_STREAMS = ("results", "until_empty", "may_lose")
"""Parameters that only one way of working has."""


@click.command(short_help="Score many images: a folder, a folder as it fills, or a stream.")
@click.argument("bundle")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="The result: FILE.parquet; with --watch a folder.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes, each on a core.  [default: all fast cores]")
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, help="Classes kept of an answer.")
@click.option("--max-bad", type=Share(), help="Exit with 3 where more images have no answer: 5%, 0.")
@click.option("--restart", is_flag=True, help="Begin anew where another job was begun, or its result is there.")
@click.option("--ray", metavar="ADDRESS", help="Score on a Ray cluster: auto, or HOST:PORT.")
@click.option(
    "--watch", type=click.Path(path_type=Path), metavar="FOLDER", help="Score what is moved into this folder."
)
@click.option("--from", "source", metavar="URL", help="Score a stream: redis://HOST:PORT/STREAM.")
@click.option("--to", "results", metavar="RESULTS", help="With --from: the stream of results.")
@click.option("--until-empty", is_flag=True, help="With --watch or --from: end when nothing is left to score.")
@click.option("--may-lose", is_flag=True, help="With --from: accept a server that may lose entries.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of sentences.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def predict(
    context: click.Context,
    /,
    *,
    bundle: str,
    folder: Path | None,
    out: Path | None,
    watch: Path | None,
    source: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Score many images with a bundle, each exactly once, also after `kill -9`.

    The images of FOLDER and its sub-folders become the rows of one Parquet file: path, label, score, error (why an
    image has no answer), the surest labels and their scores, boxes, points, width and height. The same command goes on
    after an interruption, and the file has the same bytes.

    \b
    Example:
      nas predict runs/photos#1 images/ --out predictions.parquet --max-bad 5%
      nas predict digits.bundle --watch inbox/ --out answers/
      nas predict digits.bundle --from redis://127.0.0.1:6379/images --to answers
    """
    from nas.progress import progress_for
    from nas.report.document import to_json
    from nas.scoring.sentences import folder_sentences, stream_sentences

    shell, progress = context.ensure_object(Shell), progress_for(quiet=quiet)
    if watch is None and source is None:
        from nas.scoring.offline import PredictRequest, predict_folder

        if folder is None or out is None:
            raise click.UsageError("give FOLDER and --out FILE.parquet, or --watch, or --from")
        _refuse(context, _STREAMS, "a folder's images are scored once")
        shell.resume = shell.command
        wanted = {name: options[name] for name in ("workers", "top", "max_bad", "restart", "ray")}
        predicted = predict_folder(PredictRequest(bundle=bundle, folder=folder, out=out, **wanted), progress)
        document, sentences, missed = predicted.document, folder_sentences, predicted.missed
    else:
        from nas.scoring.watching import StreamRequest, score_stream, watch_folder

        _refuse(context, ("folder", *_FOLDER), "images are scored as they arrive")
        request = StreamRequest(
            bundle=bundle, workers=options["workers"], top=options["top"], until_empty=options["until_empty"]
        )
        if watch is not None:
            _refuse(context, ("source", "results", "may_lose"), "a folder is watched")
            if out is None:
                raise click.UsageError("give a folder for the results: --out FOLDER")
            document = watch_folder(request, watch, out, progress)
        else:
            _refuse(context, ("out",), "results go to another stream: --to")
            assert source is not None
            document = score_stream(
                request, source, options["results"], may_lose=options["may_lose"], progress=progress
            )
        sentences, missed = stream_sentences, False
    if as_json:
        click.echo(to_json(document))
    else:
        for line in sentences(document):
            click.echo(line)
    context.exit(3 if missed else 0)


def _refuse(context: click.Context, names: Sequence[str], why: str) -> None:
    """Raises `click.UsageError` where one of the parameters `names` was typed: it would do nothing."""
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} makes no sense here: {why}")
