"""The contract of every search space in the table."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from nas.data.images import image_input
from nas.deploy.onnx import export_onnx
from search_spaces import (
    SEARCH_SPACES,
    Architecture,
    StagedSpace,
    TensorSpec,
    UnknownNameError,
    UserError,
    load_search_space,
)
from search_spaces.modules import ConvBn, folded, set_norm_statistics

RESOLUTIONS = (32, 64, 128, 224)
CASES = [
    (name, resolution)
    for name in sorted(SEARCH_SPACES)
    for resolution in RESOLUTIONS
    if resolution in load_search_space(name).table.resolutions
]


@pytest.fixture(params=sorted(SEARCH_SPACES))
def space(request: pytest.FixtureRequest) -> StagedSpace:
    return load_search_space(str(request.param))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def smallest(space: StagedSpace, count: int = 2) -> list[int]:
    """Its lowest resolutions."""
    return sorted(space.table.resolutions)[:count]


def sample(space: StagedSpace, n: int, seed: int = 0) -> list[Architecture]:
    return [space.architecture(row) for row in space.sample(n, np.random.default_rng(seed))]


def test_is_large(space: StagedSpace) -> None:
    assert space.size > (10**12 if space.name in ("mixed", "detect") else 10**9)
    assert isinstance(space.size, int)


def test_same_seed_same_samples_in_another_process(space: StagedSpace) -> None:
    code = (
        "import numpy as np; from search_spaces import load_search_space;"
        f"s = load_search_space({space.name!r}); print(s.sample(5, np.random.default_rng(3)).tolist())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == space.sample(5, np.random.default_rng(3)).tolist()


def test_only_the_given_generator_is_used(space: StagedSpace) -> None:
    np.random.seed(0)  # noqa: NPY002 - the point is that the global state is not read
    first = space.sample(20, np.random.default_rng(1))
    np.random.seed(1)  # noqa: NPY002
    assert np.array_equal(first, space.sample(20, np.random.default_rng(1)))
    assert not np.array_equal(first, space.sample(20, np.random.default_rng(2)))


def test_canonical_is_idempotent_and_kept_by_all_moves(space: StagedSpace) -> None:
    rng = np.random.default_rng(0)
    a, b = space.sample(500, rng), space.sample(500, rng)
    for choices in (a, space.mutate(a, rng), space.crossover(a, b, rng)):
        assert np.array_equal(choices, space.canonical(choices))


def test_equal_networks_have_equal_keys_and_different_ones_do_not(space: StagedSpace) -> None:
    archs = sample(space, 150)
    neighbours = [space.architecture(r) for r in space.mutate(space.choices(archs), np.random.default_rng(1), 0.0)]
    by_blocks: dict[object, str] = {}
    for arch in [*archs, *neighbours]:
        assert by_blocks.setdefault(space.blocks(arch), arch.key) == arch.key
    assert len(set(by_blocks.values())) == len(by_blocks)


def test_mutation_with_zero_rate_changes_at_most_one_decision(space: StagedSpace) -> None:
    a = space.sample(300, np.random.default_rng(0))
    changed = (space.mutate(a, np.random.default_rng(1), 0.0) != a).sum(axis=1)
    family = sum(d.name.endswith("family") for d in space.decisions) > 0
    assert changed.max() <= (6 if family else 1)  # another family switches other decisions on or off
    assert changed.mean() > 0.3


def test_crossover_takes_each_choice_from_a_parent(space: StagedSpace) -> None:
    rng = np.random.default_rng(0)
    a, b = space.sample(200, rng), space.sample(200, rng)
    child = space.crossover(a, b, rng)
    assert ((child == a) | (child == b) | (child == 0)).all()


def test_json_round_trip_keeps_the_key(space: StagedSpace) -> None:
    for arch in [*sample(space, 20), *space.anchors]:
        document = json.loads(json.dumps(space.to_json(arch)))
        assert space.from_json(document).key == arch.key


def test_encode_tells_all_canonical_architectures_apart(space: StagedSpace) -> None:
    choices = np.unique(space.sample(2000, np.random.default_rng(0)), axis=0)
    encoded = space.encode(choices)
    assert encoded.dtype == np.float32
    assert (encoded.sum(axis=1) == len(space.decisions)).all()
    assert len(np.unique(encoded, axis=0)) == len(choices)


def test_features_are_finite_and_named(space: StagedSpace) -> None:
    features = space.features(space.sample(1000, np.random.default_rng(0)))
    assert features.shape == (1000, len(space.feature_names))
    assert np.isfinite(features).all()


def test_restriction_limits_samples_and_keeps_keys(space: StagedSpace) -> None:
    low, high = smallest(space)
    small = space.restrict("resolution", [high, low])
    choices = small.mutate(small.sample(500, np.random.default_rng(0)), np.random.default_rng(1), 0.5)
    assert set(small.resolutions(choices).tolist()) == {low, high}
    sizes = {r: space.restrict("resolution", [r]).size for r in space.decisions[-1].options}
    assert small.size == sizes[low] + sizes[high]
    assert space.size == sum(sizes.values())
    arch = small.architecture(choices[0])
    assert space.architecture(arch.choices).key == arch.key
    with pytest.raises(UserError, match="33"):
        space.restrict("resolution", [33])


def test_blocks_of_the_backbone_chain(space: StagedSpace) -> None:
    for arch in sample(space, 30):
        blocks = space.blocks(arch, size=(7,))
        backbone = blocks[: 1 + sum(space.stage_depths(arch))]
        for before, after in pairwise(backbone):
            assert before.out_channels == after.in_channels
            assert after.height == -(-before.height // before.stride)
        assert blocks[0].height == space.resolution(arch)
        assert blocks[-1].out_channels == space.signature(arch, (7,)).output.shape[-1]
        reduction = space.resolution(arch) // -(-backbone[-1].height // backbone[-1].stride)
        assert reduction == (32 if space.resolution(arch) >= 128 else 16 if space.resolution(arch) >= 64 else 8)


def test_slots_say_where_the_network_has_their_blocks(space: StagedSpace) -> None:
    choices = space.sample(100, np.random.default_rng(0))
    slots = space.slots(choices, (7,))
    assert np.array_equal(slots.count, space.slot_counts(choices))
    assert slots.count.shape == (100, len(space.slot_decisions))
    for row, choice in list(enumerate(choices))[:5]:
        arch = space.architecture(choice)
        places = space.slot_places(arch)
        assert [len(names) for names in places] == slots.count[row].tolist()
        with torch.device("meta"):
            network = space.build(arch, (7,))
            names = [name for of_slot in places for name in of_slot]
            for name, spec in zip(names, space.blocks(arch, (7,)), strict=True):
                alone = space.families[spec.kind].build(spec)
                assert str(network.get_submodule(name)) == str(alone), f"{name} is no {spec}"
        parts = tuple(f"{name}." for name in names)
        assert all(parameter.startswith(parts) for parameter, _ in network.named_parameters())


@pytest.mark.parametrize(("name", "resolution"), CASES)
def test_builds_and_every_parameter_gets_a_gradient(name: str, resolution: int) -> None:
    torch.manual_seed(0)
    space = load_search_space(name)
    for arch in sample(space.restrict("resolution", [resolution]), 1, seed=resolution):
        network = space.build(arch, size=(5,))
        signature = space.signature(arch, (5,))
        assert signature.input == TensorSpec((3, resolution, resolution))
        assert signature.output.size == (5,)
        output = network(signature.input.draw_torch(2))
        assert output.shape == (2, *signature.output.shape)
        assert output.dtype == torch.float32
        output.square().sum().backward()
        assert [n for n, p in network.named_parameters() if p.grad is None] == []


def test_analytic_costs_equal_traced_ones(space: StagedSpace) -> None:
    quick = [r for r in space.table.resolutions if r <= RESOLUTIONS[-1]]
    archs = sample(space.restrict("resolution", quick), 6, seed=5)
    costs = space.costs(space.choices(archs), size=(10,))
    for i, arch in enumerate(archs):
        resolution = space.resolution(arch)
        network = folded(space.build(arch, size=(10,)))
        with FlopCounterMode(display=False) as counter:
            network(torch.randn(1, 3, resolution, resolution))
        assert counter.get_total_flops() == 2 * costs["macs"][i]
        assert sum(p.numel() for p in network.parameters()) == costs["params"][i]


def test_folding_keeps_the_outputs(space: StagedSpace) -> None:
    torch.manual_seed(0)
    for arch in sample(space.restrict("resolution", smallest(space, 1)), 4, seed=2):
        resolution = space.resolution(arch)
        network = space.build(arch, size=(10,))
        images = torch.randn(8, 3, resolution, resolution)
        set_norm_statistics(network, images)
        network.eval()
        with torch.no_grad():
            before, after = network(images), folded(network)(images)
        assert torch.allclose(before, after, atol=1e-3 * float(before.abs().max()))
        assert float(before.std()) > 1e-3, "activations vanish"


@pytest.mark.parametrize(("name", "resolution"), CASES)
def test_exports_to_onnx_with_equal_outputs(name: str, resolution: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    space = load_search_space(name)
    arch = sample(space.restrict("resolution", [resolution]), 1, seed=resolution + 1)[0]
    network = space.build(arch, size=(10,))
    images = torch.randn(4, 3, resolution, resolution)
    set_norm_statistics(network, images)
    network = folded(network)
    path = export_onnx(network, image_input(resolution), tmp_path / "network.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    got = session.run(None, {session.get_inputs()[0].name: images[:1].numpy()})[0]
    with torch.no_grad():
        expected = network(images[:1]).numpy()
    assert np.abs(got - expected).max() < 1e-3 * max(1.0, np.abs(expected).max())


def test_features_give_a_pyramid(space: StagedSpace) -> None:
    arch = sample(space.restrict("resolution", [128]), 1)[0]
    levels = space.build(arch).features(torch.randn(1, 3, 128, 128))  # type: ignore[operator]
    assert [128 // level.shape[-1] for level in levels] == [8, 16, 32]


def test_anchors_belong_to_the_space(space: StagedSpace) -> None:
    assert space.anchors
    for arch in space.anchors:
        assert space.architecture(arch.choices) == arch
    _, second = smallest(space)
    assert {space.resolution(a) for a in space.restrict("resolution", [second]).anchors} == {second}


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_any_valid_row_becomes_one_canonical_architecture(data: st.DataObject) -> None:
    space = load_search_space(data.draw(st.sampled_from(sorted(SEARCH_SPACES))))
    row = [data.draw(st.integers(0, len(d.options) - 1)) for d in space.decisions]
    arch = space.architecture(row)
    assert space.architecture(arch.choices) == arch
    assert space.from_json(space.to_json(arch)) == arch
    assert space.costs(space.choices([arch]))["macs"][0] > 0


def test_suggest_asks_for_every_decision(space: StagedSpace) -> None:
    class FirstOption:
        def __init__(self) -> None:
            self.asked: list[str] = []

        def suggest_categorical(self, name, choices):  # type: ignore[no-untyped-def]
            self.asked.append(name)
            return choices[0]

    trial = FirstOption()
    assert space.suggest(trial) == space.architecture([0] * len(space.decisions))
    assert trial.asked == [d.name for d in space.decisions]


def test_wrong_input_is_named() -> None:
    space = load_search_space("mixed")
    arch = space.architecture([0] * len(space.decisions))
    document = space.to_json(arch)
    with pytest.raises(UnknownNameError, match="mixd") as unknown:
        load_search_space("mixd")
    assert unknown.value.hint == "did you mean 'mixed'?"
    with pytest.raises(UserError, match="out of range"):
        space.architecture([99] + [0] * (len(space.decisions) - 1))
    with pytest.raises(UserError, match="decisions, got 1"):
        space.architecture([0])
    with pytest.raises(UserError, match="of space 'mobile'"):
        space.from_json({**document, "space": "mobile"})
    with pytest.raises(UserError, match="does not say"):
        space.from_json({"space": "mixed", "decisions": {}})
    with pytest.raises(UnknownNameError, match=r"stage1\.widht"):
        space.from_json({"space": "mixed", "decisions": {**space.parameters(arch), "stage1.widht": 1}})
    with pytest.raises(UserError, match="not an architecture document"):
        space.from_json([1])
    with pytest.raises(UserError, match="does not belong"):
        load_search_space("mobile").choices([arch])


def test_depthwise_convolutions_stay_in_float32_under_autocast_on_a_cpu() -> None:
    dtypes = {}
    images = torch.rand(2, 8, 4, 4)
    for groups in (1, 8):
        block = ConvBn(8, 8, 3, groups=groups)
        block.conv.register_forward_hook(lambda _module, _args, out, key=groups: dtypes.update({key: out.dtype}))
        with torch.autocast("cpu", torch.bfloat16):
            block(images)
    assert dtypes == {1: torch.bfloat16, 8: torch.float32}
