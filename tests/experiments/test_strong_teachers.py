import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

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


def test_a_training_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "mobilenet_v3_large"
    monkeypatch.setitem(cast("dict[str, Teacher]", TEACHERS), name, replace(TEACHERS[name], batch=32))
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 64).astype(np.uint8)
    images = np.repeat(labels * 200, 16 * 16 * 3).reshape(-1, 16, 16, 3).astype(np.uint8)
    data = {"x_train": images, "y_train": labels, "x_val": images[:64], "y_val": labels[:64]}
    network = train(name, data, 0.01, "cpu", 0)
    found = accuracy(network, torch.from_numpy(images), torch.from_numpy(labels).long(), 64)
    assert 0.0 <= found <= 1.0
