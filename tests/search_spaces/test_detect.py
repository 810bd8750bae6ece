"""What detectors promise beyond the contract of every space."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from search_spaces import DetectSpace, load_search_space
from search_spaces.detect import DetectTable
from search_spaces.detection_network import DetectionNetwork, Predict
from search_spaces.presets import DETECT
from search_spaces.staged import StageTable


def network_of(path: str = "pan", classes: int = 3) -> DetectionNetwork:
    space = load_search_space("detect")
    arch = space.replace(space.anchors[0], resolution=128, neck__path=path, neck__width=32)
    torch.manual_seed(0)
    network = space.build(arch, (classes,))
    assert isinstance(network, DetectionNetwork)
    return network


def test_backbones_have_the_blocks_of_mixed() -> None:
    detect, mixed = load_search_space("detect"), load_search_space("mixed")
    shared = [r for r in detect.table.resolutions if r in mixed.table.resolutions]
    assert shared
    choices = detect.restrict("resolution", shared).sample(30, np.random.default_rng(0))
    for row in choices:
        arch = detect.architecture(row)
        options = {k: v for k, v in detect.parameters(arch).items() if not k.startswith(("neck.", "head."))}
        classifier = mixed.from_json({"space": "mixed", "decisions": options})
        backbone = mixed.blocks(classifier)[:-1]
        assert detect.blocks(arch)[: len(backbone)] == backbone


def test_tasks() -> None:
    assert load_search_space("detect").task == "detection"
    assert {load_search_space(name).task for name in ("mixed", "mobile", "dense")} == {"classification"}


def test_before_training_classes_are_improbable_and_boxes_some_cells_wide() -> None:
    network = network_of().eval()
    with torch.no_grad():
        raw = network(torch.randn(2, 3, 128, 128))
    assert network.head_kind == "anchor-free"
    assert raw[..., 4:].sigmoid().mean() == pytest.approx(0.01, rel=0.2)
    assert nn.functional.softplus(raw[..., :4]).mean() == pytest.approx(2.0, rel=0.2)


def test_anchors_come_finest_level_first() -> None:
    network = network_of()
    for level, prediction in enumerate(network.predictions):
        assert isinstance(prediction, Predict)
        assert prediction.box.bias is not None
        nn.init.zeros_(prediction.box.weight)
        nn.init.constant_(prediction.box.bias, float(level))
    raw = network(torch.randn(2, 3, 128, 64))
    expected = torch.repeat_interleave(torch.arange(3.0), torch.tensor([16 * 8, 8 * 4, 4 * 2]))
    assert torch.equal(raw[..., :4], expected[None, :, None].expand(2, -1, 4))


def test_cells_come_row_by_row() -> None:
    predict = Predict(2, 5)
    rows, columns = torch.meshgrid(torch.arange(3.0), torch.arange(4.0), indexing="ij")
    with torch.no_grad():
        predict.box.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])[:, :, None, None])
        nn.init.zeros_(predict.box.bias)  # type: ignore[arg-type]
        got = predict(torch.stack([rows, columns])[None], torch.zeros(1, 2, 3, 4))
    assert got.shape == (1, 12, 9)
    assert got[0, :, :2].tolist() == [[float(r), float(c)] for r in range(3) for c in range(4)]


@pytest.mark.parametrize("path", ["fpn", "pan"])
def test_what_each_level_sees(path: str) -> None:
    """Coarse reaches fine in both necks; fine reaches coarse only on the way back."""

    def influence(source: int, seen: int) -> bool:
        maps = [torch.randn(1, width, size, size) for width, size in zip(widths, (16, 8, 4), strict=True)]
        maps[source].requires_grad_(True)
        out: Tensor = network.neck(maps)[seen]
        (gradient,) = torch.autograd.grad(out.sum(), maps[source], allow_unused=True)
        return gradient is not None and bool((gradient != 0).any())

    network = network_of(path).eval()
    widths = [level.shape[1] for level in network.features(torch.randn(1, 3, 128, 128))]
    assert all(influence(source, seen) for source in range(3) for seen in range(source + 1))
    assert all(influence(source, seen) == (path == "pan") for source in range(3) for seen in range(source + 1, 3))


@pytest.mark.parametrize("families", [("mbconv", "rep"), ("basic", "rep"), ("fused",)])
def test_size_counts_the_distinct_networks(families: tuple[str, ...]) -> None:
    stage = StageTable((32,), (1,))
    space = DetectSpace(
        DetectTable(
            name="tiny",
            families=families,
            stem_widths=(16,),
            stages=(stage, stage, stage),
            kernels=(3, 5),
            resolutions=(128,),
            neck_widths=(32, 48),
            neck_depths=(1, 2),
            head_depths=(1,),
        )
    )
    # Backbones are counted elsewhere.
    ranges = [range(len(d.options)) if d.name.startswith(("neck", "head")) else (0,) for d in space.decisions]
    rows = np.unique(space.canonical(np.array(list(product(*ranges)), dtype=np.int64)), axis=0)
    slots = space.slots(rows)
    assert len({tuple(slots.specs(i)) for i in range(len(rows))}) == len(rows)
    one_tail = space
    for decision in space.decisions:
        if decision.name.startswith(("neck", "head")):
            one_tail = one_tail.restrict(decision.name, decision.options[:1])
    assert space.size == one_tail.size * len(rows)


def test_sizes_that_are_no_multiples_of_32_are_refused() -> None:
    with pytest.raises(ValueError, match="multiples of 32"):
        DetectTable(
            name="odd",
            families=DETECT.families,
            stem_widths=(16,),
            stages=DETECT.stages,
            resolutions=(300,),
            neck_widths=(32,),
            neck_depths=(1,),
            head_depths=(1,),
        )
