"""A kit goes to a device without torch and comes back as a profile."""

import json
import math
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from nas.cli.main import run
from nas.errors import UserError
from nas.progress import SilentProgress
from nas.targets import kit as kit_module
from nas.targets import kit_measure
from nas.targets.kit import export_random_networks, import_result, repeat_weights
from nas.targets.kit_measure import host, quota_cores
from nas.targets.latency import LatencyModel
from nas.targets.preparing import networks_to_measure
from nas.targets.profile import DeviceProfile
from search_spaces import load_search_space, resolve_space
from tests.nas.bare_python import make_bare_python
from tests.nas.fake_device import fake_profile

pytestmark = pytest.mark.xdist_group("kit")  # one set-up for all of them

NETWORKS = 12


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked kit of small networks."""
    folder = tmp_path_factory.mktemp("kit")
    export_random_networks(
        folder / "kit.zip", progress=SilentProgress(), networks=NETWORKS,
        allowed={"resolution": [32], **{f"stage{number}.depth": [1] for number in (1, 2, 3, 4)}},
    )  # fmt: skip
    assert (folder / "kit.zip").stat().st_size < 20 * 2**20
    with zipfile.ZipFile(folder / "kit.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that holds numpy and onnxruntime and nothing else."""
    return make_bare_python(tmp_path_factory.mktemp("bare"), (np, onnxruntime))


@pytest.mark.slow
def test_a_device_without_torch_is_profiled(kit: Path, bare_python: Path, tmp_path: Path) -> None:
    assert subprocess.run([bare_python, "-c", "import torch"], capture_output=True).returncode != 0
    result = tmp_path / "result.json"
    line = [bare_python, kit / "measure.py", "--threads", "1", "--seconds", "0.03", "--out", result]
    done = subprocess.run([*line, "--sessions", "1"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = subprocess.run([*line, "--sessions", "2"], capture_output=True, text=True, cwd=tmp_path)
    assert "session 2 of 2" in again.stderr
    assert "session 1 of 2" not in again.stderr, "what was finished is not repeated"
    profile = import_result("edge", result)
    profile.save(tmp_path / "edge.json")
    assert [t.deployment.name for t in profile.tables] == ["onnxruntime-fp32", "onnxruntime-int8"]
    assert profile.fingerprint.cores >= 1
    for table in profile.tables:
        assert table.measured == NETWORKS
        assert (table.column("latency_ms") > 0).all()
        assert all(len(timing.block_ms) == 10 for timing in table.timings)
        memory = table.column("memory_bytes")
        assert np.isnan(memory).all() or np.nanmax(memory) > 2**16, "measured, or the kernel forbids it"
    space = load_search_space("mobile").restrict("resolution", [32])
    predicted = LatencyModel(profile).predict(space, space.sample(5, np.random.default_rng(0)), (10,))
    assert all((p.mean > 0).all() for p in predicted.values())


@pytest.mark.slow
def test_a_network_that_ends_its_process_is_noted(kit: Path, bare_python: Path, tmp_path: Path) -> None:
    broken = tmp_path / "kit"
    broken.mkdir()
    for file in kit.iterdir():
        if file.suffix != ".zip":
            (broken / file.name).symlink_to(file)
    manifest = json.loads((kit / "kit.json").read_text())
    manifest["networks"] = manifest["networks"][:2]
    (broken / "kit.json").unlink()
    (broken / "kit.json").write_text(json.dumps(manifest))
    (broken / "0.fp32.onnx").unlink()
    (broken / "0.fp32.onnx").write_bytes(b"not a network")
    script = (kit / "measure.py").read_text().replace('    reference, _ = load("reference.onnx", job["threads"])\n', (
        '    reference, _ = load("reference.onnx", job["threads"])\n'
        '    if job["tasks"][0][0] == "1/int8":\n        os.abort()\n'
    ))  # fmt: skip
    (broken / "measure.py").unlink()
    (broken / "measure.py").write_text(script)
    result = tmp_path / "r.json"
    line = [bare_python, broken / "measure.py", "--threads", "1", "--seconds", "0.02", "--sessions", "1"]
    done = subprocess.run([*line, "--out", result], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (session,) = json.loads(result.read_text())["sessions"]
    assert "failed" in session["0/fp32"]
    assert "failed" not in session["0/int8"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        '{"schema": 1}',
        '{"kit": {"networks": []}, "schema": 1, "sessions": []}',
        '{"kit": {"networks": []}, "schema": 1, "sessions": [{}], "host": {"cpuinfo": "", "cores": "?"}}',
    ],
)
def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(content)
    with pytest.raises(UserError, match="not the result of a kit"):
        import_result("x", path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r["sessions"][0]["1/fp32"].update(p50_ms=0.0), "a latency of 0.0 ms"),
        (lambda r: r["sessions"][1]["2/fp32"].update(p50_ms=math.nan), "a latency of nan ms"),
        (lambda r: r["sessions"][0]["0/fp32"].update(reference_p50_ms=-1), "a latency of -1 ms"),
        (lambda r: r["kit"].pop("output_size"), "output_size"),
        (lambda r: r["sessions"].clear(), "no session"),
        (lambda r: r["sessions"][0].pop("3/fp32"), "3/fp32"),
        (lambda r: r.update(schema=2), "of schema 2, not 1"),
        (lambda r: [a.update(failed="no such operator") for a in r["sessions"][0].values()], "few.*no such operator"),
    ],
)
def test_results_that_cannot_be_are_refused(change: Callable[[Any], None], words: str, tmp_path: Path) -> None:
    result, path = result_of_a_kit([(1.0, 1.0)] * 12), tmp_path / "result.json"
    change(result)
    path.write_text(json.dumps(result))
    with pytest.raises(UserError, match=words):
        import_result("edge", path)


def test_a_result_goes_to_a_file_and_sets_the_profile_there_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All networks take equally long in it, and their order is none."""
    (tmp_path / "result.json").write_text(json.dumps(result_of_a_kit([(1.0, 1.0)] * 16)))
    out = tmp_path / "edge.json"
    fake_profile("edge", 12).save(out)
    line = ["profile", "edge", "--import-kit", str(tmp_path / "result.json"), "--out"]
    assert run([*line, str(tmp_path)]) == 1
    assert "it is a folder" in capsys.readouterr().err
    assert run([*line, str(out)]) == 0
    assert "edge.json.old" in capsys.readouterr().err
    assert len(DeviceProfile.load(out).networks) == 16
    assert len(DeviceProfile.load(tmp_path / "edge.json.old").networks) == 12
    held_out = DeviceProfile.load(out).tables[0].held_out
    assert held_out is not None
    assert held_out.kendall_tau == 0


FAKE_WORKER = """
import json, sys, time
job = json.load(open(sys.argv[2]))
print("asked for", len(job["tasks"]), file=sys.stderr, flush=True)
for task, file in job["tasks"]:
    if file == "hangs":
        time.sleep(60)
    print(json.dumps({"task": task, "p50_ms": 1.0}), flush=True)
"""


@pytest.fixture
def fake_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kit of four networks for the script in this process; its worker measures nothing. Results go to the path."""
    (tmp_path / "kit.json").write_text(
        json.dumps({"batch": 1, "providers": [], "networks": [{"files": {"fp32": "f"}}] * 4})
    )
    (tmp_path / "worker.py").write_text(FAKE_WORKER)
    monkeypatch.setattr(kit_measure, "HERE", tmp_path)
    monkeypatch.setattr(kit_measure, "__file__", str(tmp_path / "worker.py"))
    out = tmp_path / "result.json"
    monkeypatch.setattr(sys, "argv", ["measure.py", "--threads", "1", "--sessions", "1", "--out", str(out)])
    return out


def test_an_interrupted_script_goes_on_within_its_session(
    fake_kit: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(text: str) -> None:
        if text == "\r3 of 4":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kit_measure, "log", interrupt)
        with pytest.raises(SystemExit, match="the same command goes on"):
            kit_measure.main()
    assert len(json.loads(fake_kit.read_text())["unfinished"]) == 3
    kit_measure.main()
    assert capfd.readouterr().err.count("asked for 1\n") == 1, "only the one that is left"
    result = json.loads(fake_kit.read_text())
    assert [len(session) for session in result["sessions"]] == [4]
    assert result["unfinished"] == {}


def test_a_network_that_hangs_is_left_out(tmp_path: Path, fake_kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    networks = [{"files": {"fp32": "hangs" if i == 1 else "f"}} for i in range(3)]
    (tmp_path / "kit.json").write_text(json.dumps({"batch": 1, "providers": [], "networks": networks}))
    monkeypatch.setattr(kit_measure, "NETWORK_S", 3)
    kit_measure.main()
    (session,) = json.loads(fake_kit.read_text())["sessions"]
    assert [task for task, answer in session.items() if "failed" in answer] == ["1/fp32"]
    assert set(session) == {"0/fp32", "1/fp32", "2/fp32"}


@pytest.mark.parametrize("content", ['["notes of somebody"]', "{", '{"threads": 64}'])
def test_another_file_in_the_place_of_the_result_is_kept(content: str, fake_kit: Path) -> None:
    fake_kit.write_text(content)
    kit_measure.main()
    assert fake_kit.with_name("result.json.old").read_text() == content
    assert len(json.loads(fake_kit.read_text())["sessions"]) == 1


@pytest.mark.parametrize(
    "option", ["--threads 0", "--threads -1", "--threads 100000", "--sessions 0", "--seconds 0", "--seconds nan",
               "--out kit.json/r.json"],
)  # fmt: skip
def test_what_the_script_cannot_do_is_refused_at_once(
    option: str, fake_kit: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(fake_kit.parent)
    monkeypatch.setattr(sys, "argv", [*sys.argv, *option.split()])
    with pytest.raises(SystemExit) as ended:
        kit_measure.main()
    assert ended.value.code == 2
    assert option.split()[-1] in capfd.readouterr().err or option.startswith("--se")
    assert not fake_kit.exists()


def result_of_a_kit(references: list[tuple[float, float]]) -> dict[str, Any]:
    """What the script writes after two sessions; each network's reference latency in them is given."""
    archs = networks_to_measure([resolve_space("mixed")], len(references), 0, {"resolution": [32]})
    networks = [
        {"architecture": load_search_space(a.space).to_json(a), "files": {"fp32": f"{i}.fp32.onnx"}}
        for i, a in enumerate(archs)
    ]
    sessions = [
        {
            f"{i}/fp32": {
                "p50_ms": 2.0,
                "reference_p50_ms": times[session],
                "memory_bytes": 1000 + session,
                "nodes": [],
            }
            for i, times in enumerate(references)
        }
        for session in range(2)
    ]
    return {
        "schema": 1, "kit": {"output_size": [10], "networks": networks}, "host": {**host(), "quota_cores": 1.5},
        "threads": 1, "batch": 1, "sessions": sessions, "seconds": 1.0,
    }  # fmt: skip


def test_what_a_kit_says_of_its_device_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result_of_a_kit([(1.0, 1.1), (1.0, 1.4), (1.0, 1.0)])))
    profile = import_result("edge", path)
    assert profile.disturbed == 1, "beside the second network the device was 40 % slower once"
    assert profile.fingerprint.quota_cores == 1.5
    assert profile.tables[0].column("memory_bytes").tolist() == [1001, 1001, 1001], "the largest of the sessions"
    assert profile.energy_not_measured is not None


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_the_script_knows_the_quota_of_a_container(files: dict[str, str], cores: float | None, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert quota_cores(str(tmp_path)) == cores


def test_kits_are_of_onnxruntime(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="onnxruntime"):
        export_random_networks(tmp_path / "k.zip", progress=SilentProgress(), networks=1, runtimes=["openvino"])
    with pytest.raises(UserError, match="bf16"):
        export_random_networks(tmp_path / "k.zip", progress=SilentProgress(), networks=1, precisions=["bf16"])
    assert not list(tmp_path.iterdir())


def test_a_kit_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(UserError, match="it is a folder"):
        export_random_networks(tmp_path, progress=SilentProgress(), networks=1)
    (tmp_path.parent / "notes").write_text("of somebody")
    with pytest.raises(UserError, match="cannot write"):
        export_random_networks(tmp_path.parent / "notes" / "k.zip", progress=SilentProgress(), networks=1)
    monkeypatch.setattr(kit_module, "_write_network", interrupt)
    with pytest.raises(KeyboardInterrupt):
        export_random_networks(tmp_path / "k.zip", progress=SilentProgress(), networks=1)
    assert not list(tmp_path.iterdir())
    assert not list(tmp_path.parent.glob("*.partial"))


def test_repeated_weights_keep_the_signal() -> None:
    space = load_search_space("mixed")
    network = space.build(space.anchors[0], (10,))
    torch.manual_seed(0)
    repeat_weights(network)
    weight = next(p for p in network.parameters() if p.ndim == 4)
    assert torch.equal(weight.abs(), weight[:1].abs().expand_as(weight))
    with torch.no_grad():
        out = network.train()(torch.randn(4, 3, 32, 32))
    assert torch.isfinite(out).all()
    assert out.std() > 1e-6


def test_the_script_stands_alone() -> None:
    """It travels without the project: only numpy and onnxruntime besides the standard library."""
    import ast

    tree = ast.parse(Path(kit_measure.__file__).read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    assert imported - set(sys.stdlib_module_names) == {"numpy", "onnxruntime"}
