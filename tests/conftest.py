"""What all tests share: which ones this machine can run, and how many threads they may use."""

import os

import hypothesis
import pytest

# Before torch is imported: it would start a thread per core of the machine, also where a container may use two.
# Tests that run side by side take one each: threads of several processes that wait for each other wait long.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))
# Workers that tests start train with all cores. Where those are busy, threads that spin while they wait for one another
# keep each other from the core: 150 small steps on two busy cores took 28 to 51 s instead of 1.2 s.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# How long an example takes says how busy the machine is, and nothing else.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


@pytest.hookimpl(trylast=True)  # after pytest-xdist has named the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    grouped = [item for item in items if item.get_closest_marker("xdist_group")]
    if getattr(config.option, "loadgroup", False) and grouped and "@" not in grouped[0].nodeid:
        raise pytest.UsageError(
            f"pytest {pytest.__version__} and pytest-xdist do not keep groups together, so that what is set up "
            "for all of them is made on each worker: install the versions in constraints.txt"
        )
    # The longest first: workers that run side by side then end at about the same time.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_tests:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
