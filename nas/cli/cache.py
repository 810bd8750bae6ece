"""`nas cache`."""

import json
from typing import TYPE_CHECKING, Any

import click

from nas.text import memory_size

if TYPE_CHECKING:
    from nas.data.store import Entry


@click.command(short_help="List or remove decoded images on disk.")
@click.option("--verify", is_flag=True, help="Read everything and compare it with its checksums.")
@click.option("--clear", is_flag=True, help="Remove everything that is listed.")
@click.option("--remove", "keys", multiple=True, metavar="KEY", help="Remove this entry (repeatable).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def cache(verify: bool, clear: bool, keys: tuple[str, ...], as_json: bool) -> None:
    """List what searches stored on disk: images of data sets that do not fit into memory, decoded once.

    All of it can be made again from the data. Profiles and downloads are not touched.

    \b
    Example:
      nas cache --clear
    """
    from nas.data.store import damaged_parts, entries, remove, store_folder
    from nas.errors import UnknownNameError, UserError

    if clear and keys:
        raise UserError("--clear removes everything, --remove names what to remove", "give one of them")
    found = {entry.folder.name: entry for entry in entries()}
    unknown = next((key for key in keys if key not in found), None)
    if unknown is not None:
        raise UnknownNameError("entry of the cache", unknown, found)
    removed = list(found) if clear else list(dict.fromkeys(keys))
    damaged = {key: damaged_parts(entry) for key, entry in found.items() if verify and key not in removed}
    rows = [_row(entry, damaged.get(key), key in removed) for key, entry in found.items()]
    for key in removed:
        remove(found[key])
    if as_json:
        click.echo(json.dumps({"folder": str(store_folder()), "entries": rows}, indent=2))
        return
    for row in rows:
        click.echo(_line(row))
    kept, gone = (sum(row["bytes"] for row in rows if row["removed"] is flag) for flag in (False, True))
    click.echo(
        f"{memory_size(kept)} in {store_folder()}" + (f", {memory_size(gone)} removed" if removed else "")
        if rows
        else f"nothing is stored in {store_folder()}"
    )


def _row(entry: "Entry", damaged: int | None, removed: bool) -> dict[str, Any]:
    wanted = entry.wanted
    return {
        "key": entry.folder.name,
        "source": wanted.source,
        "images": wanted.images,
        "side": wanted.side,
        "bytes": wanted.bytes,
        "whole": entry.whole,
        "damaged_parts": damaged,
        "removed": removed,
    }


def _line(row: dict[str, Any]) -> str:
    state = [] if row["whole"] else ["not finished"]
    if row["damaged_parts"] is not None:
        state.append(
            f"{row['damaged_parts']} parts damaged, made again when used" if row["damaged_parts"] else "intact"
        )
    if row["removed"]:
        state.append("removed")
    text = (
        f"{row['key']}  {memory_size(row['bytes']):>9}  {row['images']} images of {row['side']} px from {row['source']}"
    )
    return text + (f" ({', '.join(state)})" if state else "")
