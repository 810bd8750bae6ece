"""The engine that a search runs on: the storage of its studies, and the executor that trains for it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

from nas.controller.config import SearchConfig
from nas.controller.runs.run_folder import RunFolder
from nas.controller.runs.storage import StudyStorage, open_storage
from nas.executors import Executor, check_choice, executor_for
from nas.executors.ray_cluster import connected
from nas.executors.ray_devices import connected_device
from nas.files.writing import write_json
from nas.measure.site import Site
from nas.targets.registry import LOCAL
from nas.tasks import TaskData


@dataclass(slots=True)
class Engine:
    """Storage and executor of one search. The executor is started by the first who asks for it: not every search
    trains candidates."""

    storage: StudyStorage
    start: AbstractContextManager[Executor]
    stack: ExitStack
    """Ends what was started."""
    _executor: Executor | None = field(default=None, init=False, repr=False)

    @property
    def executor(self) -> Executor:
        if self._executor is None:
            self._executor = self.stack.enter_context(self.start)
        return self._executor

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
def engine_of(config: SearchConfig, folder: RunFolder, data: TaskData, budget_s: float) -> Iterator[Engine]:
    """The engine that `config` asks for, while the block lasts. Nobody else works in the folder, see
    `nas.controller.runs.run_folder.opened`.

    Raises `UserError` where it cannot be had, the executor's reasons when that is first asked for.
    """
    with ExitStack() as stack:
        start = executor_for(
            data,
            folder.evaluations,
            budget_s=budget_s,
            workers=config.workers,
            ray=config.ray,
            asha=config.asha,
        )
        storage = open_storage(folder.path, config.storage)
        if storage.shared:
            write_json(folder.server, {"where": storage.where})
        yield Engine(storage, start, stack)
