"""A folder as a queue: whoever moves an image into it finds its row in another folder, once. Needs no server.

    inbox/NAME                    waits
    inbox/busy/WORKER/NAME        is taken, by a rename, which one worker alone can do
    inbox/done/NAME               is scored, and its row is on the disk
    out/_open/WORKER/000000.jsonl rows of a part that is being filled
    out/WORKER-000000.parquet     rows of a part that is closed

An image is moved to `done` after its row is on the disk. So of what a dead worker has left in `busy`, what has a row in
its open part (the same name and checksum) is done, and all the rest is not: nothing is lost and nothing twice.
"""

import json
import os
import shutil
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

from nas.errors import UserError
from nas.files.folders import check_writable, locked
from nas.files.writing import sha256_of, write_json, write_whole
from nas.scoring.listing import readable
from nas.scoring.rows import Row, row_of_json, schema, table_bytes, table_of
from nas.scoring.scorer import Item

PART_ROWS = 4096
PART_S = 30.0
"""A part is closed when it has so many rows, or when its first one is so old."""
SETTLED_S = 1.0
"""A file that was written to less long ago may still be being written: it waits."""
ADOPT_S = 5.0
"""Seconds between two looks for what dead workers have left."""
_ATTEMPTS = 100
BUSY, DONE, OPEN, ABOUT = "busy", "done", "_open", "_about.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolRow(Row):
    """A row, and the checksum of the file it is of."""

    sha256: str


class Spool:
    """One worker's view of the folders; see `nas.scoring.streaming.Source`. Opened by `open_spool`."""

    def __init__(self, inbox: Path, out: Path, name: str, suffixes: Collection[str] | None) -> None:
        self._inbox, self._out, self._name, self._suffixes = inbox, out, name, suffixes
        self._busy = inbox / BUSY / name
        self._part = _Part(out, name)
        self._sums: dict[str, str] = {}
        """Checksums of the files in `_busy`, by their names."""
        self._adopted: list[str] = []
        """Files in `_busy` that a dead worker has left, and nobody scores yet."""
        self._looked = float("-inf")
        self.seen = 0
        """Files that had been scored before, under the same name."""

    def take(self, most: int) -> list[Item]:
        items: list[Item] = []
        while self._adopted and len(items) < most:
            self._begin(self._adopted.pop(), items)
        for name in self._waiting():
            if len(items) == most:
                break
            with suppress(FileNotFoundError):  # another worker was faster
                os.rename(self._inbox / name, self._busy / name)
                self._begin(name, items)
        return items

    def finish(self, items: Sequence[Item], rows: Sequence[Row]) -> None:
        paths = [Path(str(item.source)) for item in items]
        self._part.append([(row, self._sums[path.name]) for path, row in zip(paths, rows, strict=True)])
        for path in paths:
            self._to_done(path, self._sums.pop(path.name))

    def empty(self) -> bool:
        if not self._adopted:
            self.adopt()
        return not self._adopted and next(self._waiting(settled=False), None) is None

    def look_after(self) -> None:
        if self._part.is_due():
            self._part.close()
        if time.monotonic() - self._looked >= ADOPT_S:
            self.adopt()

    def adopt(self) -> None:
        """Take over what dead workers have left: their parts are closed, and what they had not scored is ours."""
        self._looked = time.monotonic()
        for folder in sorted((self._out / OPEN).iterdir()):
            if folder.name != self._name:
                with suppress(UserError, FileNotFoundError), locked(folder):  # alive, or just taken over
                    self._inherit(folder.name)

    def close(self) -> None:
        """Close the part, and give back what is taken and not scored."""
        self._part.close()
        self._remove(self._name)

    def _begin(self, name: str, items: list[Item]) -> None:
        path = self._busy / name
        sha256 = _sum_of(path)
        if any(done.exists() and _sum_of(done) == sha256 for done in self._done(name, sha256)):
            path.unlink()  # sent once more
            self.seen += 1
        else:
            self._sums[name] = sha256
            items.append(Item(readable(name), str(path)))

    def _waiting(self, settled: bool = True) -> Iterator[str]:
        """Names of files that can be taken, in no order."""
        with os.scandir(self._inbox) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(".") or name in self._sums or not entry.is_file(follow_symlinks=False):
                    continue
                if self._suffixes is not None and os.path.splitext(name)[1].lower() not in self._suffixes:
                    continue
                with suppress(FileNotFoundError):
                    if not settled or abs(time.time() - entry.stat().st_mtime) >= SETTLED_S:
                        yield name

    def _inherit(self, worker: str) -> None:
        """Take over from a dead worker, whose lock is held."""
        known = _Part(self._out, worker)
        scored = {(row.path, row.sha256) for row in known.rows()}
        left = self._inbox / BUSY / worker
        for path in sorted(left.iterdir()) if left.is_dir() else []:
            sha256 = _sum_of(path)
            if (readable(path.name), sha256) in scored:
                self._to_done(path, sha256)
            elif path.name not in self._sums and not (self._busy / path.name).exists():
                os.rename(path, self._busy / path.name)
                self._adopted.append(path.name)
        known.close()
        self._remove(worker)

    def _to_done(self, path: Path, sha256: str) -> None:
        first, second = self._done(path.name, sha256)
        other = first.exists() and _sum_of(first) != sha256
        os.replace(path, second if other else first)

    def _done(self, name: str, sha256: str) -> tuple[Path, Path]:
        """Where a scored file lies: under its name, or, where that is another one's, with a part of its checksum."""
        done = self._inbox / DONE
        stem, suffix = os.path.splitext(name)
        return done / name, done / f"{stem}~{sha256[:12]}{suffix}"

    def _remove(self, worker: str) -> None:
        """Remove the folders of a worker, unless it has something left, which is then for the next look."""
        busy = self._inbox / BUSY / worker
        if busy.is_dir():
            if any(busy.iterdir()):
                return
            busy.rmdir()
        shutil.rmtree(self._out / OPEN / worker, ignore_errors=True)


@dataclass(slots=True)
class _Part:
    """The rows of one worker that are not in a Parquet file yet, and that file."""

    out: Path
    worker: str
    _number: int = 0
    _count: int = 0
    _since: float = 0.0
    _file: IO[bytes] | None = field(default=None, repr=False)

    @property
    def _folder(self) -> Path:
        return self.out / OPEN / self.worker

    def append(self, rows: Sequence[tuple[Row, str]]) -> None:
        """Have the disk hold rows with checksums."""
        if self._file is None:
            self._file = (self._folder / f"{self._number:06d}.jsonl").open("ab")
            self._count, self._since = 0, time.monotonic()
        lines = (json.dumps({**asdict(row), "sha256": sha256}, allow_nan=False) for row, sha256 in rows)
        self._file.write("".join(f"{line}\n" for line in lines).encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._count += len(rows)

    def is_due(self) -> bool:
        return self._file is not None and (self._count >= PART_ROWS or time.monotonic() - self._since >= PART_S)

    def rows(self) -> list[SpoolRow]:
        """All rows of open parts that are whole; those of a name and a checksum once."""
        found: dict[tuple[str, str], SpoolRow] = {}
        for path in sorted(self._folder.glob("*.jsonl")):
            found |= {(row.path, row.sha256): row for row in _rows_of(path)}
        return list(found.values())

    def close(self) -> None:
        """Put what is open into Parquet files; a name and its bytes depend on the open part alone."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._number += 1
        for path in sorted(self._folder.glob("*.jsonl")):
            rows = list({(row.path, row.sha256): row for row in _rows_of(path)}.values())
            if rows:
                closed = self.out / f"{self.worker}-{path.stem}.parquet"
                write_whole(closed, table_bytes(table_of(rows, _columns())), durable=True)
            path.unlink()


def _sum_of(path: Path) -> str:
    """Checksum of a file; nothing where it cannot be read, which its row will say."""
    try:
        return sha256_of(path)
    except OSError:
        return ""


def _columns() -> Any:
    import pyarrow as pa

    return schema().append(pa.field("sha256", pa.string(), nullable=False))


def _rows_of(path: Path) -> list[SpoolRow]:
    """The rows of an open part, without a last one that a kill has cut."""
    found: list[SpoolRow] = []
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            document: dict[str, Any] = json.loads(line)
        except ValueError:
            break
        sha256 = document.pop("sha256")
        found.append(SpoolRow(**{name: getattr(row_of_json(document), name) for name in document}, sha256=sha256))
    return found


@contextmanager
def open_spool(
    inbox: Path, out: Path, about: Mapping[str, Any], suffixes: Collection[str] | None = None
) -> Iterator[Spool]:
    """This process as one more worker of the folders, which are made where they are missing.

    Args:
        inbox: where images are moved into, under their final name, from the same disk.
        out: for rows.
        about: what rows depend on; workers of one `out` have to agree.
        suffixes: of files to take; None: all.

    Raises:
        UserError: a folder cannot be written, or `out` has rows of another bundle.
    """
    if inbox.resolve() == out.resolve():
        raise UserError(f"images and results are both in '{inbox}'", "give another folder as --out")
    for folder in (inbox, out):
        check_writable(folder)
    for folder in (inbox / BUSY, inbox / DONE, out / OPEN):
        folder.mkdir(parents=True, exist_ok=True)
    _check_about(out / ABOUT, about)
    with ExitStack() as stack:
        name = _new_name(out, stack)
        (inbox / BUSY / name).mkdir()
        spool = Spool(inbox, out, name, suffixes)
        spool.adopt()
        yield spool
        spool.close()


def _new_name(out: Path, stack: ExitStack) -> str:
    """A name of its own for this process, whose lock it holds until the end of `stack`."""
    for attempt in range(_ATTEMPTS):
        name = f"{socket.gethostname()}-{os.getpid()}-{token_hex(3)}"
        (out / OPEN / name).mkdir()
        try:
            stack.enter_context(locked(out / OPEN / name))
            break
        except (UserError, FileNotFoundError):  # another worker has looked before we held the lock, and found us dead
            if attempt == _ATTEMPTS - 1:
                raise
    return name


def _check_about(path: Path, about: Mapping[str, Any]) -> None:
    if not path.exists():
        write_json(path, about)
    known = json.loads(path.read_text(encoding="utf-8"))
    if known != about:
        other = next(name for name in about if known.get(name) != about[name])
        raise UserError(f"'{path.parent}' has rows that were made with another {other}", "give another folder as --out")
