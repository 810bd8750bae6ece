"""The study of ranks, on the steps of a derivation that is done."""

import json
import shutil
from pathlib import Path

import pytest

from experiments.baseline_ranks import Answered, instead_of_training
from nas.baseline.run import run_baseline
from tests.nas.baseline.conftest import configured

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("baseline")]


def test_networks_are_measured_and_trained_in_place_of_the_best_few(
    finished: Path, teacher: Path, planned: None, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "result.json").unlink()
    with instead_of_training(networks=3, epochs=1), pytest.raises(Answered) as answered:
        run_baseline(configured(teacher, run))
    document = answered.value.document
    assert len(document["rows"]) == document["networks"] == 3
    for row in document["rows"]:
        assert row["ms"] > 0
        assert 0.1 < row["accuracy"] <= 1.0
    json.dumps(document)
    assert len(list((run / "finalists").glob("*/ranks"))) == 3
    # Again, from what lies there: nothing is measured or trained anew, or times would differ.
    with instead_of_training(networks=3, epochs=1), pytest.raises(Answered) as again:
        run_baseline(configured(teacher, run))
    assert again.value.document == document
