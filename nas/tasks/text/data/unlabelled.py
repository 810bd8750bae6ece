"""Texts that nobody labelled: a teacher does."""

from pathlib import Path

from nas.errors import UserError
from nas.tasks.text.data.tables import MAX_ROWS, SUFFIXES, is_table, read_table

_HINT = f"give a file of texts, one in each line (.txt), a table ({', '.join(SUFFIXES)}) or a folder of .txt files"


def read_unlabelled(name: str) -> list[str]:
    """The texts of a `.txt` file (one in each line), of a table's column of texts, or of all `.txt` files of a folder
    and its sub-folders; without empty ones.

    Raises:
        UserError: it cannot be read, or holds no text.
    """
    path = Path(name).expanduser()
    try:
        if path.is_dir():
            texts = [file.read_text(encoding="utf-8-sig") for file in sorted(path.rglob("*.txt"))]
        elif path.is_file() and is_table(path):
            texts = [_text(row[0], number, path) for number, row in enumerate(read_table(path, labels=False)[0], 1)]
        elif path.is_file() and path.suffix.lower() == ".txt":
            texts = path.read_text(encoding="utf-8-sig").splitlines()
        elif path.exists():
            raise UserError(f"'{path}' is no file of texts", _HINT)
        else:
            raise UserError(f"there is no file or folder '{path}'", _HINT)
    except UnicodeDecodeError as error:
        raise UserError(f"'{path}' holds what is not text in UTF-8 (byte {error.start})", "save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror or error}", _HINT) from error
    found = [text for text in texts if text.strip()]
    if not found:
        raise UserError(f"there are no texts in '{path}'", _HINT)
    if len(found) > MAX_ROWS:
        raise UserError(f"'{path}' has more than {MAX_ROWS:,} texts", "give a sample of them: memory would not suffice")
    return found


def _text(value: object, number: int, path: Path) -> str:
    if value is not None and not isinstance(value, str):
        raise UserError(f"the text of row {number} of '{path}' is a {type(value).__name__}", "give texts as strings")
    return value or ""
