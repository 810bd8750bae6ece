"""Which devices a host has, in words, and the execution providers of each."""

import pytest

from nas.errors import UserError
from nas.runtimes import deployments_here
from nas.runtimes.devices import execution_providers, parse_device, require_device, why_no_device, why_no_provider
from tests.nas.fake_cuda import FakeCuda


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:12"])
def test_a_device_is_read(device: str) -> None:
    assert parse_device(device) == device
    assert parse_device("cuda") == "cuda:0"


@pytest.mark.parametrize("text", ["gpu", "", "cuda:", "cuda:-1", "cuda:01", "cpu:0", "CUDA:0", "cuda:1 "])
def test_anything_else_is_named_and_refused(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_device(text)
    assert repr(text) in str(caught.value)
    assert "cuda:0" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("device", "cuda", "words"),
    [
        ("cuda:0", FakeCuda(driver=False), "needs an NVIDIA driver"),
        ("cuda:0", FakeCuda(build=None), "built without"),
        ("cuda:0", FakeCuda(gpus=0), "shows PyTorch no GPU"),
        ("cuda:1", FakeCuda(gpus=1), "this host has cuda:0 alone"),
        ("cuda:7", FakeCuda(gpus=4), "this host has cuda:0 to cuda:3"),
        ("cuda:3", FakeCuda(gpus=4), None),
        ("cpu", FakeCuda(driver=False), None),
    ],
)
def test_why_a_device_cannot_be_used(device: str, cuda: FakeCuda, words: str | None) -> None:
    reason = why_no_device(device, cuda)
    assert reason is None if words is None else words in str(reason)


def test_a_device_that_this_host_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nas.runtimes.devices.nvidia_device_present", lambda: False)
    require_device("cpu")
    with pytest.raises(UserError, match="cuda:0 needs an NVIDIA driver"):
        require_device("cuda:0")
    assert deployments_here(2, device="cuda:0") == []


def test_providers_follow_the_device() -> None:
    assert execution_providers("cpu") == ["CPUExecutionProvider"]
    both = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    names = [p if isinstance(p, str) else p[0] for p in execution_providers("cuda:1", both)]
    assert names == both
    assert [p[1]["device_id"] for p in execution_providers("cuda:1", both) if not isinstance(p, str)] == [1, 1]
    (cuda, cpu) = execution_providers("cuda:0", both[1:])
    assert cuda == ("CUDAExecutionProvider", {"device_id": 0, "use_tf32": 0})
    assert cpu == "CPUExecutionProvider"


def test_a_runtime_of_the_cpu_says_so() -> None:
    assert "onnxruntime-gpu" in str(why_no_provider("cuda:0", ["CPUExecutionProvider"]))
    assert why_no_provider("cuda:0", ["CUDAExecutionProvider", "CPUExecutionProvider"]) is None
    assert why_no_provider("cpu", ["CPUExecutionProvider"]) is None
