"""Real advice from the command line to its document, and every sentence about bad input."""

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from nas.advice import ceiling, timing
from nas.advice.figure import bars_of, write_plot
from nas.advice.subject import read_subject
from nas.advice.tables import print_advice
from nas.cli.main import run
from nas.measure import protocol
from nas.networks.description import NETWORK
from nas.runtimes import load_runtime
from nas.runtimes.base import FloatPart
from search_spaces import load_search_space, space_of
from tests.nas.advice.graphs import Chain, plain
from tests.nas.fake_device import fake_profile, save_fake_profile

OPTIONS = ("--threads", "1", "--sessions", "1", "--json", "--quiet")
pytestmark = pytest.mark.xdist_group("advise")


@pytest.fixture(autouse=True)
def brief_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REPEATS", 0)
    monkeypatch.setattr(timing, "PROFILED_S", 0.02)
    monkeypatch.setattr(ceiling, "PROFILED_S", 0.02)
    monkeypatch.setattr(ceiling, "SESSIONS", 1)
    monkeypatch.setattr(ceiling, "SECONDS", 0.02)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's cache with a profile of this machine."""
    folder = tmp_path_factory.mktemp("cache")
    save_fake_profile(folder, fake_profile("local", networks=64, spaces=["mobile"], threads=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def with_faults() -> Chain:
    """An activation and a squeeze-and-excitation that ONNX Runtime does not fuse."""
    return plain(side=32).apply("HardSwish", name="odd").excite(8, "se").conv(16, name="last")


@pytest.mark.slow
def test_a_file_in_two_deployments(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = with_faults().save(tmp_path / "network.onnx")
    deployments = ["--runtime", "onnxruntime", "--precision", "fp32", "--against", "onnxruntime-int8"]
    picture = ["--plot", str(tmp_path / "advice.png")]
    assert run(["advise", str(network), *deployments, *picture, *OPTIONS]) == 0
    document = json.loads(capsys.readouterr().out)

    blocks = document["blocks"]
    asked = {"name", "kind", "ms", "share", "macs", "share_macs", "excess", "ceiling_share", "bound", "precision"}
    assert all(asked <= set(block) for block in blocks)
    assert sum(block["share"] for block in blocks) == pytest.approx(1)
    assert document["blocks_ms"] == pytest.approx(sum(block["ms"] for block in blocks))
    assert document["sum_over_p50"] * document["p50_ms"] == pytest.approx(
        document["blocks_ms"] + document["outside_ms"]
    )
    assert document["unassigned_ms"] <= 0.05 * document["blocks_ms"]
    assert {block["precision"] for block in blocks if block["macs"]} == {"fp32"}
    assert {block["bound"] for block in blocks} <= {"compute", "memory", "overhead"}
    assert set(document["ceiling"]["gmacs_per_s"]) == {"fp32"}
    assert document["profiler_overhead_pct"] > -20
    assert "squeeze-excite" in {finding["rule"] for finding in document["findings"]}

    other = document["against"]
    assert "int8" in {block["precision"] for block in other["blocks"]}
    assert [row["name"] for row in other["rows"]] == [block["name"] for block in blocks]
    assert sorted(row["against_rank"] for row in other["rows"]) == list(range(1, len(blocks) + 1))

    assert document["what_if"] == []
    assert "is of no search space" in document["no_what_if"]
    text = StringIO()
    print_advice(document, Console(file=text))
    assert "The same blocks in onnxruntime-int8" in text.getvalue()
    assert "nothing here says what a change does to the accuracy" in text.getvalue()
    assert all(len(line) <= 100 for line in text.getvalue().splitlines())
    with Image.open(tmp_path / "advice.png") as image:
        assert image.height > 34 * len(blocks)
    write_plot(document, tmp_path / "advice.html")
    page = (tmp_path / "advice.html").read_text(encoding="utf-8")
    assert "share of the MACs" in page
    assert "<script src=" not in page, "it opens offline"


@pytest.mark.slow
def test_layers_that_a_quantised_file_left_in_fp32_are_found(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = plain().conv(16, 3, name="fourth").conv(16, 3, name="fifth")
    images = np.random.default_rng(0).standard_normal((4, 3, 16, 16)).astype(np.float32)
    left = FloatPart("odd", ("second", "third"))  # ONNX Runtime quantises a single one between two others itself
    network = load_runtime("onnxruntime").prepare(
        chain.save(tmp_path / "network.onnx"), "int8", tmp_path, images, float_part=left
    )
    assert run(["advise", str(network), "--runtime", "onnxruntime", "--precision", "int8", *OPTIONS]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {f["layer"] for f in document["findings"] if f["rule"] == "float-in-int8"} == {"second", "third"}
    assert {b["precision"] for b in document["blocks"]} == {"int8", "fp32"}
    assert sum(b["macs"] for b in document["blocks"]) == chain.graph(tmp_path).macs


@pytest.mark.slow
def test_a_change_of_an_architecture_is_applied(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = load_search_space("mobile").restrict("resolution", [32])
    arch = space.architecture([len(d.options) - 1 if ".depth" in d.name else 0 for d in space.decisions])
    (tmp_path / "arch.json").write_text(json.dumps(space.to_json(arch)))
    options = ["--runtime", "onnxruntime", "--precision", "fp32", "--apply", "2", *OPTIONS]
    assert run(["advise", str(tmp_path / "arch.json"), *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["no_what_if"] is None
    assert "profile 'local' of this machine" in document["what_if_profile"]
    assert [b["name"] for b in document["blocks"]] == [m for places in space.slot_places(arch) for m in places]
    measured = [change for change in document["what_if"] if change["measured_ms"] is not None]
    assert len(measured) == 2
    assert document["applied_before_ms"] > 0
    assert document["applied_verdict"] in ("quiet", "disturbed")
    assert all(low <= c["saves_ms"] <= high for c in document["what_if"] for low, high in [c["interval"]])
    text = StringIO()
    print_advice(document, Console(file=text))
    assert "measured beside the original" in text.getvalue()


def test_a_bundle_is_advised_in_its_own_deployment(tmp_path: Path) -> None:
    from tests.nas.small_bundles import save_pair

    save_pair(tmp_path / "bundle")
    (tmp_path / "bundle" / "receipt.json").write_text(json.dumps({"runtime": "openvino", "precision": "int8"}))
    for text in (tmp_path / "bundle", tmp_path / "bundle" / NETWORK):
        subject = read_subject(str(text), None, tmp_path)
        assert subject.own == ("openvino", "int8")
        assert subject.architecture is not None
        modules = subject.modules()
        assert modules is not None
        assert modules["stem"] == "stem"
        assert set(modules.values()) <= set(space_of(subject.architecture).families)


def test_bars_are_the_documents() -> None:
    block = {"name": "a", "ms": 1.0, "share": 0.25, "share_macs": None, "bound": "memory"}
    (bar,) = bars_of({"blocks": [block]})
    assert (bar.name, bar.share, bar.share_macs) == ("a", 0.25, 0.0)
    assert "25.0 % of the time" in bar.label


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["{folder}/absent.onnx"], "no such network"),
        (["{one}"], "consists of one block"),
        (["{eight}"], "cannot be changed to batch 1"),
        (["{network}", "--against", "h200"], "'h200' is no deployment"),
        (["{network}", "--against", "onnxruntime-int3"], "unknown precision 'int3'"),
        (["{network}", "--against", "torch-fp16@cuda:7"], "cuda:7"),
        (["{network}", "--device", "cuda:7"], "cuda:7"),
        (["{network}", "--plot", "{folder}/advice.txt"], "cannot draw"),
        (["{network}", "--target", "nowhere"], "unknown target 'nowhere'"),
        (["{network}", "--apply", "1"], "there is nothing to apply"),
        (["timm:no_such_network"], "no_such_network"),
    ],
)
def test_bad_input_is_a_sentence(
    arguments: list[str], why: str, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {
        "folder": tmp_path,
        "network": plain().save(tmp_path / "network.onnx"),
        "one": Chain().conv(8, 3).apply("Relu").save(tmp_path / "one.onnx"),
        "eight": plain(batch=8).reshape(8, -1).save(tmp_path / "eight.onnx"),
    }
    given = [argument.format(**places) for argument in arguments]
    assert run(["advise", *given, "--runtime", "onnxruntime", "--precision", "fp32", *OPTIONS]) == 1
    message = capsys.readouterr().err
    assert why in message
    assert "hint:" in message
    assert "Traceback" not in message
