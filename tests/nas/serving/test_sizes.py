"""The network for several numbers of images per call, in each runtime that has files of its own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nas.bench.onnx_graph import FixedBatchError
from nas.bundles.predictor import Predictor
from nas.bundles.receipt import read_receipt
from nas.runtimes import load_runtime
from nas.serving import sizes
from nas.serving.sizes import prepare_sizes, sizes_up_to

pytestmark = pytest.mark.xdist_group("serving")


def test_sizes_are_powers_of_two_and_the_batch_itself() -> None:
    assert [sizes_up_to(batch) for batch in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_every_size_gives_the_same_outputs(runtime: str, bundles: dict[str, Path], tmp_path: Path) -> None:
    folder = bundles["classification"]
    receipt = read_receipt(folder)
    receipt = replace(receipt, deployment=replace(receipt.deployment, runtime=runtime))
    inputs = receipt.signature.input.draw(np.random.default_rng(0), 6)
    expected = Predictor.open(folder).run(inputs)
    files = prepare_sizes(folder, receipt, 6, tmp_path)
    assert sorted(files) == [1, 2, 4, 6]
    for size, path in files.items():
        session = load_runtime(runtime).load(path, replace(receipt.deployment, batch=size))
        assert session.batch == size
        assert np.allclose(session.run(inputs), expected, atol=1e-3)


def test_a_network_that_holds_its_batch_keeps_it(
    bundles: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, batch: int, *_: object) -> Path:
        raise FixedBatchError(path, batch, "its output keeps its shape")

    monkeypatch.setattr(sizes, "rebatched", refuse)
    receipt = read_receipt(bundles["classification"])
    assert list(prepare_sizes(bundles["classification"], receipt, 8, tmp_path)) == [1]
