"""A folder to build a container of, that serves a bundle."""

import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import nas
import predictors
import search_spaces
from nas.bundles.receipt import Receipt
from nas.files.writing import staged_folder
from nas.serving.checks import checked_bundle, refuse_others, refuse_torch, served_name

LIGHT = (
    *("numpy", "pillow", "pyyaml", "psutil", "click", "rich"),
    *("starlette", "uvicorn", "uvloop", "httptools", "prometheus-client"),
)
"""Distributions that a server needs besides the runtime of its bundle: no torch."""
_OF_RUNTIME: Mapping[str, tuple[str, ...]] = {
    "onnxruntime": ("onnxruntime", "onnx"),
    "openvino": ("openvino", "onnx", "onnxruntime"),
}
"""Runtime -> its distributions; `onnx` changes the batch of a file, and ONNX Runtime checks that."""
PORT, PROMETHEUS_PORT = 8000, 9090
PROMETHEUS = "prom/prometheus:v3.5.0"

_DOCKERFILE = """\
# docker build -t {name} .  and  docker run -p {port}:{port} {name}
FROM python:{python}-slim
WORKDIR /app
COPY requirements.txt ./
RUN pip install --no-cache-dir -r requirements.txt
COPY source/ ./
COPY bundle/ /bundle/
RUN python -c "import nas.cli.serve, nas.serving.supervisor, nas.serving.worker"
RUN useradd --uid 1000 --create-home server
USER server
EXPOSE {port}
HEALTHCHECK --interval=5s --start-period=30s CMD ["python", "-c", "{probe}"]
CMD ["python", "-m", "nas", "serve", "/bundle", "--host", "0.0.0.0", "--port", "{port}", "--name", "{name}"]
"""
_PROBE = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/v2/health/ready', timeout=3)"
_COMPOSE = """\
services:
  server:
    build: .
    ports: ["127.0.0.1:{port}:{port}"]
    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    stop_grace_period: 20s
    restart: unless-stopped
  prometheus:
    image: {prometheus}
    ports: ["127.0.0.1:{prometheus_port}:{prometheus_port}"]
    volumes: ["./prometheus.yml:/etc/prometheus/prometheus.yml:ro"]
    depends_on: [server]
    restart: unless-stopped
"""
_SCRAPE = """\
global:
  scrape_interval: 5s
scrape_configs:
  - job_name: {name}
    static_configs:
      - targets: ["server:{port}"]
"""


def write_container(bundle: str | Path, out: Path) -> Path:
    """Write a folder to build a container of: Dockerfile, compose.yml with the server and Prometheus, the bundle, the
    versions that are installed here, and this program's source, so that nothing of ours has to be downloaded.

    Args:
        bundle: its folder, or `RUN#k`.
        out: the folder; an earlier one with a Dockerfile is replaced.

    Raises:
        UserError: no bundle, one for PyTorch, or a folder with something else.
    """
    folder, receipt = checked_bundle(bundle)
    refuse_torch(receipt)
    refuse_others(out, "Dockerfile")
    name = served_name(folder).lower()  # which an image's name has to be
    fields = {"name": name, "port": PORT, "python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    files = {
        "Dockerfile": _DOCKERFILE.format(probe=_PROBE.format(port=PORT), **fields),
        "compose.yml": _COMPOSE.format(prometheus=PROMETHEUS, prometheus_port=PROMETHEUS_PORT, **fields),
        "prometheus.yml": _SCRAPE.format(**fields),
        "requirements.txt": "".join(f"{line}\n" for line in requirements(receipt)),
    }
    with staged_folder(out) as staged:
        for file, text in files.items():
            (staged / file).write_text(text, encoding="utf-8")
        _copy_bundle(folder, receipt, staged / "bundle")
        for package in (nas, predictors, search_spaces):
            source = Path(str(package.__file__)).parent
            shutil.copytree(source, staged / "source" / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    return out


def requirements(receipt: Receipt) -> list[str]:
    """Distributions that a server of the bundle needs, in the versions that are installed here."""
    return [f"{name}=={version(name)}" for name in sorted({*LIGHT, *_OF_RUNTIME[receipt.deployment.runtime]})]


def _copy_bundle(folder: Path, receipt: Receipt, out: Path) -> None:
    """The files of the receipt and the receipt itself, nothing that lies there by chance."""
    out.mkdir()
    for name in ("receipt.json", *receipt.sha256):
        shutil.copyfile(folder / name, out / name)
