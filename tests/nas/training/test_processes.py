"""Two processes compute what one does: each batch is divided among them, and their gradients are averaged."""

import os
import sys
from pathlib import Path

import pytest
import torch

from nas.files.tensors import load_tensors
from tests.nas.killing import start
from tests.nas.training import processes


@pytest.mark.slow
def test_two_processes_end_with_the_weights_of_one(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    process = start([*torchrun, processes.__name__, str(tmp_path / "two")], environment)
    _, err = process.communicate()
    assert process.returncode == 0, err
    processes.train(tmp_path / "one")
    expected, _ = load_tensors(tmp_path / "one" / "weights.0.safetensors")
    before = processes.network().state_dict()
    for rank in range(2):
        found, story = load_tensors(tmp_path / "two" / f"weights.{rank}.safetensors")
        assert story == {"size": 2}
        for name, tensor in expected.items():
            assert torch.allclose(found[name], tensor, rtol=1e-4, atol=1e-6), name
            assert not torch.allclose(found[name], before[name], rtol=1e-4, atol=1e-6), name
