import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from nas.data.images import Preprocess
from nas.errors import UserError
from nas.tasks.detection.data import DetectionSplit
from nas.tasks.detection.evaluate import found_by, found_in_runtime, metrics_in_runtime, metrics_of
from tests.nas.tasks.detection.oracle import apart, boxes, raw_saying

RESOLUTION, CLASSES = 64, 3
AS_IS = Preprocess((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def _split(images: int) -> DetectionSplit:
    """Each image has its number as colour; the third has no boxes."""
    rng = np.random.default_rng(0)
    truth = [boxes([]) if i == 2 else apart(rng, 4, RESOLUTION, CLASSES) for i in range(images)]
    colours = np.arange(images, dtype=np.uint8)[:, None, None, None]
    pixels = np.broadcast_to(colours, (images, RESOLUTION, RESOLUTION, 3)).copy()
    return DetectionSplit(pixels, tuple(truth), np.full((images, 2), RESOLUTION))


class Oracle(nn.Module):
    """Looks up what is in the image whose number is its colour."""

    head_kind = "anchor-free"
    answers: torch.Tensor

    def __init__(self, split: DetectionSplit) -> None:
        super().__init__()
        answers = [raw_saying(truth, RESOLUTION, CLASSES) for truth in split.boxes]
        self.register_buffer("answers", torch.from_numpy(np.stack(answers)))
        self.batches: list[int] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.batches.append(len(images))
        return self.answers[(images[:, 0, 0, 0] * 255).round().long()]

    def run(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        return self(torch.from_numpy(images)).numpy()  # type: ignore[no-any-return]


@pytest.fixture
def split() -> DetectionSplit:
    return _split(7)


@pytest.fixture
def oracle(split: DetectionSplit) -> Oracle:
    return Oracle(split)


@pytest.mark.parametrize("batch", [1, 3, 16])
def test_a_network_that_knows_everything_has_all_points(split: DetectionSplit, oracle: Oracle, batch: int) -> None:
    in_torch = metrics_of(oracle.train(), split, AS_IS, batch_size=batch, device="cpu")
    assert not oracle.training
    assert in_torch.map50 == in_torch.map50_95 == 1
    oracle.batches.clear()
    assert metrics_in_runtime(oracle.run, split, AS_IS, head_kind="anchor-free", batch=batch) == in_torch
    assert set(oracle.batches) == {batch}, "exported files may have a fixed batch"


def test_what_is_found_is_given_image_by_image(split: DetectionSplit, oracle: Oracle) -> None:
    found, classes = found_by(oracle, split, AS_IS, device="cpu")
    again, _ = found_in_runtime(oracle.run, split, AS_IS, head_kind="anchor-free", batch=4)
    assert classes == CLASSES
    assert [len(f) for f in found] == [len(truth) for truth in split.boxes]
    for here, there in zip(found, again, strict=True):
        np.testing.assert_array_equal(here.xyxy, there.xyxy)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_an_output_that_is_not_finite_finds_nothing(split: DetectionSplit, oracle: Oracle, value: float) -> None:
    oracle.answers[1, 5, 2] = value  # of a cell that says nothing
    found, _ = found_by(oracle, split, AS_IS, device="cpu")
    assert [len(f) for f in found] == [0 if i == 1 else len(truth) for i, truth in enumerate(split.boxes)]
    result = metrics_of(oracle, split, AS_IS, device="cpu")
    assert result.map50 < 1
    assert metrics_in_runtime(oracle.run, split, AS_IS, head_kind="anchor-free", batch=4) == result


def test_a_split_without_images_or_objects_is_refused(split: DetectionSplit, oracle: Oracle) -> None:
    for nothing, sentence in ((split.take([]), "no images"), (split.take([2]), "none of the 1 images")):
        with pytest.raises(UserError, match=sentence):
            metrics_of(oracle, nothing, AS_IS, device="cpu")
        with pytest.raises(UserError, match=sentence):
            metrics_in_runtime(oracle.run, nothing, AS_IS, head_kind="anchor-free")
