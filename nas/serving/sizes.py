"""The numbers of images per call that a server has its network for, and the files for them."""

from pathlib import Path

from nas.bench.onnx_graph import TOLERANCE, FixedBatchError
from nas.bench.rebatch import INT8_TOLERANCE, rebatched
from nas.bundles.receipt import Receipt


def prepare_sizes(folder: Path, receipt: Receipt, batch: int, out: Path) -> dict[int, Path]:
    """Files of a bundle's network for 1, 2, 4, ... and `batch` images per call, new ones in the folder `out`.

    A network whose file holds its batch inside is left with that one.
    """
    delivered, deployment = folder / receipt.model, receipt.deployment
    files = {deployment.batch: delivered}
    tolerance = INT8_TOLERANCE if deployment.computes_in == "int8" else TOLERANCE
    for size in sizes_up_to(batch):
        if size in files:
            continue
        if deployment.runtime == "torch":  # whose networks take any number
            files[size] = delivered
            continue
        name = out / f"{delivered.stem}.b{size}{'.xml' if deployment.runtime == 'openvino' else delivered.suffix}"
        try:
            files[size] = rebatched(delivered, size, receipt.signature.input, name, tolerance)
        except FixedBatchError:
            return {deployment.batch: delivered}
    # A delivered batch beyond the one asked for is not used where there are others.
    return {size: path for size, path in files.items() if size <= batch} or files


def sizes_up_to(batch: int) -> list[int]:
    """1, 2, 4, ... up to `batch`, and `batch` itself: a call is filled up to the next of them."""
    powers = [1 << k for k in range(batch.bit_length()) if 1 << k <= batch]
    return sorted({*powers, batch})
