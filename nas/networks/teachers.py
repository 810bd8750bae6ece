"""Networks that others learn from, found by the names that people give them."""

from typing import TYPE_CHECKING

from nas.errors import UserError
from nas.files.writing import sha256_of
from nas.networks.find import TRAINED_KINDS, FoundNetwork, find_network
from nas.networks.libraries import baseline_names
from nas.networks.reference import trained_network
from nas.progress import Progress
from nas.tasks import TaskData, task_named, task_of
from nas.tasks.teaching import OwnTeacher
from search_spaces import TensorSpec

if TYPE_CHECKING:
    import torch

    from nas.training.distill import Teacher


def teacher_of(text: str) -> FoundNetwork:
    """The network that `load_teacher` loads, with weights.

    Raises:
        UserError: there is none of that name.
    """
    if not text:
        raise UserError("the recipe needs a teacher", "name one: --set distillation.teacher=RUN#1")
    found = find_network(text, accept=TRAINED_KINDS)
    if found.weights is None:
        raise UserError(f"the teacher {text!r} names no weights", f"write {text}:FILE.safetensors")
    if found.published is not None:
        baseline_names(found)  # refuses unknown names
    return found


def load_teacher(text: str, data: TaskData, input: TensorSpec, device: "torch.device") -> "Teacher":
    """The teacher that `text` names, see `nas.networks.find`; of a library's networks `torchvision:NAME:FILE`.

    Args:
        input: of the network to be taught, and of a library's network. Other teachers see their batches as they were
            trained with where the task can make such (`Task.teacher_view`), normalised as the `preprocess.json` near
            their weights says, without one as the student does.

    Raises:
        UserError: there is none of that name, its file is damaged, or it knows other classes.
    """
    from nas.training.distill import Teacher

    found = teacher_of(text)
    description, network = trained_network(found, data, input, role="teacher")
    network.requires_grad_(False).to(device)
    task = task_named(data.task)
    view = task.teacher_view(input, description.signature.input, data.preprocess, found.preprocess(description.task))
    return Teacher(network, text, view)


def taught(data: TaskData, text: str, *, unlabelled: str | None, within_s: float, progress: Progress) -> TaskData:
    """The data with the answers of the teacher that `text` names, of a task whose teachers answer once and beforehand
    (`Task.teaching`); the data themselves, where teachers answer batch by batch.

    Args:
        data: whose training examples are answered.
        text: as in `load_teacher`, or what the task knows of foreign teachers.
        unlabelled: file or folder of further examples; None: there are none.
        within_s: seconds that the teacher may take; inf for any.
        progress: is told how far it is.

    Raises:
        UserError: as `load_teacher` and `nas.tasks.teaching.Teaching.taught`.
    """
    teaching = task_of(data).teaching
    if teaching is None:
        return data
    if teaching.foreign(text):
        found: TaskData = teaching.taught(data, text, unlabelled=unlabelled, within_s=within_s, progress=progress)
        return found
    named = teacher_of(text)
    description, network = trained_network(named, data, data.train.input, role="teacher")
    assert named.weights is not None
    own = OwnTeacher(
        name=text,
        network=network.requires_grad_(False),
        input=description.signature.input,
        preprocess=named.preprocess(description.task),
        sha256=sha256_of(named.weights),
    )
    found = teaching.taught(data, own, unlabelled=unlabelled, within_s=within_s, progress=progress)
    return found
