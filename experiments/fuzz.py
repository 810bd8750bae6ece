"""Gives the product's readers thousands of damaged and hostile files: each has to be read or refused in one sentence.

`python -m experiments.fuzz --out runs/fuzz` makes 10,000 mutations of images, folders, archives, arrays, COCO json,
YOLO and VOC annotations, recipes, tables of spaces, profiles, results of kits, bundles, networks, ONNX files and
records of runs. A mutation is made of the seed and its number alone: `--only 1234` makes that one again and prints what
came of it.

They are read in a process of its own, which is ended where one takes more than 30 seconds or kills it; what is counted
are tracebacks, hangs, crashes, and anything written, started or connected to outside the mutation's folder. Exit code 1
where there is any; the figures go to `fuzz.json` in the folder.
"""

import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click

from experiments.fuzzing.readers import READERS
from experiments.fuzzing.trial import SLOW_S, Finding, Trials


def _serve(connection: Connection, folder: Path, seed: int, names: tuple[str, ...]) -> None:
    """In the reading process: runs the mutations whose numbers come in."""
    import torch

    torch.set_num_threads(1)
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 (as long as the process lives)
    trials = Trials(folder, seed, names)
    while True:
        number = connection.recv()
        if number is None:
            return
        connection.send(trials.run(number))


def findings(folder: Path, seed: int, names: tuple[str, ...], numbers: range) -> Iterator[Finding]:
    """What became of each mutation; a process that hangs or dies is replaced."""
    context = multiprocessing.get_context("spawn")
    kinds = Trials(folder, seed, names)
    process, connection = None, None
    for number in numbers:
        if process is None or not process.is_alive():
            connection, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, folder, seed, names), daemon=True)
            process.start()
            theirs.close()
        assert connection is not None
        connection.send(number)
        start = time.monotonic()
        try:
            answered = connection.poll(4 * SLOW_S)  # the first one of a kind makes its samples
            found = connection.recv() if answered else None
        except (EOFError, ConnectionResetError):
            found, answered = None, True
        if found is None:
            process.kill()
            process.join()
            kind = "crash" if answered else "hang"
            seconds = time.monotonic() - start
            found = Finding(number=number, reader=kinds.reader_of(number), changed="?", answer=kind, seconds=seconds)
        yield found
    if process is not None and process.is_alive() and connection is not None:
        connection.send(None)
        process.join()


def summary(found: list[Finding], seed: int) -> dict[str, Any]:
    """Counts by kind of file and answer, and every defect."""
    kinds = {}
    for name in sorted({f.reader for f in found}):
        of_kind = [f for f in found if f.reader == name]
        answers = Counter(f.answer for f in of_kind)
        kinds[name] = {**answers, "slowest_s": round(max(f.seconds for f in of_kind), 2)}
    return {
        "seed": seed,
        "mutations": len(found),
        "defects": sum(f.is_defect for f in found),
        "kinds": kinds,
        "found": [asdict(f) for f in found if f.is_defect],
    }


@click.command(help=__doc__.split("\n")[0])
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for samples and figures.")
@click.option("--mutations", type=click.IntRange(min=1), default=10_000, show_default=True)
@click.option("--first", type=click.IntRange(min=0), default=0, show_default=True, help="Number of the first one.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--only", type=click.IntRange(min=0), help="One mutation, in this process, with its whole detail.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(READERS)), help="Only these (repeatable).")
def main(out: Path, mutations: int, first: int, seed: int, only: int | None, kinds: tuple[str, ...]) -> None:
    folder, names = out.absolute(), kinds or tuple(READERS)
    folder.mkdir(parents=True, exist_ok=True)
    if only is not None:
        found = Trials(folder, seed, names).run(only)
        click.echo(f"{found.reader}, changed {found.changed}: {found.answer}\n{found.detail}")
        sys.exit(found.is_defect)
    every: list[Finding] = []
    for found in findings(folder, seed, names, range(first, first + mutations)):
        every.append(found)
        if found.is_defect:
            last = found.detail.strip().splitlines()[-1] if found.detail.strip() else ""
            click.echo(f"{found.number} {found.reader} ({found.changed}): {found.answer} {last}", err=True)
        if len(every) % 500 == 0:
            click.echo(f"{len(every)} done, {sum(f.is_defect for f in every)} defects", err=True)
    document = summary(every, seed)
    (folder / "fuzz.json").write_text(json.dumps(document, indent=1))
    click.echo(json.dumps({**document, "found": len(document["found"])}, indent=1))
    sys.exit(bool(document["defects"]))


if __name__ == "__main__":
    main()
