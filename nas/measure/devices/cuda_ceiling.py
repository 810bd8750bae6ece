"""What a CUDA device reaches at best: a large product, and a copy within its memory, both timed by its events."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nas.measure.devices.cuda_library import CudaLibrary

if TYPE_CHECKING:
    import torch

SIDE, COPIED_BYTES = 8192, 2**30
"""Rows and columns of the multiplied matrices; bytes that are copied, far more than any cache holds."""
REPEATS, ROUNDS = 10, 5
"""Calls between two events; pairs of events, the fastest of which counts."""


def cuda_ceiling(
    library: CudaLibrary, dtype: "torch.dtype", *, side: int = SIDE, copied_bytes: int = COPIED_BYTES
) -> tuple[float, float]:
    """(1e9 multiply-accumulates per second of a product of two `side` x `side` matrices of `dtype`, 1e9 bytes read and
    written per second by a copy)."""
    import torch

    where = library.tensors_on
    with torch.inference_mode():
        first, second = (torch.randn(side, side, device=where).to(dtype) for _ in range(2))
        out = torch.empty_like(first)
        product_ms = fastest_ms(library, lambda: torch.mm(first, second, out=out))
        source = torch.zeros(copied_bytes, dtype=torch.uint8, device=where)
        target = torch.empty_like(source)
        copy_ms = fastest_ms(library, lambda: target.copy_(source))
    return side**3 / (product_ms * 1e6), 2 * copied_bytes / (copy_ms * 1e6)


def fastest_ms(library: CudaLibrary, call: Callable[[], object]) -> float:
    """Milliseconds of the device for one `call`, of the fastest of a few rounds; a first call is not timed."""
    call()
    found = []
    for _ in range(ROUNDS):
        begin, end = library.event(), library.event()
        library.synchronise()
        library.queue()
        begin.record()
        for _ in range(REPEATS):
            call()
        end.record()
        library.synchronise()
        found.append(begin.elapsed_time(end) / REPEATS)
    return min(found)
