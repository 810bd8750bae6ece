import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from experiments.strong_teachers import (
    TEACHERS,
    Teacher,
    accuracy,
    augmented,
    join,
    rate_at,
    ready,
    resnet18,
    train,
    write_parts,
)


def test_views_are_shifted_mirrored_and_have_a_hole() -> None:
    images = torch.arange(1, 1 + 8 * 16 * 16 * 3).remainder(250).add(1).to(torch.uint8).reshape(8, 16, 16, 3)
    views = augmented(images, torch.Generator().manual_seed(0))
    assert views.shape == images.shape
    assert views.dtype == torch.uint8
    for view, image in zip(views, images, strict=True):
        kept = view[view != 0]
        assert 0 < len(kept) < image.numel()
        assert set(kept.tolist()) <= set(image.flatten().tolist())


def test_the_rate_rises_and_falls_to_nothing() -> None:
    assert rate_at(0.0) == rate_at(1.0) == rate_at(1.5) == 0.0
    assert rate_at(0.15) == 1.0


def test_inputs_are_normalised_and_as_large_as_asked_for() -> None:
    found = ready(torch.full((2, 8, 8, 3), 125, dtype=torch.uint8), 16)
    assert found.shape == (2, 3, 16, 16)
    assert found.abs().max() < 0.3


def test_weights_survive_their_parts(tmp_path: Path) -> None:
    network = resnet18(4).eval()
    write_parts(network, tmp_path / "parts" / "resnet18")
    assert len(list((tmp_path / "parts" / "resnet18").iterdir())) > 1
    file = join(tmp_path / "parts" / "resnet18", tmp_path / "out")
    assert set(json.loads((file.parent / "preprocess.json").read_text())) == {"mean", "std"}
    again = resnet18(4).eval()
    again.load_state_dict(load_file(file))
    images = torch.randint(0, 256, (3, 32, 32, 3), dtype=torch.uint8)
    with torch.inference_mode():
        first, second = (n(ready(images, 32)) for n in (network, again))
    torch.testing.assert_close(first, second, rtol=0.02, atol=0.02)


class _Bright(nn.Module):
    """Says 1 of bright images and 0 of dark ones."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        brightness = images.mean((1, 2, 3))
        return torch.stack([-brightness, brightness], 1)


def test_accuracy_counts_right_answers() -> None:
    images = torch.tensor([0, 0, 255, 255], dtype=torch.uint8).view(4, 1, 1, 1).expand(4, 8, 8, 3)
    assert accuracy(_Bright(), images, torch.tensor([0, 0, 1, 1]), 8) == 1.0
    assert accuracy(_Bright(), images, torch.tensor([1, 0, 1, 1]), 8) == 0.75


def test_a_training_ends_with_its_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    name = "mobilenet_v3_large"
    monkeypatch.setitem(cast("dict[str, Teacher]", TEACHERS), name, replace(TEACHERS[name], batch=32))
    labels = np.random.default_rng(0).integers(0, 2, 64).astype(np.uint8)
    images = np.repeat(labels * 200, 16 * 16 * 3).reshape(-1, 16, 16, 3).astype(np.uint8)
    data = {"x_train": images, "y_train": labels, "x_val": images, "y_val": labels}
    torch.manual_seed(0)
    before = TEACHERS[name].build(2)
    after = train(name, data, 0.05, "cpu", 0)
    assert f"{name}: 1 epochs in" in capsys.readouterr().out, "an epoch that has begun is ended, and no other begins"
    assert not all(torch.equal(p, q) for p, q in zip(before.buffers(), after.buffers(), strict=True))
