"""`nas predict`: every image of a folder, scored once, into one file."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas.bundles.predictor import checked_bundle
from nas.bundles.receipt import Receipt
from nas.progress import Progress, SilentProgress
from nas.scoring.crew import Crew, setups
from nas.scoring.job import Job, errors_path, identity_of, open_job
from nas.scoring.listing import Listing, list_folder, suffixes_of
from nas.scoring.messages import Scored, Task
from nas.scoring.scorer import TOP


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictRequest:
    """What to score, and how."""

    bundle: str
    """Folder of a bundle, or `RUN#k`."""
    folder: Path
    out: Path
    """A Parquet file."""
    workers: int | None = None
    """Processes; None: one for each fast core."""
    top: int = TOP
    """Classes that are kept of each answer."""
    max_bad: float | None = None
    """Largest share of images without an answer; None: any."""
    restart: bool = False
    """Begin anew where another job was begun or the output is there."""
    ray: str | None = None
    """Address of a Ray cluster to score on, see `nas.executors.ray_cluster.connected`; None: on this machine."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What was written."""

    document: dict[str, Any]
    """See docs/predict.md."""
    missed: bool
    """More images than `max_bad` have no answer."""


def predict_folder(request: PredictRequest, progress: Progress | None = None) -> Predicted:
    """Score the images of a folder; what an earlier, interrupted call of the same request has done is kept.

    Raises:
        UserError: wrong input, another process at work on the same output, an output or parts of another job.
        OSError: the disk is full.
    """
    progress = progress or SilentProgress()
    began = time.monotonic()
    bundle, receipt = checked_bundle(request.bundle)
    listing = list_folder(request.folder, suffixes_of(receipt.signature))
    identity = identity_of(bundle, receipt, listing, request.top)
    scored = found = 0
    with open_job(request.out, identity, restart=request.restart) as job:
        if job is not None:
            ranges, finished = job.ranges(), job.finished()
            left = [number for number in range(len(ranges)) if number not in finished]
            scored = sum(stop - start for start, stop in (ranges[number] for number in left))
            found = identity.count - scored
            if found:
                progress.note(f"{found} of {identity.count} images were scored before")
            with progress.stage("scoring", identity.count) as stage:
                stage.advance(found)
                for done in _run(request, bundle, receipt, _tasks(job, listing, left), len(left)):
                    stage.advance(done.count)
            job.join()
    return _summary(request, listing, identity.job, scored, time.monotonic() - began)


def _tasks(job: Job, listing: Listing, numbers: Sequence[int]) -> Iterator[Task]:
    """The parts of these numbers, one after the other: a million images are not held twice."""
    ranges = job.ranges()
    for number in numbers:
        yield Task(number=number, items=listing.items(*ranges[number]), part=job.part(number).absolute())


def _run(
    request: PredictRequest, bundle: Path, receipt: Receipt, tasks: Iterator[Task], count: int
) -> Iterator[Scored]:
    if not count:
        return
    if request.ray is not None:
        from nas.scoring.cluster import run_on_cluster

        yield from run_on_cluster(request.ray, bundle, tasks, top=request.top)
        return
    with Crew(setups(bundle, receipt, workers=request.workers, top=request.top)[:count]) as crew:
        yield from run_tasks(crew, tasks)


def run_tasks(crew: Crew, tasks: Iterable[Task]) -> Iterator[Scored]:
    """Score all tasks, as many at a time as there are workers; yields them as they end. Raises as `Crew.wait`."""
    waiting = iter(tasks)
    under_way = 0
    while True:
        while crew.idle and (task := next(waiting, None)) is not None:
            crew.submit(task)
            under_way += 1
        if not under_way:
            return
        for done in crew.wait():
            under_way -= 1
            yield done


def _summary(request: PredictRequest, listing: Listing, job: str, scored: int, seconds: float) -> Predicted:
    """What the output says, whoever has written it."""
    import pyarrow.parquet as pq

    table = pq.read_table(request.out, columns=["label", "error"])
    images, bad = len(table), len(table) - table["error"].null_count
    limit = request.max_bad
    missed = limit is not None and bad > limit * images
    labels = Counter(label for label in table["label"].to_pylist() if label is not None)
    document = {
        "schema": 1,
        "bundle": request.bundle,
        "folder": str(request.folder),
        "out": str(request.out),
        "job": job,
        "images": images,
        "scored": scored,
        "found": images - scored,
        "bad": bad,
        "max_bad": limit,
        "within_max_bad": not missed,
        "errors": str(errors_path(request.out)) if bad else None,
        "other_files": listing.others,
        "labels": dict(labels.most_common()),
        "seconds": seconds,
        "images_per_s": scored / seconds if scored else None,
    }
    return Predicted(document, missed)
