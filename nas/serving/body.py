"""The body of a request, read within limits on size and time, counted as it comes: an announced length may lie."""

import asyncio

from starlette.requests import Request

from nas.serving.refusal import Refusal

PATIENCE = 4
"""Of a body that is too large up to so many times the limit is read and thrown away: most clients look for an answer
only after they have sent everything, and never see it where the connection is closed meanwhile."""


async def read_body(request: Request, most_bytes: int, most_s: float) -> bytes:
    """The whole body.

    Raises:
        Refusal: it is longer (status 413), takes longer (408), or is compressed (415).
        starlette.requests.ClientDisconnect: the client has gone.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise Refusal(415, f"a body with the content encoding {encoding!r} is not taken")
    if request.headers.get("expect", "").lower() == "100-continue" and _announced(request) > most_bytes:
        raise _too_large(most_bytes)  # the client waits for leave to send it
    chunks: list[bytes] = []
    total = 0
    try:
        async with asyncio.timeout(most_s):
            async for chunk in request.stream():
                total += len(chunk)
                if total <= most_bytes:
                    chunks.append(chunk)
                elif total > PATIENCE * most_bytes:
                    break
                else:
                    chunks.clear()
    except TimeoutError:
        raise Refusal(408, f"the body was not sent within {most_s:g} s") from None
    if total > most_bytes:
        raise _too_large(most_bytes)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _announced(request: Request) -> int:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else 0


def _too_large(most_bytes: int) -> Refusal:
    return Refusal(413, f"the body is longer than {most_bytes} bytes")
