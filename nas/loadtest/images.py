"""Images that requests carry."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from nas.data.decode import IMAGE_SUFFIXES
from nas.data.processor import SAMPLE_IMAGE
from nas.errors import UserError

MOST_IMAGES = 1024
"""Different images of a load; MLPerf draws from as many. Each is predicted beforehand to know the right answer."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An encoded image file."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Pictures:
    """What a load draws its images from."""

    source: str
    """Where they are from, for people."""
    pictures: Sequence[Picture]

    @property
    def median_bytes(self) -> float:
        return float(median(len(picture.content) for picture in self.pictures))


def read_pictures(folder: Path, most: int = MOST_IMAGES) -> Pictures:
    """The image files in a folder and those below it; of more than `most` every so-manieth in the order of names.

    Raises:
        UserError: no such folder, no image in it, or a file that cannot be read.
    """
    if not folder.is_dir():
        raise UserError(f"no such folder of images: '{folder}'", "give a folder: --images ./photos")
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    if not files:
        raise UserError(f"'{folder}' holds no images", f"put files there that end in {', '.join(IMAGE_SUFFIXES)}")
    count = min(most, len(files))
    chosen = [files[k * len(files) // count] for k in range(count)]
    try:
        return Pictures(str(folder), [Picture(str(path.relative_to(folder)), path.read_bytes()) for path in chosen])
    except OSError as error:
        raise UserError(f"cannot read image '{error.filename}': {error.strerror}", "make it readable") from error


def sample_picture(bundle: Path) -> Pictures:
    """The image that every bundle brings.

    Raises:
        UserError: it brings none, because its input is no image.
    """
    path = bundle / SAMPLE_IMAGE
    if not path.is_file():
        raise UserError(f"the bundle '{bundle}' brings no image", "give a folder of images: --images ./photos")
    return Pictures("the bundle's sample", [Picture(SAMPLE_IMAGE, path.read_bytes())])
