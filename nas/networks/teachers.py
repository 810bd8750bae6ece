"""Networks that others learn from, found by the names that people give them."""

from typing import TYPE_CHECKING

from nas.errors import UserError
from nas.networks.description import NetworkDescription
from nas.networks.find import FoundNetwork, find_network
from nas.networks.weights import load_weights
from nas.tasks import TaskData, task_named, task_of_baseline
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
    found = find_network(text, accept=("network", "torchvision"))
    if found.weights is None:
        raise UserError(f"the teacher {text!r} names no weights", "write torchvision:NAME:FILE.safetensors")
    if found.torchvision is not None:
        task_of_baseline(found.torchvision)  # refuses unknown names
    return found


def load_teacher(text: str, data: TaskData, input: TensorSpec, device: "torch.device") -> "Teacher":
    """The teacher that `text` names, see `nas.networks.find`; of torchvision's networks `torchvision:NAME:FILE`.

    Args:
        input: of the network to be taught, and of a torchvision network. Other teachers see their batches as they were
            trained with where the task can make such (`Task.teacher_view`), normalised as the `preprocess.json` near
            their weights says, without one as the student does.

    Raises:
        UserError: there is none of that name, its file is damaged, or it knows other classes.
    """
    from nas.training.distill import Teacher

    found = teacher_of(text)
    description = found.description or NetworkDescription.of_baseline(str(found.torchvision), data.output_size, input)
    own, hint = description.signature, "give a teacher that was trained on these data"
    if description.task != data.task:
        raise UserError(f"the teacher {text!r} is for {description.task}, the data are for {data.task}", hint)
    if own.output.size != data.output_size:
        known, asked = (" x ".join(map(str, size)) for size in (own.output.size, data.output_size))
        raise UserError(f"the teacher {text!r} knows {known} classes, the data have {asked}", hint)
    if found.labels() not in (None, tuple(data.classes)):
        raise UserError(f"the teacher {text!r} knows other classes than {data.name!r} has, or in another order", hint)
    assert found.weights is not None
    network = description.build()
    load_weights(network, found.weights, sha256=found.sha256)
    network.eval().requires_grad_(False).to(device)
    task = task_named(data.task)
    view = task.teacher_view(input, own.input, data.preprocess, found.preprocess(description.task))
    return Teacher(network, text, view)
