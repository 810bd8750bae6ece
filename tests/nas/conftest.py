"""What tests of the engine share."""

import pytest

from nas.data import ImageData, ImageSplit
from nas.data.images import image_input
from nas.tasks.classification.data.registry import load_dataset
from nas.tasks.examples import Examples, examples_of
from tests.nas.brief import hurry, shorten
from tests.nas.small_runs import write_data


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is measured, and nothing again: a busy machine must not make tests slow that can do with any latency."""
    hurry(monkeypatch)


@pytest.fixture(autouse=True)
def impatient_unless_alone(request: pytest.FixtureRequest) -> None:
    """Latencies are asserted by tests that have the machine alone, and in `measure`, which overrides this."""
    if request.node.get_closest_marker("alone") is None:
        request.getfixturevalue("impatient")


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates and finalists of a search are trained for a few epochs."""
    shorten(monkeypatch)


@pytest.fixture(scope="session")
def blob_data(tmp_path_factory: pytest.TempPathFactory) -> ImageData:
    """90 training images of three classes at 32 px, read from a file."""
    return load_dataset(str(write_data(tmp_path_factory.mktemp("data") / "data.npz", per_class=30)))


@pytest.fixture(scope="session")
def images(blob_data: ImageData) -> Examples[ImageSplit]:
    return examples_of(blob_data, image_input(32))
