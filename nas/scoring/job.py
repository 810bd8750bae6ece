"""The folder of a job over many images, beside its output: what the job is, and the parts that are done.

A part holds the rows of a fixed piece of the listing. It is written under another name, synchronised with the disk and
renamed, so that what has its name is whole; its name and its bytes depend on the job alone. So whoever writes it, and
however often, the effect is that of writing it once.
"""

import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.bundles.receipt import Receipt, versions
from nas.errors import UserError
from nas.files.folders import LOCK, check_writable, locked
from nas.files.writing import sha256_of, staged_file, write_json, write_whole
from nas.networks.find import RECEIPT
from nas.scoring.listing import Listing
from nas.scoring.rows import schema

if TYPE_CHECKING:
    import pyarrow as pa

PART_ROWS = 512
"""Most images of a part: what a kill costs each worker."""
LEAST_ROWS = 16
PARTS_WANTED = 64
"""Small jobs have smaller parts, so that all cores have something to do until the end."""
GROUP_PARTS = 64
"""Parts that become one row group of the output."""
JOB, METADATA = "job.json", b"nas.job"
"""File of a job's folder that says what it is; key under which its output does."""
PACKAGES = ("nas", "numpy", "pillow")
"""What the answers depend on, beside the bundle's runtime."""
_MEANING = {"bundle": "another bundle", "top": "another --top", "versions": "other versions of the libraries"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a job's rows depend on: two jobs with equal identities make the same bytes."""

    bundle: str
    """Checksum of its receipt, which holds those of its files."""
    images: str
    """Checksum of the listing."""
    count: int
    folder: str
    """As typed: rows begin with it."""
    top: int
    versions: Mapping[str, str]

    @property
    def job(self) -> str:
        """The identity in one word."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def difference(self, other: Mapping[str, Any]) -> str | None:
        """What another job has that this one has not, in words; None where they are one job."""
        ours = asdict(self)
        for name, what in _MEANING.items():
            if other.get(name) != ours[name]:
                return what
        if other.get("folder") != self.folder:
            return f"the folder '{other.get('folder')}'"
        if other.get("images") != self.images:
            return f"other images ({other.get('count')} instead of {self.count}, or changed ones)"
        return None


def identity_of(bundle: Path, receipt: Receipt, listing: Listing, top: int) -> Identity:
    """The identity of scoring `listing` with `bundle` on this machine."""
    known = versions()
    wanted = (*PACKAGES, receipt.deployment.runtime)
    return Identity(
        bundle=sha256_of(bundle / RECEIPT),
        images=listing.sha256,
        count=len(listing.entries),
        folder=os.fsencode(listing.folder).decode("utf-8", "backslashreplace"),
        top=top,
        versions={name: known[name] for name in wanted if name in known},
    )


@dataclass(frozen=True, slots=True)
class Job:
    """A job whose folder this process alone works in."""

    out: Path
    """The Parquet file that all is for."""
    folder: Path
    identity: Identity

    @property
    def rows(self) -> int:
        """Images of a part."""
        return min(PART_ROWS, max(LEAST_ROWS, -(-self.identity.count // PARTS_WANTED)))

    def ranges(self) -> list[tuple[int, int]]:
        """First entry and the one behind the last of each part."""
        count = self.identity.count
        return [(start, min(start + self.rows, count)) for start in range(0, count, self.rows)]

    def part(self, number: int) -> Path:
        return self.folder / f"{self.identity.job[:12]}-{number:07d}.parquet"

    def finished(self) -> set[int]:
        """Numbers of the parts that are there; what is damaged is removed."""
        found = set()
        for number, (start, stop) in enumerate(self.ranges()):
            path = self.part(number)
            if path.exists():
                if _rows_in(path) == stop - start:
                    found.add(number)
                else:
                    path.unlink()
        return found

    def join(self) -> None:
        """Write all parts, which are there, into the output, in order, and then remove them."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        described = schema().with_metadata({METADATA: json.dumps(asdict(self.identity), sort_keys=True)})
        numbers = range(len(self.ranges()))
        errors: list[tuple[str, str]] = []
        with staged_file(self.out) as staged:
            with pq.ParquetWriter(staged, described) as writer:
                for start in numbers[::GROUP_PARTS]:
                    parts = [pq.read_table(self.part(k)) for k in numbers[start : start + GROUP_PARTS]]
                    table = pa.concat_tables(parts).cast(described)
                    errors += _errors_of(table)
                    writer.write_table(table, row_group_size=len(table))
            _synchronise(staged)
            _write_errors(errors_path(self.out), errors)
        _synchronise(self.out.parent)  # the name, too, before the parts go
        self.clear()

    def clear(self) -> None:
        """Remove all parts."""
        for path in self.folder.iterdir():
            if path.name != LOCK:
                path.unlink()


def errors_path(out: Path) -> Path:
    """The list of images without an answer, beside the output."""
    return out.with_suffix(".errors.csv")


@contextmanager
def open_job(out: Path, identity: Identity, *, restart: bool = False) -> Iterator[Job | None]:
    """The job that makes `out`, begun or gone on with; None where `out` is what it makes already.

    Raises:
        UserError: another process is at it; it was begun with another bundle or other images, or `out` is something
            else (unless `restart`); or it cannot be written.
    """
    if out.suffix != ".parquet":
        raise UserError(f"the output '{out}' is no .parquet file", "give --out predictions.parquet")
    if out.is_dir():
        raise UserError(f"the output '{out}' is a folder", "give the name of a file that is to be written")
    check_writable(out.parent)
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = out.with_name(out.name + ".parts")
    with _held(folder):
        job = Job(out, folder, identity)
        try:
            begun = _read_json(folder / JOB)
            if restart:
                job.clear()
                begun = None
            elif begun is not None and (why := identity.difference(begun)) is not None:
                raise UserError(f"'{folder}' holds a job that was begun with {why}", _HINT)
            if begun is None and not restart and out.exists():
                why = _why_other(out, identity)
                if why is not None:
                    raise UserError(f"'{out}' is there already: {why}", _HINT)
                job.clear()
                yield None
                return
            write_json(folder / JOB, asdict(identity))
            yield job
        finally:
            _remove_if_empty(folder)


_ATTEMPTS = 100
_HINT = "give the same bundle and images, another --out, or --restart to begin anew"


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Make `folder`, and keep other processes out of it."""
    with ExitStack() as stack:
        for attempt in range(_ATTEMPTS):
            folder.mkdir(exist_ok=True)
            try:
                stack.enter_context(locked(folder))
                break
            except FileNotFoundError:  # whoever had it has just removed it
                if attempt == _ATTEMPTS - 1:
                    raise
        yield


def _remove_if_empty(folder: Path) -> None:
    """Remove a folder in which there is nothing but the lock, which this process holds."""
    if all(path.name == LOCK for path in folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)


def _why_other(out: Path, identity: Identity) -> str | None:
    """Why `out` is not what the job makes, in words; None where it is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        known = (pq.read_schema(out).metadata or {}).get(METADATA)
    except (pa.ArrowInvalid, OSError):
        known = None
    if known is None:
        return "it was not written by `nas predict`"
    difference = identity.difference(json.loads(known))
    return None if difference is None else f"it was made with {difference}"


def _rows_in(path: Path) -> int | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        count: int = pq.read_metadata(path).num_rows
    except (pa.ArrowInvalid, OSError):
        return None
    return count


def _errors_of(table: "pa.Table") -> list[tuple[str, str]]:
    bad = table.filter(table["error"].is_valid())
    return list(zip(bad["path"].to_pylist(), bad["error"].to_pylist(), strict=True))


def _write_errors(path: Path, errors: list[tuple[str, str]]) -> None:
    """The list of errors; none where there are none."""
    if not errors:
        path.unlink(missing_ok=True)
        return
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("path", "error"), *errors])
    write_whole(path, text.getvalue().encode())


def _read_json(path: Path) -> Mapping[str, Any] | None:
    try:
        document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:  # no file of ours is ever half written
        return {}
    return document


def _synchronise(path: Path) -> None:
    """Have the disk hold a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
