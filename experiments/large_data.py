"""Data that are larger than the memory: a search of many JPEGs, its memory, and trainings from the store.

`python -m experiments.large_data --from photos.tar --images 120000 --budget 15m --out large.json` makes that many JPEGs
of 256 px out of real ones (other crops, mirrored, brighter or darker), searches a network for them, and notes the
largest private memory of the search with all its processes. `--group /sys/fs/cgroup/memory/two-gib` puts the search
alone into a control group that limits its memory. `--throughput 20000` instead times one training from the store and
from an array.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import psutil
import torch
from PIL import Image, ImageEnhance, ImageOps

from nas.cli.types import Seconds
from nas.data import store
from nas.data.decode import IMAGE_SUFFIXES
from nas.data.images import ImageData
from nas.data.stored import StoredImages
from nas.data.tree import read_archive, read_folder
from nas.machine import memory_bytes
from nas.measure.host import fingerprint, usable_threads
from nas.tasks.classification.data.registry import load_dataset
from nas.tasks.classification.task import Classification
from nas.tasks.examples import examples_of
from nas.training.loop import train
from search_spaces import load_search_space

SIDE = 256
QUALITY = 85
LOOK_S = 0.5
"""Seconds between two looks at the memory of the search."""


def make_images(source: Path, folder: Path, images: int) -> None:
    """JPEGs of `SIDE` pixels in folders by class, `images` in all; those that are there are kept."""
    read = read_folder if source.is_dir() else read_archive
    tree = read(source, IMAGE_SUFFIXES)
    originals: dict[str, list[bytes]] = {}
    for parts, reader in sorted(tree.files.items(), key=lambda item: item[0]):
        originals.setdefault(parts[-2], []).append(reader())
    each = -(-images // len(originals))
    with ProcessPoolExecutor(usable_threads()) as pool:
        made = [
            pool.submit(_make_class, folder / name, files, min(each, images - place * each))
            for place, (name, files) in enumerate(originals.items())
        ]
        for future in made:
            future.result()


def _make_class(folder: Path, files: Sequence[bytes], count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = folder / f"{number:06d}.jpg"
        if not path.exists():
            made = BytesIO()
            _changed(files[number % len(files)], number).save(made, "JPEG", quality=QUALITY)
            path.write_bytes(made.getvalue())


def _changed(data: bytes, seed: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    with Image.open(BytesIO(data), formats=("JPEG", "PNG")) as image:
        picture = image.convert("RGB")
    side = int(min(picture.size) * rng.uniform(0.7, 1.0))
    left, top = (int(rng.integers(0, full - side + 1)) for full in picture.size)
    picture = picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR, (left, top, left + side, top + side))
    picture = ImageOps.mirror(picture) if rng.random() < 0.5 else picture
    return ImageEnhance.Brightness(picture).enhance(float(rng.uniform(0.8, 1.2)))


def searched(line: Sequence[str], log: Path, group: Path | None = None) -> dict[str, Any]:
    """Run `nas search`, in the control group where one is named.

    Tells its exit code, its seconds and the largest private memory of all its processes.
    """
    began, largest, alone = time.monotonic(), 0, 0
    with log.open("w", encoding="utf-8") as file:
        command = [sys.executable, "-m", "nas", *line]
        if group is not None:  # a process that puts itself there before it becomes the search
            command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *command]
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        while process.poll() is None:
            held = _private_bytes(process.pid)
            largest, alone = max(largest, sum(held)), max(alone, *held, 0)
            time.sleep(LOOK_S)
    return {
        "exit_code": process.returncode,
        "seconds": round(time.monotonic() - began, 1),
        "private_bytes": largest,
        "private_bytes_of_one_process": alone,
    }


def _private_bytes(pid: int) -> list[int]:
    found = []
    with suppress(psutil.Error):
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            with suppress(psutil.Error, OSError):
                found.append(_anonymous_bytes(process.pid))
    return found


def _anonymous_bytes(pid: int) -> int:
    """Memory of a process that no file holds; of what it shares with processes that were forked, its share."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def images_per_s(data: ImageData, side: int, epochs: int) -> list[float]:
    """Images that one network is trained on in a second, of each epoch but the first."""
    space = load_search_space("compact").restrict("resolution", [side])
    arch = space.anchors[0]
    network = space.build(arch, data.output_size)
    task = Classification()
    recipe = task.recipe(epochs=epochs)
    examples = examples_of(data, space.signature(arch, data.output_size).input)
    objective = task.objective(network, examples, recipe, device=torch.device("cpu"))
    times = [time.perf_counter()]
    train(
        network, objective, recipe, device="cpu", validates="last",
        callback=lambda *_: times.append(time.perf_counter()),
    )  # fmt: skip
    return [len(examples.train) / (b - a) for a, b in pairwise(times[1:])]


def throughput(folder: Path, side: int, rounds: int) -> dict[str, Any]:
    """One training from the store and from an array of the same images, in turn."""
    found: dict[str, list[float]] = {"store": [], "array": []}
    for share, name in ((0.0, "store"), (1.0, "array")) * rounds:
        store.MEMORY_SHARE = share
        data = load_dataset(str(folder))
        assert isinstance(data.train.images, StoredImages) is (name == "store")
        found[name] += images_per_s(data, side, 3)
    rates = {name: median(each) for name, each in found.items()}
    return {"images_per_s": found, "median": rates, "ratio": rates["store"] / rates["array"]}


@click.command()
@click.option("--from", "source", type=click.Path(exists=True, path_type=Path), required=True, help="Real images.")
@click.option("--images", default=120_000, show_default=True)
@click.option("--work", type=click.Path(path_type=Path), default="runs/large", show_default=True)
@click.option("--budget", type=Seconds(), default="15m", show_default=True)
@click.option("--latency-ms", default=2.0, show_default=True)
@click.option("--workers", default=1, show_default=True)
@click.option("--max-resolution", type=int, help="As of `nas search`.")
@click.option("--group", type=click.Path(exists=True, path_type=Path), help="Control group to put the search into.")
@click.option("--throughput", "timed", type=int, help="Time trainings on so many images instead of searching.")
@click.option("--side", default=128, show_default=True, help="Of the images of these trainings.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the figures here.")
def main(
    source: Path, images: int, work: Path, budget: float, latency_ms: float, workers: int, max_resolution: int | None,
    group: Path | None, timed: int | None, side: int, out: Path | None,
) -> None:  # fmt: skip
    """Search where data do not fit into memory, or time trainings on them."""
    count = images if timed is None else timed
    folder = work / f"images-{count}"
    began = time.monotonic()
    make_images(source, folder, count)
    found: dict[str, Any] = {
        "host": fingerprint().cpu_model, "threads": usable_threads(), "memory_bytes": memory_bytes(),
        "images": count, "making_s": round(time.monotonic() - began, 1),
    }  # fmt: skip
    if timed is not None:
        found |= throughput(folder, side, 3)
    else:
        run = work / f"run-{workers}"
        line = ["search", "--target", "local", "--data", str(folder), "--latency-ms", f"{latency_ms:g}"]
        line += ["--budget", f"{budget:g}s", "--workers", str(workers), "--out", str(run)]
        line += [] if max_resolution is None else ["--max-resolution", str(max_resolution)]
        found |= {"command": " ".join(["nas", *line]), **searched(line, work / f"run-{workers}.log", group)}
        if (run / "result.json").exists():
            document = json.loads((run / "result.json").read_text("utf-8"))
            found |= {"best": [b["accuracy"] for b in document["best"]], "stages_s": document["seconds"]}
    text = json.dumps(found, indent=2)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
