"""What `nas serve` promises, measured on this machine over the loopback interface.

Right answers, what HTTP costs, images per second, replicas that are killed, an end without a lost request, bad
requests, overload.

`python -m experiments.serving_check BUNDLE --images FOLDER` takes about five minutes and prints a table; `--only` takes
some of the checks, and `--json FILE` keeps the figures. FOLDER holds image files, in sub-folders that are named after
their classes where accuracy is to be compared with the receipt; without it there is a file of the usual size of a
picture, made of the bundle's sample. The clients share the cores with the server: their part of the CPU is stated.
"""

import asyncio
import io
import json
import os
import random
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import click
import numpy as np
import psutil
import uvloop
from PIL import Image
from rich.console import Console
from rich.table import Table

from experiments.serving_clients import Loop, closed_loop, request
from nas.bundles.predictor import Predictor
from nas.data.decode import IMAGE_SUFFIXES
from nas.data.processor import read_document, usual_picture
from nas.errors import MissingDependencyError
from nas.measure.pipeline import SAMPLE
from nas.serving.checks import usable_cores, usual_settings
from nas.serving.process import Server, running
from nas.serving.protocol import HEADER_LENGTH
from nas.serving.settings import ServingSettings

MOST_FILES = 500
CALLS = 2000
KILLS_S, KILL_EVERY_S, OVERLOAD_S = 60.0, 5.0, 60.0
CLIENTS = 20


@dataclass(frozen=True, slots=True)
class Row:
    """A figure and what it must be."""

    name: str
    figure: str
    must: str
    kept: bool | None
    """None: nothing is promised."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What all checks share."""

    bundle: Path
    predictor: Predictor
    settings: ServingSettings
    files: list[tuple[bytes, str | None]]
    """Image files, each with its class where that is known."""

    @property
    def posts(self) -> list[bytes]:
        return [request("/predict", file) for file, _ in self.files]


async def answers(bench: Bench) -> list[Row]:
    """Each file's answer is that of `Predictor.predict`, number for number."""
    with running(bench.bundle, replace(bench.settings, batch=1)) as server:
        seen = await closed_loop(server.url, bench.posts, clients=1, most=len(bench.files), keep=True)
    expected = [bench.predictor.predict(file)[:1] for file, _ in bench.files]
    said = [[{"label": a["label"], "score": a["score"]}] for a in map(json.loads, seen.bodies)]
    same = sum(
        (a[0]["label"], a[0]["score"]) == ((b[0]["label"], b[0]["score"]) if b else (None, None))
        for a, b in zip(said, expected, strict=True)
    )
    rows = [Row("answers as Predictor.predict", f"{same} of {len(expected)}", "all", same == len(expected))]
    known = [(a[0]["label"], label) for a, (_, label) in zip(said, bench.files, strict=True) if label is not None]
    claimed = bench.predictor.receipt.test_accuracy
    if known and claimed is not None:
        share = sum(a == b for a, b in known) / len(known)
        figure = f"{share:.1%} of {len(known)} files, receipt {claimed:.1%}"
        rows.append(Row("accuracy over the wire", figure, "within 0.5 points", abs(share - claimed) <= 0.005))
    return rows


async def overhead(bench: Bench) -> list[Row]:
    """One client that sends binary tensors, against the session called without a pause on the same core."""
    spec = bench.predictor.receipt.signature.input
    inputs = bench.predictor.processor.preprocess(bench.files[0][0]).inputs
    datatype = {"float32": "FP32", "int64": "INT64", "uint8": "UINT8"}[spec.dtype]
    about = {"name": "input", "datatype": datatype, "shape": list(inputs.shape)}
    entry = {**about, "parameters": {"binary_data_size": inputs.nbytes}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    settings = replace(bench.settings, replicas=1, batch=1)
    first, last = usable_cores()[: settings.threads], usable_cores()[-1:]
    before = os.sched_getaffinity(0)
    session_ms = []
    with running(bench.bundle, settings) as server:
        body = head + inputs.tobytes()
        post = request(f"/v2/models/{server.name}/infer", body, f"{HEADER_LENGTH}: {len(head)}")
        try:
            seen = []
            for _ in range(3):
                os.sched_setaffinity(0, first)
                session_ms.append(_median_ms(lambda: bench.predictor.session.run(inputs)))
                os.sched_setaffinity(0, last)
                seen.append(await closed_loop(server.url, [post], clients=1, most=CALLS))
        finally:
            os.sched_setaffinity(0, before)
    wire_ms, alone_ms = min(loop.percentile_ms(50) for loop in seen), min(session_ms)
    figure = f"{wire_ms - alone_ms:.3f} ms ({wire_ms:.3f} - {alone_ms:.3f})"
    kept = wire_ms - alone_ms <= 0.6
    return [Row("p50 of one client, binary tensor, minus the session's", figure, "<= 0.6 ms", kept)]


async def throughput(bench: Bench) -> list[Row]:
    """A closed loop of image files, against what the cores could decode and run if there were nothing else to do."""
    preprocess = bench.predictor.processor.preprocess
    decode_ms = median(_once_ms(partial(preprocess, file)) for file, _ in bench.files * 5)
    inputs = bench.predictor.processor.preprocess(bench.files[0][0]).inputs
    infer_ms = _median_ms(lambda: bench.predictor.session.run(inputs))
    with running(bench.bundle, bench.settings) as server:
        await closed_loop(server.url, bench.posts, clients=CLIENTS, seconds=2)
        seen = await closed_loop(server.url, bench.posts, clients=CLIENTS, seconds=15)
    threads = bench.settings.threads
    bound = 1e3 / (decode_ms / bench.settings.cores + infer_ms * threads / bench.settings.cores)
    figure = (
        f"{seen.rate:.0f}/s of {bound:.0f}/s ({seen.rate / bound:.0%}; decode {decode_ms:.2f} ms, network "
        f"{infer_ms:.2f} ms; p99 {seen.percentile_ms(99):.1f} ms)"
    )
    share = Row("clients' share of the CPU", f"{_share(seen):.0%} of one core", "", None)
    return [Row(f"image files, {CLIENTS} clients", figure, ">= 75 %", seen.rate >= 0.75 * bound), share]


async def kills(bench: Bench) -> list[Row]:
    """A replica is killed every five seconds, at about half the load it could bear."""
    wholes: list[float] = []
    with running(bench.bundle, bench.settings) as server:
        full = await closed_loop(server.url, bench.posts, clients=CLIENTS, seconds=5)
        clients = 8

        async def killing(seen: Loop) -> None:
            end = time.monotonic() + KILLS_S
            while time.monotonic() + KILL_EVERY_S < end:
                await asyncio.sleep(KILL_EVERY_S)
                os.kill(random.choice(server.replicas()), signal.SIGKILL)
                wholes.append(await asyncio.to_thread(_seconds_until_whole, server, bench.settings.replicas))

        seen = await closed_loop(
            server.url, bench.posts, clients=clients, seconds=KILLS_S, pause_s=max(0.0, 2 * clients / full.rate),
            during=lambda loop: asyncio.ensure_future(killing(loop)),
        )  # fmt: skip
    most = clients * len(wholes)
    lost = f"{seen.lost} ({seen.rate:.0f}/s of {full.rate:.0f}/s)"
    return [
        Row(f"{len(wholes)} replicas killed: requests lost", lost, f"<= {most} in flight", seen.lost <= most),
        Row("other answers than 200", str(_others(seen)), "0", not _others(seen)),
        Row("seconds until whole, at most", f"{max(wholes):.2f}", "<= 3", max(wholes) <= 3),
    ]


async def ending(bench: Bench) -> list[Row]:
    """SIGTERM while clients ask without a pause."""
    with running(bench.bundle, bench.settings) as server:

        async def end(seen: Loop) -> None:
            await asyncio.sleep(3)
            os.kill(server.pid, signal.SIGTERM)

        seen = await closed_loop(
            server.url, bench.posts, clients=CLIENTS, seconds=30, leave_when_gone=True,
            during=lambda loop: asyncio.ensure_future(end(loop)),
        )  # fmt: skip
    failed = seen.lost + _others(seen)
    return [Row(f"SIGTERM under {CLIENTS} clients: failed of {sum(seen.codes.values())}", str(failed), "0", not failed)]


async def bad(bench: Bench) -> list[Row]:
    """10,000 requests that cannot be answered, then 1,000 good ones."""
    rng = random.Random(0)
    file = bench.files[0][0]
    with running(bench.bundle, bench.settings) as server:
        infer = f"/v2/models/{server.name}/infer"
        kinds: Sequence[Callable[[], bytes]] = (
            lambda: request("/predict", rng.randbytes(rng.randrange(2000))),
            lambda: request("/predict", file[: rng.randrange(1, max(2, len(file) // 2))]),
            lambda: request("/predict", b""),
            lambda: request(infer, b'{"inputs": [' + rng.randbytes(20)),
            lambda: request(infer, b"{}", f"{HEADER_LENGTH}: {rng.randrange(99)}"),
            lambda: request("/v2/models/other/infer", b"{}"),
        )
        await closed_loop(server.url, bench.posts, clients=8, most=1000)
        before, pids = _memory(server), server.replicas()
        requests = [rng.choice(kinds)() for _ in range(10_000)]
        refused = await closed_loop(server.url, requests, clients=8, most=len(requests))
        good = await closed_loop(server.url, bench.posts, clients=8, most=1000)
        after, same = _memory(server), server.replicas() == pids
    growth = after / before - 1
    failed = refused.codes["500"] + refused.lost
    return [
        Row("10,000 bad requests: status 500 or none", f"{failed} ({dict(refused.codes)})", "0", not failed),
        Row("1,000 good ones after them, answered", str(good.codes["200"]), "1000", good.codes["200"] == 1000),
        Row("replicas that died", str(0 if same else "some"), "0", same),
        Row("memory after them", f"{growth:+.1%}", "<= 10 %", growth <= 0.1),
    ]


async def overload(bench: Bench) -> list[Row]:
    """Twice the load that can be borne, for a minute: who is accepted is answered in time."""
    deadline_ms, clients = 100.0, 500
    with running(bench.bundle, replace(bench.settings, deadline_ms=deadline_ms)) as server:
        full = await closed_loop(server.url, bench.posts, clients=CLIENTS, seconds=5)
        pause_s = clients / (2 * full.rate)
        seen = await closed_loop(server.url, bench.posts, clients=clients, seconds=OVERLOAD_S, pause_s=pause_s)
    p99 = seen.percentile_ms(99)
    sent = sum(seen.codes.values())
    figure = (
        f"p99 {p99:.1f} ms, {seen.rate:.0f}/s of {full.rate:.0f}/s, refused {seen.codes['503'] / sent:.0%} of {sent}"
    )
    kept = p99 <= deadline_ms and not seen.lost
    return [Row("load of up to twice what can be borne", figure, f"p99 <= {deadline_ms:g} ms, none lost", kept)]


async def ray(bench: Bench) -> list[Row]:
    """The same application on Ray Serve, where that is installed."""
    from experiments.serving_ray import rate_on_ray

    with running(bench.bundle, bench.settings) as server:
        ours = await closed_loop(server.url, bench.posts, clients=CLIENTS, seconds=10)
    try:
        theirs = await rate_on_ray(bench.bundle, bench.settings, bench.posts, CLIENTS)
    except (MissingDependencyError, RuntimeError) as error:
        return [Row("the same on Ray Serve", f"not measured: {error}", ">= 3 times as fast as it", None)]
    figure = f"{ours.rate:.0f}/s against {theirs:.0f}/s"
    return [Row("the same on Ray Serve", figure, ">= 3 times as fast as it", ours.rate >= 3 * theirs)]


CHECKS: Mapping[str, Callable[[Bench], Coroutine[Any, Any, list[Row]]]] = {
    "answers": answers, "overhead": overhead, "throughput": throughput, "kills": kills, "ending": ending, "bad": bad,
    "overload": overload, "ray": ray,
}  # fmt: skip


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--images", type=click.Path(path_type=Path, exists=True), help="Folder of image files.")
@click.option("--only", type=click.Choice(list(CHECKS)), multiple=True, help="Only this check (repeatable).")
@click.option("--replicas", type=click.IntRange(min=1), help="Processes.  [default: as `nas serve` would]")
@click.option("--threads", type=click.IntRange(min=1), help="Of each.  [default: as `nas serve` would]")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Most images of one call.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Also write the figures to this file.")
def main(
    bundle: Path, images: Path | None, only: tuple[str, ...], replicas: int | None, threads: int | None, batch: int,
    out: Path | None,
) -> None:  # fmt: skip
    predictor = Predictor.open(bundle, threads=threads)
    usual = usual_settings(predictor.receipt)
    settings = replace(usual, replicas=replicas or usual.replicas, threads=threads or usual.threads, batch=batch)
    files = _files(images, predictor) if images else _usual_files(predictor)
    bench = Bench(predictor.folder, predictor, settings, files)
    console, table = Console(), Table("figure", "measured", "must be", "kept")
    rows: list[dict[str, Any]] = []
    for name in only or CHECKS:
        console.print(f"{name} ...", style="dim")
        for row in uvloop.run(CHECKS[name](bench)):
            table.add_row(row.name, row.figure, row.must, {True: "yes", False: "NO", None: ""}[row.kept])
            rows.append({"check": name, "name": row.name, "figure": row.figure, "must": row.must, "kept": row.kept})
        if out is not None:  # after each check: what was measured is not lost where a later one fails
            out.write_text(json.dumps(rows, indent=2) + "\n")
    console.print(table)
    console.print(f"{settings}, {len(files)} files")


def _files(folder: Path, predictor: Predictor) -> list[tuple[bytes, str | None]]:
    """A part of the image files in a folder, drawn by chance, always the same."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
    if not paths:
        raise click.UsageError(f"no image files in {folder}")
    labels = set(read_document(predictor.folder, "labels.json"))
    chosen = random.Random(0).sample(paths, min(MOST_FILES, len(paths)))
    return [(path.read_bytes(), path.parent.name if path.parent.name in labels else None) for path in chosen]


def _usual_files(predictor: Predictor) -> list[tuple[bytes, str | None]]:
    picture: Image.Image = usual_picture(predictor.folder, read_document(predictor.folder, SAMPLE))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)
    return [(file.getvalue(), None)]


def _once_ms(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def _median_ms(call: Callable[[], Any]) -> float:
    return float(np.median([_once_ms(call) for _ in range(CALLS)]))


def _share(seen: Loop) -> float:
    return seen.cpu_s / seen.seconds


def _others(seen: Loop) -> int:
    """Answers with another status than 200."""
    return sum(count for code, count in seen.codes.items() if code.isdigit() and code != "200")


def _memory(server: Server) -> int:
    return sum(psutil.Process(pid).memory_info().rss for pid in server.replicas())


def _seconds_until_whole(server: Server, replicas: int) -> float:
    """From now until so many replicas say that they serve."""
    start = time.perf_counter()
    while time.perf_counter() - start < 30:
        time.sleep(0.05)
        try:
            with urlopen(f"{server.url}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            continue
        if f"\nnas_replicas {float(replicas)}\n" in text:
            return time.perf_counter() - start
    return float("inf")


if __name__ == "__main__":
    main()
