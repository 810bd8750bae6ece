"""The page of a GPU on a fake one, and what its script may import."""

import json
import subprocess
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from experiments import gpu_page, operator_tables
from experiments.gpu_page import FromPixels, Gpu, Page, Settings, graph_figure, main, measure_all
from experiments.gpu_text import markdown, verdicts
from search_spaces.signature import TensorSpec
from tests.nas.measure.fake_gpu import FakeGpu, FakeNvml

QUICK = Settings(
    calls=3, replays=4, paced_calls=2, throughput_s=0.01, energy_s=0.01, operators_s=0.01, ceiling_side=8,
    copied_bytes=64,
)  # fmt: skip
SPEC = TensorSpec((3, 8, 8))
THERE_IS_NOTHING_ELSE = (
    "optuna", "ray", "openvino", "nncf", "onnx", "onnxscript", "click", "rich", "pydantic", "pandas", "pyarrow",
    "plotly", "psutil", "safetensors", "threadpoolctl", "tensorboardX", "scipy", "PIL", "yaml", "timm",
)  # fmt: skip


def tiny() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()


@pytest.fixture
def gpu() -> Gpu:
    library = FakeGpu(FakeNvml(joules=[float(n) for n in range(100)]))
    return Gpu(library, library.graphs)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of one tiny network; and no compiler is started."""
    monkeypatch.setattr(gpu_page, "NETWORKS", {"tiny": (tiny, SPEC)})
    monkeypatch.setattr(torch, "compile", lambda network, mode: network)
    table = operator_tables.Table(
        network="tiny", runtime="torch eager", time="device", p50_ms=1.0, operators=operator_tables.ranked([("a", 1.0)])
    )
    monkeypatch.setattr(gpu_page, "eager_table", lambda *_: table)


def blank() -> Page:
    return Page(device="a processor", gpu="a fake GPU", versions={"torch": "2"})


def test_every_figure_of_the_page_is_made(gpu: Gpu) -> None:
    page = blank()
    sessions = iter([1.0, 1.02, 1.0])
    networks = [("ResNet-50", tiny, SPEC), ("searched", tiny, SPEC)]
    measure_all(page, gpu, networks, QUICK, 1e6, lambda: next(sessions))
    assert page.left_out == []
    assert set(page.ceilings) == {"fp32", "fp16", "bf16"}
    assert [(f.network, f.how, f.batch) for f in page.figures] == [
        ("ResNet-50", "eager fp32", 1),
        ("ResNet-50", "graph fp32", 1),
        ("ResNet-50", "graph bf16", 1),
        *(("ResNet-50", "graph fp16", batch) for batch in (1, 8, 64)),
        *(("searched", "graph fp16", batch) for batch in (1, 8, 64)),
        ("ResNet-50", "graph fp16, pixels as bytes", 1),
        ("ResNet-50", "torch.compile max-autotune fp16", 1),
    ]
    whole = page.figures[3]
    assert whole.device_ms == pytest.approx(1 / QUICK.replays), "the fake's events are a millisecond apart"
    for value in (whole.call_p50_ms, whole.paced_p50_ms, whole.images_per_s, whole.joules_per_image, whole.idle_w):
        assert value is not None
        assert value > 0
    assert whole.state is not None
    assert whole.state["clock_mhz"] == 1980
    text = markdown(json.loads(json.dumps(asdict(page))))
    assert "kept: 3 sessions within 2.0 % (at most 3)" in text
    assert "Quoted, not measured here" in text
    assert "fp16 graph is" in text
    assert "Left out" not in text


def test_what_there_is_no_time_for_is_said(gpu: Gpu) -> None:
    page = blank()
    clock = iter(float(n) for n in range(0, 10_000, 20))
    measure_all(page, gpu, [("ResNet-50", tiny, SPEC)], QUICK, 60.0, None, lambda: next(clock))
    assert len(page.ceilings) == 3
    assert "torch.compile fp16: no time was left" in page.left_out
    assert "Left out: torch.compile fp16: no time was left." in markdown(asdict(page))
    assert not page.sessions_ms


def test_what_fails_does_not_take_the_rest_with_it(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA out of memory\nmore")

    page = blank()
    monkeypatch.setattr(gpu_page, "cuda_ceiling", refuse)
    measure_all(page, gpu, [("ResNet-50", tiny, SPEC)], QUICK, 1e6)
    assert page.left_out == ["ceilings: CUDA out of memory"]
    assert page.figures


def test_a_bar_that_is_missed_is_said() -> None:
    page = asdict(blank()) | {"sessions_ms": [1.0, 1.2, 1.0]}
    assert verdicts(page) == ["MISSED: 3 sessions within 20.0 % (at most 3)"]


def test_pixels_are_normalised_on_the_device_as_on_the_host() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    mean, std = (np.array(v, np.float32) for v in (gpu_page.MEAN, gpu_page.STD))
    expected = tiny()(torch.from_numpy(((pixels / np.float32(255) - mean) / std).transpose(0, 3, 1, 2).copy()))
    np.testing.assert_allclose(
        FromPixels(tiny())(torch.from_numpy(pixels)).detach(), expected.detach(), rtol=1e-4, atol=1e-5
    )
    library = FakeGpu()
    found = graph_figure(
        "tiny", lambda: FromPixels(tiny()), TensorSpec((8, 8, 3), "uint8", 256), "fp32", 2,
        Gpu(library, library.graphs), QUICK, whole=False,
    )  # fmt: skip
    assert found.paced_p50_ms is None


def test_without_a_gpu_it_says_so_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_page, "why_no_device", lambda _: "cuda:0 needs an NVIDIA driver, and this host has none")
    assert main(["--out", str(tmp_path / "gpu")]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == ["There is nothing to measure: cuda:0 needs an NVIDIA driver, and this host has none."]
    assert not list(tmp_path.iterdir())


def test_a_machine_with_torch_alone_can_run_it() -> None:
    """In a process where no other package can be imported: the script, and the network that it builds by itself."""
    code = f"""
        import sys
        class Blocked:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in {THERE_IS_NOTHING_ELSE}:
                    raise ModuleNotFoundError(name)
        sys.meta_path.insert(0, Blocked())
        import torch
        from experiments.gpu_page import Gpu, Page, Settings, measure_all, searched
        from experiments.gpu_text import markdown
        name, make, spec = searched(None)
        assert make()(torch.zeros(1, *spec.shape)).shape == (1, 10)
        print("built", name)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("built")
