"""What tests of the engine share."""

import pytest

from nas.data import ImageData
from nas.finetune.images import Images
from nas.measure import protocol
from nas.tasks.classification.data.registry import load_dataset
from tests.nas.small_runs import write_data


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured again: a busy machine must not make tests slow that can do with any latency."""
    monkeypatch.setattr(protocol, "REPEATS", 0)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    data: ImageData = load_dataset(str(write_data(tmp_path_factory.mktemp("data") / "data.npz", per_class=30)))
    return Images(train=data.train, val=data.val, test=data.test, preprocess=data.preprocess, size=(3,), flip_ok=True)
