"""Teachers that answer every training example once, before any training: their answers become part of the data.

That is right where an example has few forms in training, as a text has, so that a teacher of any size costs no training
a second. Where each epoch shows another view of an example (images), teachers answer batch by batch instead, see
`nas.training.distill`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from nas.progress import Progress
from search_spaces import TensorSpec

if TYPE_CHECKING:
    from torch import nn

Data = TypeVar("Data")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnTeacher:
    """A network that this program trained, as a teacher."""

    name: str
    """As typed."""
    network: "nn.Module"
    """On the CPU, in evaluation mode."""
    input: TensorSpec
    """What the network takes."""
    preprocess: Any
    """The task's pre-processing that it was trained with; None where nothing tells: that of the data, then."""
    sha256: str
    """Of its weights."""


class Teaching(Protocol[Data]):
    """How a task asks a teacher about all training examples."""

    def foreign(self, text: str) -> bool:
        """True where `text` names a teacher that another program made and that `taught` can ask."""
        ...

    def taught(
        self, data: Data, teacher: OwnTeacher | str, *, unlabelled: str | None, within_s: float, progress: Progress
    ) -> Data:
        """The data with a teacher's answers to their training examples, and to further ones that nobody labelled.

        Args:
            data: whose training examples are answered.
            teacher: of this program, or the name of a foreign one.
            unlabelled: file or folder of further examples; None: there are none.
            within_s: seconds that the teacher may take; inf for any.
            progress: is told how far it is.

        Raises:
            UserError: teacher or examples cannot be read, the teacher knows other classes or no better than guessing,
                or it takes too long.
        """
        ...
