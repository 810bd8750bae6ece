"""The supernet: paths that equal stand-alone networks, and what they share."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.errors import UserError
from nas.evaluation.supernet.network import Supernet
from nas.evaluation.supernet.sandwich import Sandwich
from nas.evaluation.supernet.sharing import block_tensors, cut
from search_spaces import SEARCH_SPACES, Architecture, load_search_space
from search_spaces.modules import StagedNetwork
from search_spaces.staged import strides
from tests.nas.evaluation.small import small_space


def images_for(supernet: Supernet, arch: Architecture, count: int = 2) -> torch.Tensor:
    size = supernet.space.resolution(arch)
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(1))


def with_statistics(supernet: Supernet, seed: int = 0) -> Supernet:
    """Batch-norm statistics and scales that differ from one another and from their initial values."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in supernet.state_dict().items():
            if name.endswith(("running_mean", "bias")):
                tensor.copy_(0.1 * torch.randn(tensor.shape, generator=generator))
            elif name.endswith("running_var"):
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    return supernet


def assert_equal_outputs(supernet: Supernet, arch: Architecture) -> None:
    supernet.eval()
    images = images_for(supernet, arch)
    network = supernet.subnet(arch)
    with torch.no_grad():
        difference = (supernet(images, arch) - network(images)).abs().max()
    assert float(difference) == 0.0, arch


@pytest.mark.parametrize("name", SEARCH_SPACES)
def test_a_subnet_computes_what_the_path_computes(name: str) -> None:
    space = small_space(name, (32, 64, 128))
    supernet = with_statistics(Supernet(space, (5,)))
    for row in space.sample(12, np.random.default_rng(3)):
        assert_equal_outputs(supernet, space.architecture(row))


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCH_SPACES)
def test_so_in_the_whole_space_at_every_total_stride(name: str) -> None:
    space = load_search_space(name)
    supernet = with_statistics(Supernet(space, (10,)))
    rng = np.random.default_rng(4)
    stages = len(space.table.stages)
    smallest = {strides(np.array(r), stages).prod(): r for r in reversed(space.table.resolutions)}
    for resolution in smallest.values():
        for row in space.restrict("resolution", [resolution]).sample(2, rng):
            assert_equal_outputs(supernet, space.architecture(row))


@pytest.mark.parametrize("name", SEARCH_SPACES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_network_of_the_space_is_a_path(name: str, seed: int) -> None:
    supernet = meta_supernet(name)
    arch = supernet.space.architecture(supernet.space.sample(1, np.random.default_rng(seed))[0])
    with torch.device("meta"):
        alone = supernet.space.build(arch, (7,))
    shapes = {key: tensor.shape for key, tensor in alone.state_dict().items()}
    assert {key: tensor.shape for key, tensor in supernet.tensors(arch).items()} == shapes


_META: dict[str, Supernet] = {}


def meta_supernet(name: str) -> Supernet:
    """The whole space's supernet without memory for its weights."""
    if name not in _META:
        with torch.device("meta"):
            _META[name] = Supernet(load_search_space(name), (7,))
    return _META[name]


def test_predictions_start_as_a_network_of_their_own_does() -> None:
    space = small_space("detect", (128,))
    supernet = Supernet(space, (5,))
    arch = space.architecture(space.sample(1, np.random.default_rng(0))[0])
    raw = supernet(images_for(supernet, arch), arch)
    assert raw[..., 4:].sigmoid().mean().item() == pytest.approx(0.01, rel=0.2)
    assert torch.nn.functional.softplus(raw[..., :4]).mean().item() == pytest.approx(2.0, rel=0.2)


def test_a_subnet_is_the_spaces_own_network() -> None:
    space = small_space()
    supernet = Supernet(space, (5,)).train()
    arch = space.architecture(space.sample(1, np.random.default_rng(0))[0])
    network = supernet.subnet(arch)
    assert isinstance(network, StagedNetwork)
    assert network.training
    before = {name: tensor.clone() for name, tensor in supernet.state_dict().items()}
    network(images_for(supernet, arch)).sum().backward()  # it has weights of its own, which learn
    assert all(p.grad is not None for p in network.parameters())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in supernet.state_dict().items())


def test_smaller_layers_are_cut_out_of_the_largest() -> None:
    full = torch.arange(4 * 3 * 5 * 5).reshape(4, 3, 5, 5)
    assert torch.equal(cut(full, (2, 3, 3, 3)), full[:2, :, 1:4, 1:4])
    assert torch.equal(cut(full[:, 0, 0, 0], (3,)), full[:3, 0, 0, 0])
    view = cut(full, (1, 1, 1, 1))
    view += 1000
    assert full[0, 0, 2, 2] == 1012


def test_families_and_grouped_convolutions_share_nothing() -> None:
    space = small_space("dense")
    supernet = Supernet(space, (5,)).train()
    base = {f"stage{n}__{short}": value for n in (1, 2, 3, 4) for short, value in (("family", "basic"), ("depth", 1))}
    first = space.architecture([a[0] for a in space.allowed])
    basic = space.replace(first, **base)
    fused = space.replace(basic, stage1__family="fused")
    grouped = space.replace(basic, stage1__groups="width16")
    touched = {}
    for name, arch in (("basic", basic), ("fused", fused), ("grouped", grouped)):
        supernet.zero_grad(set_to_none=True)
        supernet(images_for(supernet, arch), arch).sum().backward()
        touched[name] = {key for key, p in supernet.named_parameters() if p.grad is not None}
    assert any("stage1/0/fused" in key for key in touched["fused"])
    assert not any("stage1/0/basic" in key for key in touched["fused"])
    assert touched["grouped"] - touched["basic"] == {"stage1/0/basic/ConvBn1/conv-grouped/weight"}
    assert touched["basic"] - touched["grouped"] == {"stage1/0/basic/ConvBn1/conv/weight"}


def test_networks_outside_of_its_options_are_named() -> None:
    space = small_space("mobile")
    supernet = Supernet(space, (5,))
    first = space.architecture([a[0] for a in space.allowed])
    for outside in (space.replace(first, stage1__width=40), space.replace(first, stage3__depth=6)):
        with pytest.raises(UserError, match="the supernet of 'mobile' holds no stage"):
            supernet.subnet(outside)


def test_squeeze_excite_moves_no_other_layer() -> None:
    space = small_space("mobile")
    arch = space.architecture([a[0] for a in space.allowed])
    plain, attended = (space.blocks(space.replace(arch, stage2__se=se))[2] for se in (0, 1))
    roles = [{t.role for t in block_tensors(space.families[block.kind], block)} for block in (plain, attended)]
    assert roles[0] < roles[1]
    assert {role.split("/")[0] for role in roles[1] - roles[0]} == {"SqueezeExcite0"}


def test_same_seed_same_weights_and_torchs_random_state_is_left_alone() -> None:
    space = small_space()
    state = torch.random.get_rng_state()
    first, again, other = (Supernet(space, (5,), seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_sandwich_has_a_largest_and_a_smallest_path() -> None:
    space = small_space("mixed", (32, 48))
    sandwich = Sandwich(space, random_paths=3)
    for seed in range(5):
        paths = sandwich.draw(np.random.default_rng(seed))
        assert len(paths) == 5
        assert [space.stage_depths(paths[at]) for at in (0, -1)] == [(2, 2, 2, 2), (1, 1, 1, 1)]
        assert [space.resolution(paths[at]) for at in (0, -1)] == [48, 32]
        assert paths == sandwich.draw(np.random.default_rng(seed))
    largest = space.choices([sandwich.draw(np.random.default_rng(seed))[0] for seed in range(30)])
    for stage in (1, 2, 3, 4):  # every family is trained at full size
        assert len(np.unique(largest[:, space.column(f"stage{stage}.family")])) == 5


def test_sandwich_keeps_to_what_is_admissible() -> None:
    space = small_space()
    limit = float(np.quantile(space.costs(space.sample(200, np.random.default_rng(0)))["macs"], 0.4))
    sandwich = Sandwich(space, 2, lambda choices: space.costs(choices)["macs"] <= limit)
    paths = [sandwich.draw(np.random.default_rng(seed))[1:-1] for seed in range(10)]
    macs = space.costs(space.choices([arch for drawn in paths for arch in drawn]))["macs"]
    assert (macs <= limit).all()


def test_block_families_take_turns_where_paths_are_fair() -> None:
    space = small_space("mixed")
    kernels = set()
    for seed in range(20):
        paths = space.choices(Sandwich(space, random_paths=5, ends=False, fair=True).draw(np.random.default_rng(seed)))
        for stage in (1, 2, 3, 4):
            column = space.column(f"stage{stage}.family")
            assert sorted(paths[:, column]) == list(space.allowed[column])
            mbconv = paths[paths[:, column] == space.decisions[column].options.index("mbconv")]
            kernels |= set(mbconv[:, space.column(f"stage{stage}.kernel")].tolist())
    assert len(kernels) > 1, "what only some families use is drawn for those that take the turn"
