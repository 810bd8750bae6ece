"""A deployment names its device; those of the CPU are named, ordered and read as before there were others."""

import json
from dataclasses import asdict, replace

import pytest

from nas.deployment import Deployment, Placement, cuda_index, name_in

CPU = Deployment("torch", "fp32", 2)
GPU = Deployment("torch", "fp32", 1, device="cuda:0")


def test_cpu_and_gpu_of_one_host_are_two_deployments() -> None:
    assert replace(CPU, device="cuda:0") != CPU
    assert len({CPU, GPU, replace(GPU, device="cuda:1")}) == 3
    assert (CPU.name, GPU.name) == ("torch-fp32", "torch-fp32@cuda:0")
    assert (CPU.placement, GPU.placement) == (Placement("cpu", 2), Placement("cuda:0", 1))


def test_a_deployment_that_names_no_device_runs_on_the_cpu() -> None:
    assert Deployment(**{"runtime": "openvino", "precision": "int8", "threads": 2, "batch": 1}).device == "cpu"
    assert Deployment(**json.loads(json.dumps(asdict(GPU)))) == GPU
    assert name_in({"runtime": "openvino", "precision": "int8"}) == "openvino-int8"
    assert name_in({"runtime": "torch", "precision": "fp16", "runs_on": "cuda:1"}) == "torch-fp16@cuda:1"


def test_deployments_of_the_cpu_are_ordered_by_runtime_precision_threads_and_batch() -> None:
    made = [Deployment(r, p, t, b) for r in ("a", "b") for p in ("fp32", "int8") for t in (1, 2) for b in (1, 8)]
    shuffled = made[1::2] + made[::2]
    assert sorted(shuffled) == made


def test_a_gpu_fits_any_number_of_threads() -> None:
    assert [CPU.fits_threads(n) for n in (None, 2, 1)] == [True, True, False]
    assert all(GPU.fits_threads(n) for n in (None, 1, 2))


@pytest.mark.parametrize("device", ["cuda", "gpu", "cuda:x", "cuda:-1", "", "cpu:0"])
def test_other_devices_are_refused(device: str) -> None:
    with pytest.raises(ValueError, match="device"):
        Deployment("torch", "fp32", 1, device=device)
    assert cuda_index(device) is None
