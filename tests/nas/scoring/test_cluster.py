"""The parts of a job as Ray tasks: the same file, and the same answer to a fatal image."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from nas.errors import UserError
from nas.scoring.cluster import score_here
from nas.scoring.messages import Task
from nas.scoring.offline import PredictRequest, predict_folder
from tests.nas.scoring.conftest import write_images

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def test_the_same_file_from_a_cluster(cluster: None, fatal_bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    paths = write_images(folder, 40)
    paths[20].rename(folder / "fatal.jpg")
    for name, address in (("here", None), ("there", "auto")):
        out = tmp_path / f"{name}.parquet"
        request = PredictRequest(bundle=str(fatal_bundle), folder=folder, out=out, workers=1, ray=address)
        document = predict_folder(request).document
        assert (document["scored"], document["bad"]) == (40, 1)
    assert (tmp_path / "here.parquet").read_bytes() == (tmp_path / "there.parquet").read_bytes()
    with pytest.raises(UserError, match="is no bundle here, or another one"):
        score_here(str(fatal_bundle), "another checksum", 5, Task(number=0, items=[]))
    errors = [row["error"] for row in pq.read_table(tmp_path / "there.parquet").to_pylist() if row["error"]]
    assert len(errors) == 1
    assert "died 3 times" in errors[0]
