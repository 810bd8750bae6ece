"""Kills `nas predict` and a Redis server at random moments, and compares what comes out with undisturbed work.

`python -m experiments.predict_kills runs/classification-local-10ms#1` needs a bundle and ten minutes or so:

- `folder`: `nas predict` on a folder of photos, its whole process group killed with SIGKILL again and again. The file
  has to have the bytes of the undisturbed run, with each image once.
- `rate`: images per second with one and with two workers, beside what one core can do: the time to decode, infer and
  tell the answer of one image after the other.
- `watch`: two commands share a folder that fills, and are killed in turns. Each image has to have one row, and that of
  `nas predict`.
- `redis`: images through a Redis stream (`appendfsync always`), while workers and the server are killed. Each image has
  to have one result, and that of `nas predict`.

`--only` chooses. Exit code 1 where something is lost, double or different, or a rate is below its bar.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image

from nas.bundles.predictor import Predictor
from nas.measure.host import affinity
from nas.measure.topology import performance_cores
from nas.scoring.offline import PredictRequest, predict_folder

PARTS = ("folder", "rate", "watch", "redis")
LIMIT_SHARE, TWO_WORKERS = 0.9, 1.8
"""Bars: of the rate that one core can do, and of two workers against one."""
RATE_COPIES = 5
"""So often the part `rate` scores each photo."""
SERVER_START_S = 60.0


def write_photos(folder: Path, count: int, size: tuple[int, int], seed: int) -> list[Path]:
    """JPEG files with something like the detail of photos: blotches and a little noise."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    width, height = size
    paths = [folder / f"{number // 1000:03d}-{number:06d}.jpg" for number in range(count)]
    for path in paths:
        blotches = Image.fromarray(rng.integers(0, 255, (8, 10, 3), dtype=np.uint8)).resize(
            size, Image.Resampling.BICUBIC
        )
        noise = rng.integers(-12, 13, (height, width, 1))
        Image.fromarray(np.clip(np.asarray(blotches) + noise, 0, 255).astype(np.uint8)).save(path, quality=90)
    return paths


def started(arguments: list[str], log: Path) -> "subprocess.Popen[bytes]":
    """`nas predict` as the leader of a process group."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "nas", "predict", *arguments, "--quiet"],
            start_new_session=True,
            stdout=file,
            stderr=file,
        )


def killed(process: "subprocess.Popen[bytes]", after_s: float) -> bool:
    """Kill the process group after some seconds, unless the process has ended by itself (False)."""
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    what: str
    value: str
    kept: bool


def kill_folder(bundle: str, photos: Path, place: Path, kills: int, chance: random.Random) -> list[Line]:
    """See the module."""
    began = time.monotonic()
    count = predict_folder(PredictRequest(bundle=bundle, folder=photos, out=place / "undisturbed.parquet")).document[
        "images"
    ]
    whole_s = time.monotonic() - began
    expected = sha256_of(place / "undisturbed.parquet")
    done = runs = missing = double = different = 0
    while done < kills or runs == 0:
        out = place / f"killed-{runs}.parquet"
        arguments = [bundle, str(photos), "--out", str(out)]
        while True:
            # Any moment of a run: while it starts, scores, or joins what others have left.
            process = started(arguments, place / "log")
            if done < kills and killed(process, chance.uniform(0.2, 0.2 + 0.6 * whole_s)):
                done += 1
                continue
            if process.wait() != 0:
                raise click.ClickException(f"`nas predict` failed: see {place / 'log'}")
            break
        runs += 1
        paths = Counter(_column(out, "path"))
        missing += count - len(paths)
        double += sum(times - 1 for times in paths.values())
        different += sha256_of(out) != expected
        if out.with_name(out.name + ".parts").exists():
            raise click.ClickException(f"parts were left in {out}.parts")
    return [
        Line(
            f"folder: {count} images, {done} kills of the process group, {runs} files",
            f"{whole_s:.1f} s undisturbed",
            True,
        ),
        Line("  files with other bytes than undisturbed", str(different), different == 0),
        Line("  images missing / double", f"{missing} / {double}", missing == double == 0),
    ]


def rates(bundle: str, photos: Path, place: Path) -> list[Line]:
    """See the module."""
    core = core_rate(bundle, sorted(photos.iterdir())[:300])
    lines = [Line("rate: decode + inference on one core", f"{core:.0f}/s", True)]
    found: dict[int, float] = {}
    many = place / "many"  # the start of the processes is a part of the rate, and a small one
    many.mkdir()
    for path in photos.iterdir():
        for copy in range(RATE_COPIES):
            os.link(path, many / f"{copy}-{path.name}")
    for workers in (1, 2):
        request = PredictRequest(bundle=bundle, folder=many, out=place / f"rate-{workers}.parquet", workers=workers)
        found[workers] = predict_folder(request).document["images_per_s"]
        share = found[workers] / (workers * core)
        lines.append(
            Line(
                f"  {workers} worker{'s' * (workers > 1)}, start included",
                f"{found[workers]:.0f}/s = {share:.0%} of the limit",
                share >= LIMIT_SHARE,
            )
        )
    gain = found[2] / found[1]
    return [*lines, Line("  two workers against one", f"{gain:.2f} x", gain >= TWO_WORKERS)]


def core_rate(bundle: str, paths: list[Path]) -> float:
    """Images per second of one core that does one image after the other, warm."""
    predictor = Predictor.open(bundle, threads=1)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, performance_cores(affinity())[:1])
    try:
        for path in paths[:20]:
            predictor.predict(path)
        began = time.perf_counter()
        for path in paths:
            predictor.predict(path)
        return len(paths) / (time.perf_counter() - began)
    finally:
        os.sched_setaffinity(0, before)


def kill_watchers(
    bundle: str, paths: list[Path], place: Path, kills: int, seconds: float, chance: random.Random
) -> list[Line]:
    """See the module."""
    expected = expected_rows(bundle, paths, place / "watch.parquet")
    inbox, out, moving = place / "inbox", place / "answers", place / "moving"
    for folder in (inbox, moving):
        folder.mkdir()
    began = time.monotonic()

    def produce() -> None:
        for number, path in enumerate(paths):
            time.sleep(max(0.0, began + seconds * number / len(paths) - time.monotonic()))
            os.rename(shutil.copy(path, moving), inbox / path.name)

    arguments = [bundle, "--watch", str(inbox), "--out", str(out), "--workers", "1"]
    with running(produce):
        watchers = [started(arguments, place / "log") for _ in range(2)]
        for kill in range(kills):
            if not killed(watchers[kill % 2], chance.uniform(0.5, 4.0)):
                raise click.ClickException(f"`nas predict --watch` failed: see {place / 'log'}")
            watchers[kill % 2] = started(arguments, place / "log")
    for watcher in watchers:
        killed(watcher, 0.0)
    if started([*arguments, "--until-empty"], place / "log").wait() != 0:
        raise click.ClickException(f"`nas predict --watch` failed: see {place / 'log'}")
    rows = [row for path in out.glob("*.parquet") for row in _rows(path)]
    names = Counter(row["path"] for row in rows)
    different = sum({name: row[name] for name in expected[row["path"]]} != expected[row["path"]] for row in rows)
    missing, double = len(paths) - len(names), sum(times - 1 for times in names.values())
    return [
        Line(f"watch: {len(paths)} images, two commands, {kills} kills", f"{time.monotonic() - began:.0f} s", True),
        Line("  rows missing / double", f"{missing} / {double}", missing == double == 0),
        Line("  rows other than those of `nas predict`", str(different), different == 0),
    ]


def expected_rows(bundle: str, paths: list[Path], out: Path) -> dict[str, dict[str, Any]]:
    """The rows of `nas predict` by the names of the files, undisturbed."""
    predict_folder(PredictRequest(bundle=bundle, folder=paths[0].parent, out=out))
    return {(name := Path(row["path"]).name): {**row, "path": name} for row in _rows(out)}


class RedisServer:
    """A Redis server that can be killed and started again with what its log holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        with (self.folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["redis-server", *options, "--appendonly", "yes", "--appendfsync", "always"], stdout=log, stderr=log
            )
        deadline = time.monotonic() + SERVER_START_S
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1):
                    return
            except OSError:
                time.sleep(0.02)
        raise click.ClickException(f"redis-server does not start: see {self.folder / 'redis.log'}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def running(work: Callable[[], None]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield thread
    thread.join()


def kill_redis(
    bundle: str,
    paths: list[Path],
    place: Path,
    worker_kills: int,
    server_kills: int,
    seconds: float,
    chance: random.Random,
) -> list[Line]:
    """See the module."""
    import redis

    from nas.scoring.redis_stream import Producer
    from nas.scoring.rows import row_of_json

    expected = expected_rows(bundle, paths, place / "redis.parquet")
    server = RedisServer(place)
    stream = f"redis://127.0.0.1:{server.port}/images"

    def produce() -> None:
        producer = Producer(stream)
        for number, path in enumerate(paths):
            time.sleep(max(0.0, began + seconds * number / len(paths) - time.monotonic()))
            producer.send(path.name, path.read_bytes())

    began = time.monotonic()
    arguments = [bundle, "--from", stream, "--to", "answers"]
    with_server = {round(worker_kills * (k + 0.5) / server_kills) for k in range(server_kills)}
    try:
        with running(produce):
            for kill in range(worker_kills):
                process = started(arguments, place / "log")
                if kill in with_server:
                    time.sleep(chance.uniform(1.5, 3.0))
                    server.kill()  # while a worker is at work, and images are sent
                    time.sleep(0.5)
                    server.start()
                if not killed(process, chance.uniform(0.5, 5.0)):
                    raise click.ClickException(f"`nas predict --from` failed: see {place / 'log'}")
        if started([*arguments, "--until-empty"], place / "log").wait() != 0:
            raise click.ClickException(f"`nas predict --from` failed: see {place / 'log'}")
        client: Any = redis.Redis(port=server.port, decode_responses=True)
        results = [fields for _, fields in client.xrange("answers")]
        dead = client.xlen("images.dead")
    finally:
        server.kill()
    ids = Counter(fields["id"] for fields in results)
    rows = [row_of_json(json.loads(fields["row"])) for fields in results]
    different = sum(row != row_of_json(expected[row.path]) for row in rows)
    missing, double = len(paths) - len(ids), sum(times - 1 for times in ids.values())
    kills = f"{worker_kills} worker kills, {len(with_server)} kills of the server"
    return [
        Line(f"redis: {len(paths)} images, {kills}", f"{time.monotonic() - began:.0f} s", True),
        Line("  results missing / double / given up", f"{missing} / {double} / {dead}", missing == double == dead == 0),
        Line("  results other than those of `nas predict`", str(different), different == 0),
    ]


def _column(out: Path, name: str) -> list[Any]:
    return [row[name] for row in _rows(out)]


def _rows(out: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    found: list[dict[str, Any]] = pq.read_table(out).to_pylist()
    return found


@click.command()
@click.argument("bundle")
@click.option("--images", default=4000, show_default=True, help="Photos of the parts `folder` and `rate`.")
@click.option("--stream-images", default=10_000, show_default=True, help="Images of the parts `watch` and `redis`.")
@click.option("--seconds", default=120.0, show_default=True, help="Time over which those are sent.")
@click.option("--kills", default=20, show_default=True, help="Of the process group, in the part `folder`.")
@click.option("--worker-kills", default=30, show_default=True)
@click.option("--server-kills", default=5, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--only", type=click.Choice(PARTS), multiple=True, default=PARTS)
def main(
    bundle: str,
    images: int,
    stream_images: int,
    seconds: float,
    kills: int,
    worker_kills: int,
    server_kills: int,
    seed: int,
    only: tuple[str, ...],
) -> None:
    """Kill `nas predict` with BUNDLE, and compare."""
    chance = random.Random(seed)
    lines: list[Line] = []
    place = Path(tempfile.mkdtemp(prefix="nas-predict-kills-"))
    if {"folder", "rate"} & set(only):
        write_photos(place / "photos", images, (500, 375), seed)
    if "folder" in only:
        lines += kill_folder(bundle, place / "photos", place, kills, chance)
    if "rate" in only:
        lines += rates(bundle, place / "photos", place)
    if {"watch", "redis"} & set(only):
        paths = write_photos(place / "small", stream_images, (120, 90), seed + 1)
    if "watch" in only:
        lines += kill_watchers(bundle, paths, place, worker_kills, seconds, chance)
    if "redis" in only:
        lines += kill_redis(bundle, paths, place, worker_kills, server_kills, seconds, chance)
    width = max(len(line.what) for line in lines)
    for line in lines:
        click.echo(f"{line.what:<{width}}  {line.value}{'' if line.kept else '   MISSED'}")
    shutil.rmtree(place)
    sys.exit(not all(line.kept for line in lines))


if __name__ == "__main__":
    main()
