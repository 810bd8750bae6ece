"""Augmentation, schedule, weight averaging, precision, accuracy and batch-norm statistics."""

from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from nas.data import ImageData, ImageSplit
from nas.data.images import image_input
from nas.errors import UserError
from nas.tasks import classification
from nas.tasks.classification.augment import (
    Augmenter,
    _resized_one_by_one,
    _resized_together,
    random_resized_crop,
    random_shift,
    side_at,
)
from nas.tasks.classification.evaluate import accuracy_of, evaluate_accuracy, hits_in_runtime
from nas.training.average import MovingAverage
from nas.training.batch_norm import recalibrate_batch_norm
from nas.training.muon import orthogonal
from nas.training.optimizer import clip_gradients, make_optimizer
from nas.training.precision import Precision
from nas.training.recipe import AugmentationSettings, Crop, OptimizerSettings, SizeStep
from nas.training.schedule import lr_factor
from nas.training.setup import Setup, fastest, step_seconds
from tests.nas.training.conftest import small_network


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_shifts_are_crops_of_the_padded_image() -> None:
    size, pad = 16, 2
    image = torch.arange(size * size, dtype=torch.int64).remainder(251).add(1).to(torch.uint8)
    images = image.reshape(1, size, size, 1).repeat(64, 1, 1, 3)
    padded = nn.functional.pad(images[0, :, :, 0], (pad, pad, pad, pad))
    crops = {
        padded[top : top + size, left : left + size].numpy().tobytes()
        for top in range(2 * pad + 1)
        for left in range(2 * pad + 1)
    }
    shifted = random_shift(images, seeded(), flip=False)
    assert shifted.dtype == torch.uint8
    found = {image[:, :, 0].numpy().tobytes() for image in shifted}
    assert found <= crops
    assert len(found) > 10
    flipped = random_shift(images, seeded(), flip=True)
    mirrored = sum(image[:, :, 0].numpy().tobytes() not in crops for image in flipped)
    assert 16 < mirrored < 48  # half of 64, five standard deviations are 20


def test_resized_crops_zoom_and_stay_in_range() -> None:
    ramp = torch.linspace(0, 255, 64).to(torch.uint8)
    images = ramp[None, None, :, None].expand(128, 64, 64, 3).contiguous()  # brighter to the right
    crops = random_resized_crop(images, seeded(), flip=False)
    assert (crops.shape, crops.dtype) == (images.shape, torch.uint8)
    assert crops.min() >= 0
    assert crops.max() <= 255
    spread = crops[:, 0, -1, 0].float() - crops[:, 0, 0, 0]  # share of the width that was kept
    assert (spread > 0.4 * 255).all()
    assert spread.std() > 10
    mirrored = random_resized_crop(images, seeded(), flip=True)
    assert 32 < int((mirrored[:, 0, -1, 0] < mirrored[:, 0, 0, 0]).sum()) < 96


def test_crops_are_the_same_on_every_device() -> None:
    pixels = torch.linspace(0, 255, 64).to(torch.uint8)
    images = (pixels[:, None] // 2 + pixels[None, :] // 2)[None, :, :, None].expand(32, 64, 64, 3).contiguous()
    draws = torch.rand(4, 32, generator=seeded())
    sides, places = 0.5 + draws[:2] / 2, draws[2:]
    mirrored = torch.arange(32) % 2 == 0
    for side in (64, 48):
        bytewise = _resized_one_by_one(images, *sides, *places, mirrored, side)
        together = _resized_together(images, *sides, *places, mirrored, side)
        assert bytewise.shape == together.shape == (32, side, side, 3)
        # Crops of whole pixels lie up to a pixel (4 grey levels) beside those that are not.
        assert float((bytewise - together).abs().max()) < 6


@pytest.mark.parametrize("crop", ["light", "shift"])
@pytest.mark.parametrize("size", [32, 64])
def test_augmentation_follows_the_generator_only(crop: Crop, size: int) -> None:
    augmenter = Augmenter(AugmentationSettings(crop=crop), 10, flip_ok=True)
    images = torch.randint(0, 256, (8, size, size, 3), dtype=torch.uint8)
    first, second = (augmenter.images(images, seeded(3)) for _ in range(2))
    assert first.shape == images.shape
    assert torch.equal(first, second)
    assert not torch.equal(first, augmenter.images(images, seeded(4)))


def test_shifts_with_mirrored_borders_are_crops_of_the_mirrored_image() -> None:
    size, pad = 16, 3
    images = torch.randint(0, 256, (1, size, size, 3), dtype=torch.uint8)
    planes = images.permute(0, 3, 1, 2).float()
    padded = nn.functional.pad(planes, (pad,) * 4, mode="reflect").permute(0, 2, 3, 1).byte()[0]
    crops = {
        padded[top : top + size, left : left + size].numpy().tobytes()
        for top in range(2 * pad + 1)
        for left in range(2 * pad + 1)
    }
    settings = AugmentationSettings(crop="shift", shift_fraction=pad / size, flip=False)
    shifted = Augmenter(settings, 10, flip_ok=True).images(images.expand(64, -1, -1, -1), seeded())
    found = {image.numpy().tobytes() for image in shifted}
    assert found <= crops
    assert len(found) > 20


@pytest.mark.parametrize("crop", ["none", "light", "shift"])
def test_images_grow_during_a_training(crop: Crop) -> None:
    steps = (SizeStep(until=0.5, scale=0.5), SizeStep(until=0.75, scale=0.8))
    assert [side_at(steps, progress, 128) for progress in (0.0, 0.4, 0.5, 0.7, 0.75, 1.0)] == [64, 64, 96, 96, 128, 128]
    assert [side_at(steps, 0.0, whole) for whole in (28, 32, 48, 64)] == [28, 32, 32, 32]
    ramp = torch.linspace(0, 255, 64).to(torch.uint8)[None, None, :, None].expand(4, 64, 64, 3)
    settings = AugmentationSettings(crop=crop, flip=False, smallest_crop=1.0, shift_fraction=0.0)
    smaller = Augmenter(settings, 10, flip_ok=True).images(ramp, seeded(), 32)
    assert smaller.shape == (4, 32, 32, 3)
    if crop != "light":  # whose crops have another aspect ratio
        wanted = torch.linspace(0, 255, 64).reshape(32, 2).mean(1)
        assert torch.allclose(smaller[0, 5, 1:-1, 0].float(), wanted[1:-1], atol=4)


def test_steps_of_muon_are_orthogonal_and_leave_the_norm_alone() -> None:
    torch.manual_seed(0)
    found = orthogonal(torch.randn(64, 16, 3, 3), parts=4).reshape(4, 16, 144)
    assert all(0.5 < float(value) < 1.3 for part in found for value in torch.linalg.svdvals(part))
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.BatchNorm2d(8),
        nn.Conv2d(8, 4, 1), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    settings = OptimizerSettings(name="muon", lr=0.1, turn_lr=0.05, norm_rate=4, weight_decay=0.01)
    optimizer = make_optimizer(network, settings, 0.2)  # a batch that is twice as large
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    turned = 0.05 * 2**0.5
    expected = [turned, 0.8, 0.8, turned, 0.8, 0.8, 0.2, 0.2, 0.2, 0.2]
    assert [rates[id(p)] for p in network.parameters()] == pytest.approx(expected)
    plain = torch.optim.SGD([network[6].weight], 0.2, momentum=0.9, nesterov=True, weight_decay=0.01)
    copied = network[6].weight.detach().clone()
    for _ in range(2):
        optimizer.zero_grad()
        network(torch.randn(8, 3, 8, 8)).square().mean().backward()
        before, gradient = network[0].weight.detach().clone(), network[6].weight.grad.clone()
        optimizer.step()
        step = network[0].weight - before * 8**0.5 / before.norm()
        assert float(step.detach().norm()) == pytest.approx(turned * 8**0.5, rel=0.3)
        # A linear layer is stepped as torch does it.
        after, network[6].weight.data = network[6].weight.detach().clone(), copied
        network[6].weight.grad = gradient
        plain.step()
        copied = network[6].weight.detach().clone()
        assert torch.allclose(after, copied, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "products"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.bfloat16)]
)
def test_muon_multiplies_in_what_its_processor_trains_in(
    precision: Precision, products: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps are the same but for their rounding."""
    seen: list[torch.dtype] = []

    def watched(update: torch.Tensor, parts: int, dtype: torch.dtype) -> torch.Tensor:
        seen.append(dtype)
        return orthogonal(update, parts, dtype)

    torch.manual_seed(0)
    gradient = torch.randn(16, 8, 3, 3)
    assert torch.allclose(orthogonal(gradient, 1, products), orthogonal(gradient, 1, torch.float64), atol=0.02)
    monkeypatch.setattr("nas.training.muon.orthogonal", watched)
    network = nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16))
    optimizer = make_optimizer(network, OptimizerSettings(name="muon"), 0.05, precision=precision)
    network(torch.randn(4, 8, 8, 8)).square().mean().backward()
    optimizer.step()
    assert seen == [products]


def test_schedule_rises_then_falls_to_zero() -> None:
    values = [lr_factor(p, 0.2) for p in np.linspace(0, 1, 101)]
    peak = int(np.argmax(values))
    assert values[0] == pytest.approx(0.05)
    assert peak == 20
    assert values[peak] == pytest.approx(1)
    assert values[-1] == pytest.approx(0)
    assert np.all(np.diff(values[:peak]) > 0)
    assert np.all(np.diff(values[peak:]) < 0)
    assert lr_factor(0, 0) == 1


@pytest.mark.parametrize("largest", [0.5, 1e6])
def test_gradients_are_clipped_as_torch_does(largest: float) -> None:
    mine, theirs = small_network(), small_network()
    for network in (mine, theirs):
        network.eval()(torch.ones(2, 3, 32, 32)).square().sum().mul(100).backward()
    clip_gradients(mine.parameters(), largest)
    nn.utils.clip_grad_norm_(theirs.parameters(), largest)
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.allclose(one.grad, other.grad, rtol=1e-5, atol=0)
    clip_gradients([nn.Parameter(torch.ones(1))], largest)  # nothing to clip


@pytest.mark.parametrize("name", ["sgd", "adamw"])
@pytest.mark.parametrize("fused", [False, True])
def test_no_weight_decay_on_norms_and_biases(name: Literal["sgd", "adamw"], fused: bool) -> None:
    network = small_network()
    optimizer = make_optimizer(network, OptimizerSettings(name=name, fused=fused), 0.1)
    assert all(bool(group.get("fused")) == fused for group in optimizer.param_groups)
    decayed = {id(p) for g in optimizer.param_groups if g["weight_decay"] > 0 for p in g["params"]}
    covered = sum(len(g["params"]) for g in optimizer.param_groups)
    assert decayed == {id(m.weight) for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    assert covered == len(list(network.parameters()))


def test_an_average_that_rises_by_a_ratio() -> None:
    layer = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(0.0)
        average = MovingAverage(layer, 0.1, "ratio")
        layer.weight.fill_(1.0)
        average.update(1)  # the decay is min(0.1, 2 / 11)
    assert average.module.weight.item() == pytest.approx(0.9)
    assert layer.weight.item() == 1.0


def test_a_layer_in_two_places_is_averaged_once() -> None:
    network = nn.Module()
    network.a = network.b = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        network.a.weight.fill_(0.0)
        average = MovingAverage(network, 0.9, "ratio")
        network.a.weight.fill_(1.0)
        average.update(1000)
    assert average.module.state_dict()["b.weight"].item() == pytest.approx(0.1)


def test_timing_steps_leaves_the_network_alone() -> None:
    network = small_network()
    before = {k: v.clone() for k, v in network.state_dict().items()}
    state = torch.get_rng_state()
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    setups = [Setup(precision=precision, channels_last=True, batch_size=8) for precision in precisions]
    times = {setup: step_seconds(network, image_input(32), setup, torch.device("cpu")) for setup in setups}
    assert fastest(times) in setups
    assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_loss_and_metric() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 1.0], [float("nan"), 0.0]])
    targets = torch.tensor([0, 1, 1, 0])
    assert int(classification.top1_hits(logits, targets).sum()) == 2
    log_p = torch.log_softmax(logits[:3], 1)
    smooth = -(0.9 * log_p[range(3), targets[:3]] + 0.1 * log_p.mean(1)).mean()
    assert classification.loss(logits[:3], targets[:3], 0.1).item() == pytest.approx(smooth.item())
    assert classification.loss(logits[:3].bfloat16(), targets[:3]).dtype == torch.float32


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_accuracy_in_a_runtime_equals_accuracy_in_torch(data: ImageData, batch: int) -> None:
    network = small_network().eval()
    shapes = set()

    def run(images: np.ndarray) -> np.ndarray:
        shapes.add(images.shape)
        with torch.inference_mode():
            return np.asarray(network(torch.from_numpy(images)))

    in_torch = evaluate_accuracy(network, data.val, data.preprocess, device="cpu")
    hits = hits_in_runtime(run, data.val, data.preprocess, batch=batch)
    assert accuracy_of(hits, data.val) == in_torch
    assert shapes == {(batch, 3, 32, 32)}


def test_no_images_no_accuracy(data: ImageData) -> None:
    empty = ImageSplit(np.zeros((0, 32, 32, 3), np.uint8), np.zeros(0, np.int64))
    with pytest.raises(UserError, match="no images"):
        evaluate_accuracy(small_network(), empty, data.preprocess, device="cpu")
    with pytest.raises(UserError, match="no images"):
        hits_in_runtime(lambda x: x, empty, data.preprocess)


def test_batch_norm_statistics_are_measured_afresh(data: ImageData) -> None:
    network = small_network()
    norm = network[1]
    assert isinstance(norm, nn.BatchNorm2d)
    norm.running_mean.fill_(1e3)  # type: ignore[union-attr]
    weights = [p.clone() for p in network.parameters()]
    inputs = data.preprocess.tensor(torch.from_numpy(data.train.images))
    recalibrate_batch_norm(network, inputs.split(40))
    with torch.no_grad():
        features = network[0](inputs)  # type: ignore[operator]
    torch.testing.assert_close(norm.running_mean, features.mean((0, 2, 3)), atol=1e-4, rtol=1e-4)
    assert norm.momentum == 0.1
    assert not any(module.training for module in network.modules())
    assert all(torch.equal(a, b) for a, b in zip(weights, network.parameters(), strict=True))
    recalibrate_batch_norm(nn.Flatten(), [inputs])  # nothing to do, nothing raised
