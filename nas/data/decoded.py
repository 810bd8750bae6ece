"""Images of the files of a data set: in memory, or in the store where they are too many for it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nas.data.contents import Contents, remembering
from nas.data.decode import Reader, decode_all
from nas.data.originals import Originals
from nas.data.store import Wanted, stored_images, too_large_for_memory
from nas.data.stored import Images
from nas.data_options import Fit


def decoded(
    files: Originals,
    readers: Sequence[Reader],
    names: Sequence[str],
    size: int,
    *,
    exact: bool = False,
    fit: Fit = "crop",
) -> tuple[Images, Contents]:
    """The images (n, size, size, 3) of `files`, each as `nas.data.decode.decode` makes it, and their contents (n,).

    Args:
        files: by them images are found again that were stored before.
        readers: how to read each of them.
        names: of each, for messages.
        size: rows and columns.
        exact: the very pixels that a bundle makes.
        fit: how a picture of any aspect becomes a square.

    Raises:
        UserError: a file that is no image, by its name; a disk without room.
    """

    def make(start: int, stop: int) -> tuple[NDArray[np.uint8], Contents]:
        contents = np.zeros(stop - start, np.uint64)
        noting = [remembering(read, contents, at) for at, read in enumerate(readers[start:stop])]
        return decode_all(noting, names[start:stop], size, exact=exact, fit=fit), contents

    if not too_large_for_memory(len(files) * size * size * 3):
        return make(0, len(files))
    identity = f"{files.identity()} {'exact' if exact else 'drafted'} {fit}"
    return stored_images(Wanted(source=str(files.root), identity=identity, images=len(files), side=size), make)
