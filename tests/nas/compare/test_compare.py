"""Two made-up benches side by side: the arithmetic, the command, and everything that can be wrong with its files."""

import copy
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from nas.cli.main import run
from nas.compare.compare import CompareConfig, quoted_rows, run_compare
from nas.compare.tables import print_comparison
from nas.errors import UserError
from tests.nas.bench.documents import document

PHOTOS, RESNET = "runs/photos#1", "torchvision:resnet50"
SMALL = "{name: small, price_per_hour: 0.05, currency: EUR, date: 2026-11-01, source: a list, cores: 2}"
GPU = "{name: gpu, price_per_hour: 0.60, currency: EUR, date: 2026-11-01, source: a list, cores: 8}"


def on_a_gpu(bench: dict[str, Any], factor: float = 0.25) -> dict[str, Any]:
    """The same networks in fp16 on a GPU, in `factor` of the time of onnxruntime-fp32; a batch of 8 takes 0.2 J."""
    found = copy.deepcopy(bench)
    found["fingerprint"]["gpu"] = "A GPU"
    found["cells"] = [c for c in found["cells"] if c["runtime"] == "onnxruntime" and c["precision"] == "fp32"]
    for cell in found["cells"]:
        cell |= {"runtime": "torch", "precision": "fp16", "runs_on": "cuda:0", "threads": 1, "disturbance": None}
        cell |= {"verdict": "quiet", "energy_mj": 25.0 * cell["batch"], "images_per_s": cell["images_per_s"] / factor}
        if cell["p50_ms"] is not None:
            cell["p50_ms"] *= factor
    return found


@pytest.fixture
def benches(tmp_path: Path) -> tuple[Path, Path]:
    here = document()
    return written(tmp_path / "cpu.json", here), written(tmp_path / "gpu.json", on_a_gpu(here))


def written(path: Path, bench: object) -> Path:
    path.write_text(json.dumps(bench), encoding="utf-8")
    return path


def priced(folder: Path, *entries: str) -> Path:
    path = folder / "prices.yaml"
    path.write_text("".join(f"- {entry}\n" for entry in entries), encoding="utf-8")
    return path


def cell_of(path: Path, model: str, deployment: tuple[str, str], batch: int, streams: int = 1) -> dict[str, Any]:
    cells = json.loads(path.read_text())["cells"]
    key = (model, *deployment, batch, streams)
    return next(c for c in cells if (c["model"], c["runtime"], c["precision"], c["batch"], c["streams"]) == key)


def test_each_side_is_its_fastest_deployment_at_batch_1(benches: tuple[Path, Path]) -> None:
    found = run_compare(CompareConfig(a=benches[0], b=benches[1]))
    photos, resnet = found["networks"]
    assert (photos["model"], resnet["model"]) == (PHOTOS, RESNET)
    assert (photos["a"]["deployment"], photos["b"]["deployment"]) == ("openvino-int8", "torch-fp16@cuda:0")
    fast, other = (
        cell_of(benches[0], PHOTOS, ("openvino", "int8"), 8),
        cell_of(benches[1], PHOTOS, ("torch", "fp16"), 8),
    )
    assert photos["latency_ratio"]["8"] == pytest.approx(other["p50_ms"] / fast["p50_ms"])
    assert set(resnet["latency_ratio"]) == {"1", "32"}, "batch 8 of A was not measured"
    assert [call["joules_per_image"] for call in photos["b"]["calls"]] == [0.025] * 3
    assert photos["a"]["joules_per_image"] is None
    assert photos["b"]["images_per_s"] == max(
        c["images_per_s"] for c in json.loads(benches[1].read_text())["cells"] if c["model"] == PHOTOS
    )
    assert photos["break_even"] is None
    assert photos["a"]["roofline"] is None


def test_a_deployment_can_be_named_also_of_one_bench_twice(benches: tuple[Path, Path]) -> None:
    names = ("onnxruntime-fp32", "openvino-bf16")
    found = run_compare(CompareConfig(a=benches[0], b=benches[0], deployments=names))
    photos = found["networks"][0]
    assert (photos["a"]["deployment"], photos["b"]["deployment"]) == names
    assert photos["latency_ratio"]["1"] == pytest.approx(1.1 / 4.0)
    assert photos["a"]["disturbed"], "a cell of it is"
    assert not photos["b"]["disturbed"]


def test_cost_and_break_even_are_those_of_whole_machines(benches: tuple[Path, Path], tmp_path: Path) -> None:
    found = run_compare(CompareConfig(a=benches[0], b=benches[1], prices=priced(tmp_path, SMALL, GPU)))
    photos = found["networks"][0]
    a, b = photos["a"], photos["b"]
    assert a["cost"]["per_million"] == pytest.approx(0.05 / 3600 / a["images_per_s"] * 1e6)
    assert b["cost"]["per_million"] == pytest.approx(0.60 / 3600 / b["images_per_s"] * 1e6)
    assert b["cost"]["scaled_from_cores"] is None, "the cores of a GPU's host are not the GPU's"
    even = photos["break_even"]
    assert (even["below"], even["above"]) == ("a", None if even["images_per_s"] is None else "b")
    swapped = run_compare(
        CompareConfig(a=benches[1], b=benches[0], prices=tmp_path / "prices.yaml", machines=("gpu", "small"))
    )
    assert swapped["networks"][0]["a"]["cost"] == b["cost"]
    assert swapped["networks"][0]["break_even"]["images_per_s"] == even["images_per_s"]
    assert swapped["networks"][0]["break_even"]["below"] == "b"


def test_one_price_is_of_both_and_then_the_faster_one_is_never_dearer(
    benches: tuple[Path, Path], tmp_path: Path
) -> None:
    names = ("onnxruntime-fp32", "openvino-bf16")
    config = CompareConfig(a=benches[0], b=benches[0], deployments=names, prices=priced(tmp_path, SMALL))
    even = run_compare(config)["networks"][0]["break_even"]
    assert even == {"below": "b", "above": None, "images_per_s": None}, "the same price, and B is faster"


def test_the_tables_say_what_was_measured_and_what_is_quoted(benches: tuple[Path, Path], tmp_path: Path) -> None:
    prices = priced(tmp_path, SMALL, GPU)
    text = StringIO()
    console = Console(file=text, width=100, highlight=False)
    print_comparison(run_compare(CompareConfig(a=benches[0], b=benches[1], prices=prices)), console)
    said = text.getvalue()
    assert max(map(len, said.splitlines())) <= 100
    for words in ("Measured: latency", "QUOTED, not measured here", "L4", "v3.0", "NVIDIA", "per million", "0.025",
                  "no roofline", "a dash where the device's energy counter"):  # fmt: skip
        assert words in said
    assert "cheaper" in said


def test_every_quoted_row_says_who_and_when() -> None:
    quoted = quoted_rows()
    assert "mlcommons" in quoted["source"]
    for row in quoted["rows"]:
        assert row["round"].startswith("v")
        assert row["submitter"]
        assert any(row[key] is not None for key in ("one_image_p90_ms", "offline_per_s", "server_per_s"))
        for key in ("offline_per_s", "server_per_s"):
            assert row[key] is None or row[key][0] <= row[key][1]


def test_what_is_in_one_bench_alone_is_said_and_the_rest_is_compared(tmp_path: Path) -> None:
    a = written(tmp_path / "a.json", document())
    b = written(tmp_path / "b.json", document((RESNET, "else.onnx")))
    found = run_compare(CompareConfig(a=a, b=b))
    assert [network["model"] for network in found["networks"]] == [RESNET]
    assert found["not_compared"] == [
        f"{PHOTOS} is not in B ('{b}'): bench it there under the same name",
        f"else.onnx is not in A ('{a}'): bench it there under the same name",
    ]


def other_input(bench: dict[str, Any]) -> None:
    for model in bench["models"]:
        model["input"]["shape"] = [3, 64, 64]


def unmeasured(bench: dict[str, Any]) -> None:
    for cell in bench["cells"]:
        cell["not_measured"] = "it crashed"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_input, "takes 3x128x128 in A and 3x64x64 in B"),
        (unmeasured, "nothing was measured in"),
        (lambda bench: bench.update(schema=0), "has schema 0, and this version reads 1"),
        (lambda bench: bench.pop("cells"), "is no document of `nas bench --json`"),
        (lambda bench: bench["cells"][0].pop("batch"), "lacks batch of cells[0]"),
        (lambda bench: bench["models"].append(3), "lacks everything of models[2]"),
    ],
)
def test_a_bench_that_is_none_is_one_sentence_and_a_hint(
    change: Callable[[dict[str, Any]], None], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = document(), document()
    change(bad)
    paths = written(tmp_path / "good.json", good), written(tmp_path / "bad.json", bad)
    assert run(["compare", *map(str, paths)]) == 1
    error, hint = capsys.readouterr().err.splitlines()
    assert said in error
    assert hint.startswith("hint: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.json", "cpu.json"], "cannot read the bench"),
        (["prices.yaml", "cpu.json"], "is no JSON"),
        (["cpu.json", "cpu.json", "--deployments", "openvino-int8", "openvino-fp61"], "no deployment 'openvino-fp61'"),
        (["cpu.json", "gpu.json", "--prices", "prices.yaml", "--machines", "small", "huge"], "no price of 'huge'"),
        (["cpu.json", "gpu.json", "--prices", "prices.yaml"], "has 3 prices"),
        (["cpu.json", "gpu.json", "--prices", "hole.yaml"], "0.cores: Field required"),
        (["cpu.json", "gpu.json", "--machines", "small", "gpu"], "no prices"),
    ],
)
def test_other_bad_input_is_one_sentence_and_a_hint(
    arguments: list[str], said: str, benches: tuple[Path, Path], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    priced(tmp_path, SMALL, GPU, GPU.replace("gpu", "large"))
    (tmp_path / "hole.yaml").write_text(f"- {SMALL.replace(', cores: 2', '')}\n")
    assert run(["compare", *arguments]) == 1
    error, hint = capsys.readouterr().err.splitlines()
    assert said in error
    assert hint.startswith("hint: ")


def test_the_command_prints_one_document(benches: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *map(str, benches), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["command"].startswith("nas compare")
    assert found["b"]["gpu"] == "A GPU"
    with pytest.raises(UserError, match="no deployment"):
        run_compare(CompareConfig(a=benches[0], b=benches[1], deployments=("openvino-int8", "openvino-int8")))
