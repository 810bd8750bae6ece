"""The library: for each unit of a teacher the options that may replace it, each taught to give what the unit gives.

All options learn at once, in one stream over augmented training examples: the teacher computes a batch once, and each
option takes what its unit takes there (Molchanov et al. 2022, LANA, https://arxiv.org/abs/2107.10624; Bercovich et al.
2024, Puzzle, https://arxiv.org/abs/2411.19146). An option's price is its own multiply-adds alone, and every number of a
feature map is a target, so that a few epochs of few images are enough.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from nas.baseline.as_int8 import AsDeployed
from nas.baseline.fitting import fit_last_layer
from nas.files.tensors import load_tensors, save_tensors
from nas.networks.derive import chain_of
from nas.networks.options import KEEP, options_of
from nas.networks.units import Unit, run_counted
from nas.training.optimizer import (
    group_numbers,
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
    set_rate,
)
from nas.training.recipe import OptimizerSettings, ScheduleSettings
from nas.training.schedule import learning_rate
from nas.training.state import below, prefixed
from search_spaces.modules import folded

OPTIMIZER = OptimizerSettings(name="adamw", lr=8e-3, weight_decay=0.0)
SCHEDULE = ScheduleSettings(name="cosine", warmup_fraction=0.05)
DRIFT = 0.5
"""Probability that an option takes what a random option of the unit before it gives, not what that unit gives: in a
network of options it will take nothing else."""
MOST_NUMBERS, LEAST_BEGUN = 100_000_000, 32
"""Numbers of a feature map of all examples together that a closed-form start holds, and the fewest examples of it."""
SAVE_STEPS = 50
"""Steps after which what was learnt is saved."""
QUIET = 0.05
"""Least variance of a channel that errors are measured in, by the mean over the channels: those that hardly say
anything would outweigh all others."""


class Library(nn.Module):
    """A teacher's units, or those of a narrower network that is to become like it, and the options that may replace
    each of them.

    `shelves[i][name]` is the option of that name for unit i. `KEEP` is the unit itself: the teacher's is on no shelf,
    as it knows everything, but a narrower one has to learn like any option.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        offered: Sequence[Sequence[str]],
        seed: int = 0,
        width: float = 1.0,
        kept: Sequence[torch.Tensor] | None = None,
    ) -> None:
        """Options with fresh weights.

        Args:
            units: the teacher's, or narrower ones (`nas.networks.narrowing`).
            offered: for each unit the names of its options, beside `KEEP`.
            seed: of the options' weights.
            width: share of the teacher's channels that the units have.
            kept: numbers of the channels that are left of what the first unit takes and of what each gives; None: all.

        Raises:
            KeyError: a unit has no option of that name.
        """
        super().__init__()
        # Narrower units learn, and whoever gave them may want them again.
        self.units = tuple(unit if kept is None else replace(unit, module=copy.deepcopy(unit.module)) for unit in units)
        self.width = width
        self.device = torch.device("cpu")
        """That everything is on."""
        self._kept = None if kept is None else tuple(kept)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            made = [options_of(unit) for unit in units]
        learning = [{} if kept is None else {KEEP: unit.module} for unit in self.units]
        self.shelves = nn.ModuleList(
            nn.ModuleDict({**own, **{name: options[name] for name in names}})
            for own, options, names in zip(learning, made, offered, strict=True)
        )

    @property
    def offered(self) -> tuple[tuple[str, ...], ...]:
        """For each unit the names of all that may stand in its place, `KEEP` first."""
        return tuple((KEEP, *(name for name in shelf if name != KEEP)) for shelf in self._shelves())

    def of(self, place: int, tensor: torch.Tensor) -> torch.Tensor:
        """The channels of a teacher's tensor (b, c, ...) that units of this library take and give.

        `place`: 0 for what the first unit takes, i + 1 for what unit i gives.
        """
        if self._kept is None or len(self._kept[place]) == tensor.shape[1]:
            return tensor
        return tensor[:, self._kept[place]]

    def module(self, unit: int, option: str) -> nn.Module:
        """What stands in the place of a unit."""
        if option == KEEP:
            return self.units[unit].module
        found: nn.Module = self._shelves()[unit][option]
        return found

    def network(self, options: Sequence[str]) -> nn.Sequential:
        """A network of copies of what the options name."""
        modules = [copy.deepcopy(self.module(i, option)) for i, option in enumerate(options)]
        return chain_of(self.units, modules)

    def move(self, device: torch.device) -> None:
        """Take options and units to another device; whoever else holds the units finds them there."""
        self.device = device
        self.to(device)
        self._kept = None if self._kept is None else tuple(kept.to(device) for kept in self._kept)
        for unit in self.units:
            unit.module.to(device)

    def costs(self, resolution: int | None = None) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
        """For each unit the multiply-accumulates for one example, and the parameters, of all that may be in its place,
        as they are deployed. `resolution`: rows and columns of the images; None: of the baseline's."""
        macs: list[dict[str, int]] = [{} for _ in self.units]
        params: list[dict[str, int]] = [{} for _ in self.units]
        shape = self.units[0].input_shape[1:]
        shape = shape if resolution is None else (shape[0], resolution, resolution)
        given = torch.zeros(1, *shape, device=self.device)
        for i, names in enumerate(self.offered):
            following = given
            for name in names:
                module = folded(self.module(i, name))
                output, macs[i][name] = run_counted(module, given)
                params[i][name] = sum(p.numel() for p in module.parameters())
                following = output if name == KEEP else following
            given = following
        return macs, params

    def _shelves(self) -> list[nn.ModuleDict]:
        return [shelf for shelf in self.shelves if isinstance(shelf, nn.ModuleDict)]


def library_of(libraries: Sequence[Library], width: float) -> Library:
    """The library of that width."""
    (found,) = (library for library in libraries if library.width == width)
    return found


@dataclass(frozen=True, slots=True)
class LibraryTraining:
    """How much a library learns."""

    steps: int
    seed: int = 0
    identity: str = ""
    """Of what is taught; a file of another one is not believed."""


@torch.no_grad()
def tensors_between(units: Sequence[Unit], inputs: torch.Tensor) -> list[torch.Tensor]:
    """What the first unit takes (b, ...), and what each unit gives."""
    found = [inputs]
    for unit in units:
        found.append(unit.module(found[-1]))
    return found


@torch.no_grad()
def begin(libraries: Sequence[Library], inputs: torch.Tensor) -> None:
    """Give every option its start, in place: see `nas.baseline.fitting`.

    Args:
        libraries: new, the first one with the teacher's own units.
        inputs: training examples (b, ...); a few hundred are enough, and fewer are taken where feature maps are large.
    """
    units = libraries[0].units
    for unit in units:
        unit.module.eval()
    largest = max(max(math.prod(u.input_shape[1:]), math.prod(u.output_shape[1:])) for u in units)
    given = inputs[: max(LEAST_BEGUN, MOST_NUMBERS // largest)]
    for i, unit in enumerate(units):
        wanted = unit.module(given)
        for library in libraries:
            shelf = library.shelves[i].train()
            assert isinstance(shelf, nn.ModuleDict)
            for option in shelf.values():
                fit_last_layer(option, library.of(i, given), library.of(i + 1, wanted))
        given = wanted


def teach(
    libraries: Sequence[Library],
    batches: Callable[[int], Iterator[torch.Tensor]],
    training: LibraryTraining,
    path: Path | None = None,
    on_step: Callable[[int], None] = lambda step: None,
) -> None:
    """Teach every option of all libraries in place, from where the file at `path` says.

    The loss of an option is the mean squared error of each channel over the channel's variance (so that 1 is about
    the error of a constant). The teacher is left in evaluation mode, the options too.

    Args:
        libraries: the first one with the teacher's own units, all on the device of the batches.
        batches: gives the inputs (b, ...) of the steps from the given one on.
        training: how much.
        path: file for what was learnt so far; None: it is kept nowhere.
        on_step: gets the number of steps that are done.

    Raises:
        UserError: the file is damaged, or the disk is full.
    """
    for unit in libraries[0].units:
        unit.module.eval()
    trained = nn.ModuleList(library.shelves for library in libraries)
    learns = any(True for _ in trained.parameters())
    optimizer = make_optimizer(trained, OPTIMIZER, OPTIMIZER.lr) if learns else None
    done = 0
    if path is not None and taught_steps(path, training) is not None:
        tensors, story = load_tensors(path)
        done = int(story["steps"])
        trained.load_state_dict(below("library", tensors))
        if optimizer is not None and done < training.steps:
            restore_optimizer(optimizer, below("optimizer", tensors), story["groups"])
    trained.train()
    coming = batches(done) if learns and done < training.steps else iter(())
    while done < training.steps and optimizer is not None:
        rate = learning_rate(SCHEDULE, OPTIMIZER.lr, (done + 0.5) / training.steps, 1)
        set_rate(optimizer, rate)
        optimizer.zero_grad(set_to_none=True)
        between = tensors_between(libraries[0].units, next(coming))
        for number, library in enumerate(libraries):
            _learn(library, between, np.random.default_rng((training.seed, done, number)))
        optimizer.step()
        done += 1
        if path is not None and (done % SAVE_STEPS == 0 or done == training.steps):
            _save(path, trained, optimizer if done < training.steps else None, done, training)
        on_step(done)
    trained.eval()


def _learn(library: Library, tensors: Sequence[torch.Tensor], rng: np.random.Generator) -> None:
    """Add the gradients of one batch, of which the teacher's `tensors_between` its units are known."""
    instead: torch.Tensor | None = None
    for i, shelf in enumerate(library.shelves):
        assert isinstance(shelf, nn.ModuleDict)
        given, wanted = library.of(i, tensors[i]), library.of(i + 1, tensors[i + 1])
        drawn = None if not len(shelf) else str(rng.choice(list(shelf)))
        following: torch.Tensor | None = None
        for name, option in shelf.items():
            drifted = instead is not None and rng.random() < DRIFT
            output = option(instead if drifted else given)
            if output.requires_grad:
                channel_error(output, wanted).backward()  # type: ignore[no-untyped-call]
            if name == drawn:
                following = output.detach()
        instead = following


def channel_error(output: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Mean over channels of the mean squared error over the variance of what was wanted, both (b, c, ...); a scalar.

    Channels count as if they varied by `QUIET` more than they do.
    """
    others = [axis for axis in range(wanted.ndim) if axis != 1]
    variance = wanted.var(others)
    return ((output - wanted).square().mean(others) / (variance + QUIET * variance.mean() + 1e-12)).mean()


def taught_steps(path: Path, training: LibraryTraining) -> int | None:
    """Steps after which a file was written; None where there is none of just this training.

    Raises:
        UserError: the file is damaged.
    """
    if not path.exists():
        return None
    _, story = load_tensors(path)
    same = (story.get("identity"), story.get("seed"), story.get("of")) == (
        training.identity,
        training.seed,
        training.steps,
    )
    return int(story["steps"]) if same else None


def _save(
    path: Path, trained: nn.Module, optimizer: torch.optim.Optimizer | None, steps: int, training: LibraryTraining
) -> None:
    tensors, groups = prefixed("library", trained.state_dict()), []
    if optimizer is not None:
        tensors |= prefixed("optimizer", optimizer_tensors(optimizer))
        groups = group_numbers(optimizer)
    story = {
        "steps": steps,
        "of": training.steps,
        "seed": training.seed,
        "identity": training.identity,
        "groups": groups,
    }
    save_tensors(path, tensors, story)


@torch.no_grad()
def replacement_losses(
    library: Library,
    inputs: Sequence[torch.Tensor],
    distance: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    on_batch: Callable[[int], None] = lambda batch: None,
    answers: Sequence[torch.Tensor] | None = None,
    as_deployed: AsDeployed | None = None,
) -> list[dict[str, float]]:
    """For each unit, what each option loses: the distance of the teacher's outputs from those of the teacher with this
    one unit replaced, a mean over batches of inputs; never below 0, and 0 for `KEEP` but for what rounding costs it.
    Options whose losses are no numbers are left out.

    Of narrower units, it is how much farther the narrower network with this one unit replaced is from the teacher than
    without that. Its own distance is what `KEEP` loses there, the same share for each unit, and every option on top of
    its own: sums over all units are distances of whole networks.

    Args:
        library: with everything in evaluation mode.
        inputs: batches (b, ...) of training examples.
        distance: of outputs (b, ...) and the teacher's, a scalar.
        on_batch: gets the number of batches that are done.
        answers: the teacher's outputs (b, ...) for each batch, for narrower units; None: of the units themselves.
        as_deployed: how what replaces a unit computes, `KEEP` too; None: as it is.
    """
    replacing: dict[tuple[int, str], nn.Module] = {}
    sums: list[dict[str, float]] = [dict.fromkeys(names, 0.0) for names in library.offered]
    own = 0.0
    for done, batch in enumerate(inputs, start=1):
        tensors = tensors_between(library.units, batch)
        wanted = tensors[-1] if answers is None else answers[done - 1]
        if answers is not None:
            own += float(distance(tensors[-1], wanted)) / len(inputs)
        for i, named in enumerate(sums):
            for name in named:
                if name == KEEP and as_deployed is None:
                    continue  # it loses nothing
                if (i, name) not in replacing:
                    module = library.module(i, name)
                    replacing[i, name] = module if as_deployed is None else as_deployed(module, tensors[i])
                output = replacing[i, name](tensors[i])
                for unit in library.units[i + 1 :]:
                    output = unit.module(output)
                named[name] += float(distance(output, wanted)) / len(inputs)
        on_batch(done)
    shared = own / len(sums)
    return [
        {
            name: shared + (0.0 if name == KEEP and as_deployed is None else max(0.0, loss - own))
            for name, loss in named.items()
            if math.isfinite(loss)
        }
        for named in sums
    ]


def units_without_inplace(network: nn.Module) -> None:
    """Make activations of `network` write results of their own: what one unit gave is still needed by others."""
    for module in network.modules():
        if getattr(module, "inplace", False):
            module.inplace = False  # type: ignore[assignment]
