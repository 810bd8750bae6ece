"""A training in a folder: all that it knows after an epoch lies in one file, from which it goes on to the same end."""

from contextlib import nullcontext
from pathlib import Path

from nas.errors import UserError
from nas.files.tensors import load_tensors, save_tensors
from nas.training.logs import TensorBoardLog, write_csv
from nas.training.loop import Training
from nas.training.result import EpochCallback, TrainResult
from nas.training.setup import Setup
from nas.training.state import TrainingState, restore, state_of

STATE, BEST, LOG = "state.safetensors", "best.safetensors", "log.csv"


class DivergedError(UserError):
    """The loss is no number any more, or absurdly high."""


def train_in(folder: Path, training: Training, on_epoch: EpochCallback = lambda record: None) -> TrainResult:
    """Train to the end, from where the folder's state says.

    Afterwards `training.network` has the last weights and `BEST` the best ones. The first process alone writes and
    calls `on_epoch`.

    Raises:
        DivergedError: the training diverges.
        UserError: the folder's state is damaged or of another training, or the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / STATE).exists():
        _resume(folder, training)
    writes = training.world.is_first and len(training.curve) < training.recipe.epochs and not training.lacks_gain
    log = TensorBoardLog(folder / "tensorboard", len(training.curve) + 1) if writes else nullcontext()

    def keep(training: Training) -> None:
        if isinstance(log, TensorBoardLog):
            _keep(folder, training)
            log.add(training.curve[-1])

    with log:
        result = training.run(on_epoch, keep)
    if result.stopped == "diverged":
        raise DivergedError(
            f"the training diverged in epoch {len(result.curve) + 1}: its loss is no number, or absurdly high",
            "lower the learning rate: --set optimizer.lr=...",
        )
    return result


def kept_setup(folder: Path) -> Setup | None:
    """The setup of the training in a folder; None where it has not begun."""
    path = folder / STATE
    if not path.exists():
        return None
    return Setup(**load_tensors(path)[1]["setup"])


def _resume(folder: Path, training: Training) -> None:
    path = folder / STATE
    try:
        restore(training, TrainingState(*load_tensors(path)))
    except UserError as error:
        raise UserError(f"'{path}': {error}", "give another --out, or remove it") from error


def _keep(folder: Path, training: Training) -> None:
    # The state last: whatever it speaks of is there.
    if training.best_epoch == training.curve[-1].epoch:
        save_tensors(folder / BEST, training.network.state_dict(), {"epoch": training.best_epoch})
    write_csv(folder / LOG, training.curve)
    state = state_of(training)
    save_tensors(folder / STATE, state.tensors, state.numbers)
