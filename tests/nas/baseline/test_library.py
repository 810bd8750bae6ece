"""The library: options learn what their units give, go on after a kill to the same bits, and losses are those of whole
networks."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from nas.baseline import fitting
from nas.baseline import library as module
from nas.baseline.fitting import fit_last_layer
from nas.baseline.library import (
    Library,
    LibraryTraining,
    begin,
    channel_error,
    replacement_losses,
    taught_steps,
    teach,
    tensors_between,
)
from nas.errors import UserError
from nas.networks.narrowing import narrowed
from nas.networks.options import DROP, KEEP
from nas.networks.units import units_of
from search_spaces.modules import ConvBn, PooledLinear, Residual, set_norm_statistics

INPUTS = torch.randn(16, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def teacher(width: int = 8) -> nn.Module:
    torch.manual_seed(0)
    widths = [3, width, width, 2 * width]
    layers: list[nn.Module] = []
    for i, (before, after) in enumerate(pairwise(widths)):
        layers += [nn.Conv2d(before, after, 3, 2 if i == 2 else 1, 1), nn.BatchNorm2d(after), nn.ReLU()]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 4))
    set_norm_statistics(network, INPUTS)
    return network.eval()


def make() -> Library:
    units = units_of(teacher(), INPUTS[:2])
    offered = [["conv3"], [DROP, "conv3", "bottleneck"], ["basic-half"], []]
    assert len(units) == len(offered)
    return Library(units, offered)


def make_both() -> list[Library]:
    """The teacher's own and one of half the channels."""
    units = units_of(teacher(width=16), INPUTS[:2])
    narrow = narrowed(units, 0.5)
    offered = [["conv3"], [DROP, "conv3"], ["basic-half"], []]
    return [Library(units, offered), Library(narrow.units, offered, width=0.5, kept=narrow.kept)]


def batches(start: int) -> Iterator[torch.Tensor]:
    step = start
    while True:
        yield torch.randn(16, 3, 16, 16, generator=torch.Generator().manual_seed(step))
        step += 1


def errors(library: Library) -> dict[tuple[int, str], float]:
    between = tensors_between(library.units, INPUTS)
    with torch.no_grad():
        return {
            (i, name): float(channel_error(library.module(i, name)(between[i]), between[i + 1]))
            for i, names in enumerate(library.offered)
            for name in names
        }


def test_options_begin_near_and_learn_to_give_what_their_units_give() -> None:
    library = make()
    before = errors(library)
    begin([library], INPUTS)
    begun = errors(library)
    teach([library], batches, LibraryTraining(60))
    after = errors(library)
    assert not library.shelves.training
    for key, error in after.items():
        if key[1] == KEEP:
            assert error == 0
        elif key[1] != DROP:
            assert error < (0.1 if key[1] == "conv3" else 1.0), "1 is the error of a constant"
            assert begun[key] < before[key]
            assert error < begun[key]


def test_a_layer_that_can_give_all_is_fitted_to_do_so() -> None:
    """A convolution behind a norm, whose statistics are taken out and put in again."""
    torch.manual_seed(3)
    wanted = nn.Conv2d(6, 8, 3, 2, 1)
    given = torch.randn(32, 6, 12, 12)
    for option in (ConvBn(6, 8, 3, 2), Residual(nn.Sequential(ConvBn(6, 8, 3, 2)), ConvBn(6, 8, 1, 2))):
        assert fit_last_layer(option.train(), given, wanted(given).detach())
        with torch.no_grad():
            assert float(channel_error(option(given), wanted(given))) < 0.02
    classes = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
    pooled = PooledLinear(6, 3)
    assert fit_last_layer(pooled, given, classes(given).detach())
    with torch.no_grad():
        assert float(channel_error(pooled(given), classes(given))) < 0.02


def test_what_has_too_many_inputs_gets_the_scale_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "MOST_FEATURES", 10)
    option, given = ConvBn(6, 8, 3), torch.randn(32, 6, 12, 12)
    wanted = 5 + 3 * torch.randn(32, 8, 12, 12)
    assert not fit_last_layer(option.train(), given, wanted)
    with torch.no_grad():
        output = option(given)
    assert float(output.mean()) == pytest.approx(5, abs=0.2)
    assert float(output.std()) == pytest.approx(3, abs=0.3)
    assert not fit_last_layer(nn.Identity(), given, given)


def test_the_teacher_is_left_as_it_is() -> None:
    library = make()
    before = [{k: v.clone() for k, v in unit.module.state_dict().items()} for unit in library.units]
    teach([library], batches, LibraryTraining(3))
    for unit, state in zip(library.units, before, strict=True):
        assert all(torch.equal(v, state[k]) for k, v in unit.module.state_dict().items())


def test_a_killed_teaching_goes_on_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAVE_STEPS", 2)
    whole, killed, again = make(), make(), make()
    teach([whole], batches, LibraryTraining(7))
    with pytest.raises(KeyboardInterrupt):
        teach([killed], batches, LibraryTraining(7), tmp_path / "library.safetensors", _kill_at(5))
    done: list[int] = []
    teach([again], batches, LibraryTraining(7), tmp_path / "library.safetensors", done.append)
    assert done == [5, 6, 7]
    expected = whole.shelves.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in again.shelves.state_dict().items())
    finished = make()
    teach([finished], batches, LibraryTraining(7), tmp_path / "library.safetensors", done.append)
    assert done == [5, 6, 7], "what was finished is only read"
    assert all(torch.equal(tensor, expected[name]) for name, tensor in finished.shelves.state_dict().items())


def _kill_at(step: int) -> Callable[[int], None]:
    def on_step(done: int) -> None:
        if done == step:
            raise KeyboardInterrupt

    return on_step


def test_narrower_units_learn_the_channels_that_are_left() -> None:
    own, narrow = make_both()
    between = tensors_between(own.units, INPUTS)

    def errors_of_units() -> list[float]:
        with torch.no_grad():
            return [
                float(channel_error(unit.module(narrow.of(i, between[i])), narrow.of(i + 1, between[i + 1])))
                for i, unit in enumerate(narrow.units)
            ]

    assert narrow.of(0, between[0]) is between[0], "the input is as wide as it was"
    assert narrow.of(1, between[1]).shape[1] == narrow.units[1].input_shape[1] < between[1].shape[1]
    before, asleep = errors_of_units(), {k: v.clone() for k, v in own.shelves.state_dict().items()}
    states = [{k: v.clone() for k, v in unit.module.state_dict().items()} for unit in own.units]
    begin([own, narrow], INPUTS)
    teach([own, narrow], batches, LibraryTraining(60))
    after = errors_of_units()
    assert sum(after) < 0.7 * sum(before)
    assert any(not torch.equal(v, asleep[k]) for k, v in own.shelves.state_dict().items())
    for unit, state in zip(own.units, states, strict=True):
        assert all(torch.equal(v, state[k]) for k, v in unit.module.state_dict().items()), "the teacher is as it was"


def test_a_teaching_of_several_widths_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole, killed, again = make_both(), make_both(), make_both()
    teach(whole, batches, LibraryTraining(4))
    with pytest.raises(KeyboardInterrupt):
        teach(killed, batches, LibraryTraining(4), tmp_path / "library.safetensors", _kill_at(3))
    teach(again, batches, LibraryTraining(4), tmp_path / "library.safetensors")
    for one, other in zip(whole, again, strict=True):
        expected = one.shelves.state_dict()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in other.shelves.state_dict().items())


def test_losses_of_narrower_units_are_on_top_of_what_the_width_costs() -> None:
    own, narrow = make_both()
    teach([own, narrow], batches, LibraryTraining(5))
    with torch.no_grad():
        answers = tensors_between(own.units, INPUTS)[-1]
        kept = float(mse_loss(narrow.network([KEEP] * 4).eval()(INPUTS), answers))
        changed = float(mse_loss(narrow.network([KEEP, "conv3", KEEP, KEEP]).eval()(INPUTS), answers))
    losses = replacement_losses(narrow, [INPUTS], mse_loss, answers=[answers])
    assert sum(named[KEEP] for named in losses) == pytest.approx(kept, rel=1e-4)
    assert losses[1]["conv3"] == pytest.approx(kept / 4 + max(0.0, changed - kept), rel=1e-3)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "library.safetensors"
    teach([make()], batches, LibraryTraining(2), path)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(UserError):
        teach([make()], batches, LibraryTraining(2), path)


def test_losses_are_those_of_whole_networks_with_one_option() -> None:
    library = make()
    teach([library], batches, LibraryTraining(5))
    losses = replacement_losses(library, [INPUTS[:8], INPUTS[8:]], mse_loss)
    assert all(named[KEEP] == 0 for named in losses)
    network = library.network([KEEP, "bottleneck", KEEP, KEEP]).eval()
    own = library.network([KEEP] * 4).eval()
    with torch.no_grad():
        expected = sum(float(mse_loss(network(part), own(part))) for part in (INPUTS[:8], INPUTS[8:])) / 2
    assert losses[1]["bottleneck"] == pytest.approx(expected, rel=1e-4)


def test_options_that_give_no_numbers_are_left_out() -> None:
    library = make()
    library.eval()
    with torch.no_grad():
        next(library.module(1, "bottleneck").parameters()).fill_(float("nan"))
    losses = replacement_losses(library, [INPUTS], mse_loss)
    assert losses[1].keys() == {KEEP, DROP, "conv3"}


def test_a_library_of_other_options_is_taught_anew(tmp_path: Path) -> None:
    path, done = tmp_path / "library.safetensors", list[int]()
    teach([make()], batches, LibraryTraining(2, identity="one"), path)
    assert taught_steps(path, LibraryTraining(2, identity="one")) == 2
    assert taught_steps(path, LibraryTraining(2, identity="other")) is None
    teach([make()], batches, LibraryTraining(2, identity="other"), path, done.append)
    assert done == [1, 2]


def test_costs_are_those_of_deployed_parts() -> None:
    macs, params = make().costs()
    assert macs[0] == {KEEP: 3 * 8 * 9 * 256, "conv3": 3 * 8 * 9 * 256}
    assert (macs[1][DROP], params[1][DROP]) == (0, 0)
    assert params[0]["conv3"] == 3 * 8 * 9 + 8


def test_an_option_that_a_unit_has_not_is_no_option() -> None:
    with pytest.raises(KeyError):
        Library(units_of(teacher(), INPUTS[:2]), [[DROP], [], [], []])
