"""The network that was brought is judged: how its input was normalised, and whether it knows the classes at all."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nas.baseline.teacher import evaluated_teacher, guessing_bound, torch_outputs
from nas.data import ImageData
from nas.data.images import Preprocess, image_input
from nas.errors import UserError
from nas.networks.reference import Reference, load_reference
from nas.tasks.classification.data.registry import load_dataset
from nas.tasks.images import USUAL_PREPROCESS
from tests.nas.baseline.conftest import SIDE


@pytest.fixture(scope="module")
def digits() -> ImageData:
    return load_dataset("digits")


@pytest.fixture(scope="module")
def reference(teacher: Path, digits: ImageData) -> Reference:
    return load_reference(str(teacher), digits, image_input(SIDE))


def test_what_its_files_say_of_the_input_is_used(reference: Reference, digits: ImageData) -> None:
    assert reference.preprocess == digits.preprocess
    found = evaluated_teacher(reference, digits.with_preprocess(Preprocess((0.9,) * 3, (0.1,) * 3)))
    assert found.data.preprocess == digits.preprocess
    assert found.accuracy == found.hits.mean() > 0.8
    assert found.notes == ()


def test_where_nothing_says_the_usual_ones_are_tried_and_told(teacher: Path, digits: ImageData, tmp_path: Path) -> None:
    shutil.copytree(teacher, tmp_path / "bare")
    (tmp_path / "bare" / "preprocess.json").unlink()
    bare = load_reference(str(tmp_path / "bare"), digits, image_input(SIDE))
    assert bare.preprocess is None
    found = evaluated_teacher(bare, digits)
    (note,) = found.notes
    assert "nothing says how the baseline's input was normalised" in note
    assert all(name in note for name in USUAL_PREPROCESS)
    shares = [evaluated_teacher(replace(bare, preprocess=p), digits).accuracy for p in (digits.preprocess,)]
    assert found.accuracy >= max(shares)


def test_a_network_that_guesses_is_refused(reference: Reference, digits: ImageData) -> None:
    class Rolled(torch.nn.Module):
        """Classes in another order."""

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = reference.network(inputs)
            return logits.roll(3, dims=1)

    with pytest.raises(UserError, match="about as often as guessing") as caught:
        evaluated_teacher(replace(reference, network=Rolled()), digits)
    assert "normalisations tried" in str(caught.value.hint)


@pytest.mark.parametrize(("classes", "examples", "bound"), [(2, 400, 0.575), (10, 10_000, 0.109), (1000, 50, 0.0144)])
def test_to_guess_is_judged_by_classes_and_examples(classes: int, examples: int, bound: float) -> None:
    assert guessing_bound(classes, examples) == pytest.approx(bound, abs=1e-3)


def test_outputs_are_those_of_all_examples_in_order(reference: Reference, digits: ImageData) -> None:
    outputs = torch_outputs(reference, digits)
    split = digits.for_input("val", image_input(SIDE))
    with torch.no_grad():
        expected = reference.network(torch.from_numpy(digits.inputs(split))).numpy()
    torch.testing.assert_close(torch.from_numpy(outputs), torch.from_numpy(expected), rtol=1e-4, atol=1e-4)
