"""With a GPU at hand all that is taught is taught there, and what is delivered is as it would be without."""

from pathlib import Path

import pytest
import torch

from nas.baseline.run import run_baseline
from nas.networks.description import load_network
from tests.nas.baseline.conftest import configured

pytestmark = pytest.mark.gpu


def test_a_network_is_taught_on_the_gpu_and_measured_on_the_processor(
    teacher: Path, planned: None, tmp_path: Path
) -> None:
    torch.cuda.reset_peak_memory_stats()
    result = run_baseline(configured(teacher, tmp_path / "run"))
    assert torch.cuda.max_memory_allocated() > 0
    (best,) = result.document["best"]
    assert best["within_limit"]
    assert best["runs_on"] == "cpu"
    assert best["loss"]["validation"]["mean"] <= 0.1
    network = load_network(result.run_dir / "winners" / "1" / "model.network.json")
    assert {p.device.type for p in network.parameters()} == {"cpu"}
