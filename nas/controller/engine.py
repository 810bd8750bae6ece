"""The engine that a search runs on: the storage of its studies, and the executor that trains for it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar, cast

from nas.controller.config import SearchConfig
from nas.controller.elsewhere import Elsewhere, FullExecutor
from nas.controller.runs.run_folder import RunFolder
from nas.controller.runs.storage import StudyStorage, open_storage
from nas.executors import Executor, check_choice, executor_for
from nas.executors.gpus import visible_gpus, workers_here
from nas.executors.ray_cluster import connected
from nas.executors.ray_devices import connected_device
from nas.files.writing import write_json
from nas.measure.site import Site
from nas.targets.registry import LOCAL
from nas.tasks import TaskData

P = ParamSpec("P")
R = TypeVar("R")


class RunsThere(Protocol):
    """An executor that also calls functions where it evaluates."""

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function returns there."""
        ...


@dataclass(slots=True)
class Engine:
    """Storage and executor of one search. The executor is started by the first who asks for it: not every search
    trains candidates."""

    storage: StudyStorage
    start: AbstractContextManager[Executor]
    stack: ExitStack
    """Ends what was started."""
    trains_fully: bool = False
    """True if the executor is to do full trainings too: a cluster's, unless it stops trainings early, and one of
    several GPUs."""
    remarks: list[str] = field(default_factory=list)
    """What the executor said that a reader of the result should know."""
    _executor: Executor | None = field(default=None, init=False, repr=False)

    @property
    def executor(self) -> Executor:
        if self._executor is None:
            self._executor = self.stack.enter_context(self.start)
        return self._executor

    def elsewhere(self, data: TaskData) -> Elsewhere | None:
        """Full trainings by the executor, of which nothing else may be under way meanwhile; None where this process
        does them."""
        if not self.trains_fully:
            return None
        return Elsewhere(executor=cast(FullExecutor, self.executor), data=data.name, say=self.remarks.append)

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function of a module returns on a machine that trains."""
        if not self.trains_fully:
            return function(*args, **kwargs)
        return cast(RunsThere, self.executor).run(function, *args, **kwargs)

    @property
    def full_trainings(self) -> int:
        """Full trainings that can run at once."""
        return self.executor.capacity if self.trains_fully else 1

    def rest(self) -> None:
        """See `Executor.rest`."""
        if self._executor is not None:
            self._executor.rest()

    def quiet(self) -> AbstractContextManager[None]:
        """See `Executor.quiet`."""
        return nullcontext() if self._executor is None else self._executor.quiet()


@contextmanager
def device_of(config: SearchConfig) -> Iterator[Site | None]:
    """The machine of the Ray cluster that offers itself as the target, connected while the block lasts; None where no
    cluster was asked for or none of its machines does. `local` is always this host.

    Raises `UserError` where the cluster or its device does not answer.
    """
    check_choice(config.ray, asha=config.asha)
    if config.ray is None:
        yield None
        return
    with connected(config.ray):
        device = connected_device(config.target) if config.target != LOCAL else None
        yield device.site() if device else None


@contextmanager
def engine_of(
    config: SearchConfig, folder: RunFolder, data: TaskData, budget_s: float, say: Callable[[str], None]
) -> Iterator[Engine]:
    """The engine that `config` asks for, while the block lasts. Nobody else works in the folder, see
    `nas.controller.runs.run_folder.opened`. `say`: hears at once what `Engine.remarks` collects.

    Raises `UserError` where it cannot be had, the executor's reasons when that is first asked for.
    """
    remarks: list[str] = []

    def remark(text: str) -> None:
        say(text)
        remarks.append(text)

    with ExitStack() as stack:
        start = executor_for(
            data,
            folder.evaluations,
            budget_s=budget_s,
            workers=config.workers,
            ray=config.ray,
            asha=config.asha,
            say=remark,
        )
        storage = open_storage(folder.path, config.storage, config.shared_settings())
        if storage.shared:
            write_json(folder.server, {"where": storage.where})
        yield Engine(storage, start, stack, _trains_fully(config), remarks)


def _trains_fully(config: SearchConfig) -> bool:
    if config.ray is not None:
        return not config.asha
    return min(workers_here(config.workers), len(visible_gpus())) > 1
