"""torchvision's detectors without their wrapping: the same boxes, scores and losses as torchvision's own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.models.detection import fcos, retinanet, ssdlite320_mobilenet_v3_large
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import batched_nms
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

from nas.data.images import image_input
from nas.networks.description import NetworkDescription
from nas.tasks.detection.anchors import anchor_boxes
from nas.tasks.detection.baselines import BASELINES
from nas.tasks.detection.heads import HEADS, BoxTargets
from nas.tasks.detection.torchvision_heads import TORCHVISION_HEADS

CLASSES = 3
SCORE, IOU, MOST = 0.3, 0.6, 10**6


def objects(xyxy: list[list[float]], classes: list[int], crowd: list[bool] | None = None) -> BoxTargets:
    return BoxTargets(
        torch.tensor(xyxy).reshape(-1, 4), torch.tensor(classes, dtype=torch.int64),
        torch.tensor(crowd if crowd is not None else [False] * len(classes), dtype=torch.bool),
    )  # fmt: skip


def _on_resnet18(model: Callable[..., Any]) -> Callable[[int], Any]:
    def build(resolution: int) -> Any:
        backbone = resnet_fpn_backbone(
            backbone_name="resnet18", weights=None, norm_layer=torch.nn.BatchNorm2d, trainable_layers=5,
            returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(256, 256),
        )  # fmt: skip
        return model(
            backbone, CLASSES, min_size=resolution, max_size=resolution, image_mean=[0.0] * 3, image_std=[1.0] * 3
        )

    return build


def _ssdlite(resolution: int) -> Any:
    assert resolution == 320
    return ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=1 + CLASSES, image_mean=[0.0] * 3, image_std=[1.0] * 3
    )


TORCHVISION: dict[str, tuple[Callable[[int], Any], int]] = {
    "ssdlite320_mobilenet_v3_large": (_ssdlite, 320),
    "retinanet_resnet18": (_on_resnet18(retinanet.RetinaNet), 160),
    "fcos_resnet18": (_on_resnet18(fcos.FCOS), 160),
}


@pytest.fixture(scope="module", params=BASELINES)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any, int]:
    """torchvision's model, ours with the same weights, and a resolution."""
    build, resolution = TORCHVISION[request.param]
    torch.manual_seed(0)
    model, ours = (
        build(resolution),
        NetworkDescription.of_baseline(request.param, (CLASSES,), image_input(resolution)).build(),
    )
    ours.load_state_dict({k: v for k, v in model.state_dict().items() if k.startswith(("backbone.", "head."))})
    return model, ours, resolution


def features_of(model: Any, resolution: int) -> list[Tensor]:
    with torch.no_grad():
        return list(model.backbone.eval()(torch.zeros(1, 3, resolution, resolution)).values())


def test_anchors_are_torchvisions(pair: tuple[Any, Any, int]) -> None:
    model, ours, resolution = pair
    images = ImageList(torch.zeros(1, 3, resolution, resolution), [(resolution, resolution)])
    (expected,) = model.anchor_generator(images, features_of(model, resolution))
    got = anchor_boxes(TORCHVISION_HEADS[ours.head_kind].levels(resolution))
    np.testing.assert_allclose(got, expected.numpy(), atol=1e-3)


@pytest.mark.parametrize("resolution", [64, 224, 416])
@pytest.mark.parametrize("name", BASELINES)
def test_there_is_an_anchor_for_each_output_at_any_resolution(name: str, resolution: int) -> None:
    described = NetworkDescription.of_baseline(name, (CLASSES,), image_input(resolution))
    network, output = described.build().eval(), described.signature.output
    with torch.inference_mode():
        raw = network(torch.zeros(1, 3, resolution, resolution)).numpy()
    boxes, scores = HEADS[output.kind].decode(raw, resolution)
    assert network.head_kind == output.kind
    assert raw.shape == (1, *output.shape)
    assert boxes.shape == (1, raw.shape[1], 4)
    assert scores.shape == (1, raw.shape[1], CLASSES)
    assert boxes.dtype == scores.dtype == np.float32
    assert boxes.min() >= 0
    assert boxes.max() <= resolution
    assert scores.min() >= 0
    assert scores.max() <= 1


def test_decoding_finds_what_torchvision_finds(pair: tuple[Any, Any, int]) -> None:
    model, ours, resolution = pair
    features = features_of(model, resolution)
    counts = [f.shape[-2] * f.shape[-1] for f in features]
    head = TORCHVISION_HEADS[ours.head_kind]
    anchors = torch.from_numpy(anchor_boxes(head.levels(resolution)))
    per_cell = len(anchors) // sum(counts)
    counts = [count * per_cell for count in counts]
    extra = {"ssd": 1, "fcos": 1, "retinanet": 0}[ours.head_kind]
    generator = torch.Generator().manual_seed(1)
    raw = torch.randn(2, len(anchors), 4 + CLASSES + extra, generator=generator)
    raw[..., 4:] -= 1.5
    raw[..., :4] *= 0.5
    parts = {"bbox_regression": raw[..., :4], "cls_logits": raw[..., 4 : raw.shape[-1] - (ours.head_kind == "fcos")]}
    if ours.head_kind == "fcos":
        parts = {**parts, "bbox_regression": raw[..., :4].relu(), "bbox_ctrness": raw[..., -1:]}
        raw = torch.cat([raw[..., :4].relu(), raw[..., 4:]], dim=-1)
    model.score_thresh, model.nms_thresh, model.detections_per_img, model.topk_candidates = SCORE, IOU, MOST, MOST
    shapes = [(resolution, resolution)] * 2
    if ours.head_kind == "ssd":
        expected = model.postprocess_detections(parts, [anchors] * 2, shapes)
    else:
        split = {name: list(part.split(counts, dim=1)) for name, part in parts.items()}
        expected = model.postprocess_detections(split, [list(anchors.split(counts))] * 2, shapes)
    boxes, scores = head.decode(raw.numpy(), resolution)
    for image, wanted in enumerate(expected):
        at, classes = np.nonzero(scores[image] > SCORE)
        found = torch.from_numpy(boxes[image, at])
        values, labels = torch.from_numpy(scores[image, at, classes]), torch.from_numpy(classes)
        keep = batched_nms(found, values, labels, IOU)
        assert len(keep) == len(wanted["boxes"]) > 10
        first = 1 if ours.head_kind == "ssd" else 0
        # The order of equal scores is left to chance: each has its like among torchvision's.
        got = torch.cat([found[keep], 100 * values[keep, None], 100.0 * (labels[keep, None] + first)], dim=1)
        like = torch.cat([wanted["boxes"], 100 * wanted["scores"][:, None], 100.0 * wanted["labels"][:, None]], dim=1)
        assert torch.cdist(got, like, p=torch.inf).amin(dim=1).max() < 5e-3


def test_the_loss_is_torchvisions(pair: tuple[Any, Any, int]) -> None:
    model, ours, resolution = pair
    torch.manual_seed(2)
    images = torch.rand(2, 3, resolution, resolution)
    truth = [objects([[10, 20, 60, 90], [70, 70, 150, 120.0]], [2, 0]), objects([], [])]
    first = 1 if ours.head_kind == "ssd" else 0
    expected = model.train()(list(images), [{"boxes": t.xyxy, "labels": t.classes + first} for t in truth])
    raw = ours.train()(images)
    loss = TORCHVISION_HEADS[ours.head_kind].loss(raw, truth, resolution)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(sum(part.item() for part in expected.values()), rel=1e-4)
    loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in ours.head.parameters())


def test_a_loss_without_any_object_is_finite(pair: tuple[Any, Any, int]) -> None:
    _, ours, resolution = pair
    raw = ours.eval()(torch.zeros(1, 3, resolution, resolution))
    head = HEADS[ours.head_kind]
    without = head.loss(raw, [objects([], [])], resolution)
    assert torch.isfinite(without)
    no_target = objects([[1, 1, 90, 90], [40, 40, 40, 80.0]], [0, 1], [True, False])
    assert head.loss(raw, [no_target], resolution) == without, "a crowd region and a box without area"


@pytest.mark.parametrize("head", TORCHVISION_HEADS)
def test_scores_of_huge_logits_are_numbers(head: str) -> None:
    levels = TORCHVISION_HEADS[head].levels(64)
    raw = np.full((1, len(anchor_boxes(levels)), 8), 200, dtype=np.float32)
    raw[..., 4:6] = -200
    boxes, scores = TORCHVISION_HEADS[head].decode(raw, 64)
    assert np.isfinite(boxes).all()
    assert np.isfinite(scores).all()
