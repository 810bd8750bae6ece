"""`nas predict --watch` and `--from`: a bundle at work on what arrives."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas.bundles.predictor import checked_bundle
from nas.bundles.receipt import Receipt
from nas.files.writing import sha256_of
from nas.networks.find import RECEIPT
from nas.progress import Progress, SilentProgress
from nas.scoring.crew import Crew, setups
from nas.scoring.listing import suffixes_of
from nas.scoring.scorer import TOP
from nas.scoring.spool import open_spool
from nas.scoring.streaming import Source, run_stream, stopped_by_signals


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """A bundle, and how long and with how many processes it scores what arrives."""

    bundle: str
    """Folder of a bundle, or `RUN#k`."""
    workers: int | None = None
    """Processes; None: one for each fast core."""
    top: int = TOP
    """Classes that are kept of each answer."""
    until_empty: bool = False
    """End when nothing is left; else at Ctrl-C or SIGTERM."""


Opened = Callable[[Receipt, Mapping[str, Any]], AbstractContextManager[Source[Any]]]
"""Opens a source for a bundle, whose rows depend on the mapping."""


def watch_folder(request: StreamRequest, inbox: Path, out: Path, progress: Progress | None = None) -> dict[str, Any]:
    """Score what is moved into `inbox`; rows go to Parquet files in `out`. Returns the document of docs/predict.md.

    Raises:
        UserError: wrong input, or rows of another bundle in `out`.
        OSError: the disk is full.
    """

    def opened(receipt: Receipt, about: Mapping[str, Any]) -> AbstractContextManager[Source[Any]]:
        return open_spool(inbox, out, about, suffixes_of(receipt.signature))

    return {**_score(request, opened, progress), "watch": str(inbox), "out": str(out)}


def score_stream(
    request: StreamRequest,
    address: str,
    results: str | None = None,
    *,
    may_lose: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score what is in a Redis stream, see `nas.scoring.redis_stream.open_stream`. Returns the document of
    docs/predict.md.

    Raises:
        UserError: wrong input, a server that may lose entries or is away for long.
    """
    from nas.scoring.redis_server import parse_url
    from nas.scoring.redis_stream import RedisSource, open_stream

    progress = progress or SilentProgress()
    sources: list[RedisSource] = []

    @contextmanager
    def opened(receipt: Receipt, about: Mapping[str, Any]) -> Iterator[Source[Any]]:
        with open_stream(address, results, may_lose=may_lose, progress=progress) as source:
            sources.append(source)
            yield source

    document = _score(request, opened, progress)
    url = parse_url(address)
    return {
        **document,
        "from": str(url),
        "to": results or f"{url.stream}.results",
        "dead_letters": f"{url.stream}.dead",
        "dead": sum(source.buried for source in sources),
    }


def _score(request: StreamRequest, opened: Opened, progress: Progress | None) -> dict[str, Any]:
    began = time.monotonic()
    bundle, receipt = checked_bundle(request.bundle)
    about = {"bundle": sha256_of(bundle / RECEIPT), "top": request.top}
    with (
        opened(receipt, about) as source,
        Crew(setups(bundle, receipt, workers=request.workers, top=request.top)) as crew,
        stopped_by_signals() as stop,
    ):
        count = run_stream(crew, source, progress or SilentProgress(), until_empty=request.until_empty, stop=stop)
    seconds = time.monotonic() - began
    return {
        "schema": 1,
        "bundle": request.bundle,
        "images": count.images,
        "bad": count.bad,
        "seconds": seconds,
        "images_per_s": count.images / seconds,
    }
