"""What is written for containers and other servers works where this project's environment is not."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import urllib.request
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from nas.bundles.predictor import Predictor
from nas.deployment import Deployment
from nas.errors import UserError
from nas.runtimes import load_runtime
from nas.serving.container import write_container
from nas.serving.repository import write_repository
from tests.nas.bare_python import make_bare_python
from tests.nas.serving.bundles import encoded

pytestmark = pytest.mark.xdist_group("serving")


@pytest.fixture(scope="module")
def container(bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_container(bundles["classification"], tmp_path_factory.mktemp("container") / "classifier")


def with_needed(names: list[str]) -> set[str]:
    """Distributions, and those that they need here."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        with contextlib.suppress(PackageNotFoundError):
            needed = [Requirement(text) for text in distribution(name).requires or ()]
            todo += [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
            found.add(name)
    return found


def bare_python(folder: Path, requirements: Path) -> Path:
    """An interpreter with what `pip install -r requirements` would give it, linked instead of installed."""
    python = make_bare_python(folder, [])
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in with_needed([line.partition("==")[0] for line in requirements.read_text().split()]):
        found = distribution(name)
        for part in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (packages / part).exists():
                (packages / part).symlink_to(Path(str(found.locate_file(part))))
    return python


@pytest.mark.slow
def test_the_container_serves_without_torch(container: Path, bundles: dict[str, Path], tmp_path: Path) -> None:
    python, dockerfile = bare_python(tmp_path / "bare", container / "requirements.txt"), container / "Dockerfile"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    where = {"cwd": container / "source", "env": environment, "text": True}
    assert subprocess.run([python, "-c", "import torch"], capture_output=True, **where).returncode != 0
    checks = re.findall(r"^RUN python (.*)$", dockerfile.read_text(), re.MULTILINE)
    assert checks
    for check in checks:
        done = subprocess.run([python, *shlex.split(check)], capture_output=True, **where)
        assert done.returncode == 0, done.stderr
    command = json.loads(re.findall(r"^CMD (.*)$", dockerfile.read_text(), re.MULTILINE)[0])
    assert command[command.index("--host") + 1] == "0.0.0.0"
    local = {"/bundle": str(container / "bundle"), "0.0.0.0": "127.0.0.1", "8000": "0", "python": str(python)}
    command = [local.get(word, word) for word in command]
    process = subprocess.Popen([*command, "--batch", "2", "--drain-s", "0"], stdout=subprocess.PIPE, **where)
    try:
        assert process.stdout is not None
        url = re.findall(r"http://\S+", process.stdout.readline())[0]
        with urllib.request.urlopen(f"{url}/predict", encoded("PNG"), timeout=30) as answer:
            found = json.load(answer)
        expected = Predictor.open(bundles["classification"]).predict(encoded("PNG"))[0]
        assert found["label"] == expected["label"]
        assert found["score"] == pytest.approx(expected["score"], abs=1e-5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_container_holds_the_bundle_as_it_was_delivered(container: Path) -> None:
    from nas.bundles.receipt import changed_files, read_receipt

    assert changed_files(container / "bundle", read_receipt(container / "bundle")) == []
    text = (container / "compose.yml").read_text()
    assert "127.0.0.1:8000:8000" in text
    assert "server:8000" in (container / "prometheus.yml").read_text()
    assert write_container(container / "bundle", container) == container  # again, in its own place


def test_a_folder_with_something_else_is_left_alone(bundles: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="holds something else"):
        write_container(bundles["classification"], tmp_path / "letters")
    (tmp_path / "classification").mkdir()
    (tmp_path / "classification" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="holds something else"):
        write_repository(bundles["classification"], "triton", tmp_path)


@pytest.mark.parametrize("server", ["triton", "ovms"])
def test_the_file_in_a_repository_is_the_deployed_network(
    server: str, bundles: dict[str, Path], tmp_path: Path
) -> None:
    for _ in range(2):  # the second time it is replaced
        write_repository(bundles["classification"], server, tmp_path)
    write_repository(bundles["detection"], server, tmp_path)
    predictor = Predictor.open(bundles["classification"])
    inputs = predictor.processor.preprocess(encoded()).inputs
    served = load_runtime("onnxruntime").load(
        tmp_path / "classification/1/model.onnx", Deployment("onnxruntime", "fp32", 1)
    )
    assert np.array_equal(served.run(inputs), predictor.run(inputs))
    if server == "triton":
        config = (tmp_path / "classification/config.pbtxt").read_text()
        for line in ('platform: "onnxruntime_onnx"', "dims: [1, 3, 32, 32]", "dims: [1, 10]", "TYPE_FP32"):
            assert line in config
        assert (tmp_path / "classification/labels.txt").read_text().split() == [str(digit) for digit in range(10)]
    else:
        models = json.loads((tmp_path / "config.json").read_text())["model_config_list"]
        assert [entry["config"]["base_path"] for entry in models] == ["/models/classification", "/models/detection"]
