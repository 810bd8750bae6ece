"""Text and tables as HTML."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def sentence(text: str) -> str:
    """Escaped, with units that stay in the line of their number, and code in back quotes as such."""
    kept = re.sub(r"(?<=\d) (?=%|(?:ms|px|s)\b)", "\N{NO-BREAK SPACE}", text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(kept))


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], *, numeric: Iterable[int], marked: Iterable[int] = ()
) -> str:
    """A table of plain text; the first column heads its row, `numeric` columns align right, `marked` rows stand out."""
    right, bold = set(numeric), set(marked)
    head = "".join(f'<th scope="col"{_n(i in right)}>{escape(h)}</th>' for i, h in enumerate(headings))
    body = []
    for index, row in enumerate(rows):
        first, *rest = (escape(str(cell)) for cell in row)
        first = first.replace("_", "_<wbr>")  # long names may be broken where a table is wide
        cells = "".join(f"<td{_n(i in right)}>{cell}</td>" for i, cell in enumerate(rest, start=1))
        body.append(f'<tr{" class=chosen" * (index in bold)}><th scope="row">{first}</th>{cells}</tr>')
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _n(is_number: bool) -> str:
    return ' class="n"' if is_number else ""
