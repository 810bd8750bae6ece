"""A bundle, opened and used from Python: from a photo to an answer, as the bundle's `run.py` does it.

`nas export --verify` looks at bundles through this, too. Needs no torch, unless the bundle is for PyTorch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nas.bundles.receipt import Receipt, changed_files, read_receipt
from nas.errors import UserError
from nas.networks.find import find_bundle
from nas.runtimes import Session, load_runtime
from nas.runtimes.base import check_supported, require
from nas.tasks import task_named
from nas.tasks.artifacts import Prepared, Processor

Answer = list[dict[str, Any]]
"""Plain values, the surest first, as the task's processor says them. Of a classifier every class: `label`, `score`
(probability). Of a detector each object: `label`, `score`, `xyxy` (edges in pixels of the picture)."""


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """A bundle's network, loaded in the runtime and precision that it was delivered for.

    `run` is not for several threads at once. `processor` is: what has many files to decode calls
    `processor.preprocess` in threads, gives `run` the joined inputs, and `processor.postprocess` each output.
    """

    folder: Path
    """Folder of the bundle."""
    receipt: Receipt
    session: Session
    processor: Processor

    @classmethod
    def open(cls, bundle: str | Path, *, check: bool = True, threads: int | None = None) -> Self:
        """Load a bundle.

        Args:
            bundle: its folder, or `RUN#k` for what a search or `nas export` delivered of that network.
            check: compare the files with the checksums of the receipt first; `False` starts faster.
            threads: of the runtime; default: as many as the receipt's figures are of.

        Raises:
            UserError: no bundle, a file that was changed, or a runtime or precision that this host does not have.
        """
        folder, receipt = checked_bundle(bundle, check=check)
        deployment = replace(receipt.deployment, threads=threads or receipt.deployment.threads)
        return cls(
            folder=folder,
            receipt=receipt,
            session=load_runtime(deployment.runtime).load(folder / receipt.model, deployment),
            processor=task_named(receipt.task).artifacts.processor(folder),
        )

    def predict(self, example: Any) -> Any:
        """The answer for one example, or a list of answers for a list of examples.

        Args:
            example: what the task takes. Of images: a path, the bytes of a file, a binary file object, a Pillow image,
                or an array (h, w, 3) uint8, RGB; or a list of these.

        Returns:
            An `Answer`, or a list of them.

        Raises:
            UserError: an example that cannot be read.
        """
        if isinstance(example, list | tuple):
            return list(self._answers(example))
        return next(self._answers([example]))

    def run(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Raw outputs (n, ...) float32 of pre-processed `inputs` (n, ...), any number of them.

        Raises:
            UserError: inputs of another shape than the network's.
        """
        expected = self.session.input.shape
        if inputs.shape[1:] != expected or not len(inputs):
            raise UserError(
                f"the network takes inputs of shape (n, {', '.join(map(str, expected))}), not {inputs.shape}",
                "give what `processor.preprocess` makes of an example",
            )
        outputs: NDArray[np.float32] = self.session.run(inputs)
        return outputs

    def output(self, example: Any) -> NDArray[np.float32]:
        """The network's raw output for one example, without batch axis: what `sample.json` tells of the sample."""
        found: NDArray[np.float32] = self.run(self.processor.preprocess(example).inputs)[0]
        return found

    def _answers(self, examples: Sequence[Any]) -> Iterator[Answer]:
        """Call by call of the network, so that no more than one call's inputs are in memory."""
        size = self.receipt.deployment.batch
        for start in range(0, len(examples), size):
            prepared: list[Prepared] = [self.processor.preprocess(e) for e in examples[start : start + size]]
            outputs = self.run(np.concatenate([p.inputs for p in prepared]))
            for output, p in zip(outputs, prepared, strict=True):
                yield self.processor.postprocess(output, p.context)


def checked_bundle(bundle: str | Path, *, check: bool = True) -> tuple[Path, Receipt]:
    """Folder and receipt of a bundle that this host can run; nothing is loaded. Arguments and errors as of
    `Predictor.open`."""
    folder = find_bundle(str(bundle))
    receipt = read_receipt(folder)
    problems = changed_files(folder, receipt) if check else []
    if problems:
        raise UserError(f"the bundle '{folder}' is not as it was delivered: {'; '.join(problems)}", "get it again")
    runtime = load_runtime(receipt.deployment.runtime)
    require(runtime)
    check_supported(runtime, receipt.deployment.precision, receipt.deployment.device)
    return folder, receipt
