"""What all tests share: which ones this machine can run, and how many threads they may use."""

import os

import pytest

# Before torch is imported: it would start a thread per core of the machine, also where a container may use two.
os.environ.setdefault("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_tests:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
