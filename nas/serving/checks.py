"""What is known of a bundle and this host before a server is started."""

import re
from pathlib import Path

from nas.bundles.receipt import Receipt, changed_files, read_receipt
from nas.deployment import CPU
from nas.errors import MissingDependencyError, UserError
from nas.measure.host import affinity, usable_threads
from nas.measure.topology import performance_cores
from nas.networks.find import find_bundle
from nas.runtimes import load_runtime
from nas.runtimes.base import check_supported, missing_modules, require
from nas.serving.settings import ServingSettings

LIBRARIES = ("starlette", "uvicorn", "uvloop", "httptools", "prometheus_client")
INSTALL = "pip install 'hardware-nas[serve]'"


def checked_bundle(bundle: str | Path) -> tuple[Path, Receipt]:
    """The folder and the receipt of a bundle that this host can serve.

    Raises:
        MissingDependencyError: the libraries of a server are not installed.
        UserError: no bundle, a file that was changed, or a runtime or precision that this host does not have.
    """
    install = missing_modules(LIBRARIES, INSTALL)
    if install is not None:
        raise MissingDependencyError("the server", install)
    folder = find_bundle(str(bundle)).resolve()
    receipt = read_receipt(folder)
    problems = changed_files(folder, receipt)
    if problems:
        raise UserError(f"the bundle '{folder}' is not as it was delivered: {'; '.join(problems)}", "get it again")
    runtime = load_runtime(receipt.deployment.runtime)
    require(runtime)
    check_supported(runtime, receipt.deployment.precision, receipt.deployment.device)
    return folder, receipt


def usable_cores() -> tuple[int, ...]:
    """Processors that replicas can have for themselves: the fast ones, no more than the control group allows."""
    return performance_cores(affinity())[: usable_threads()]


def usual_settings(receipt: Receipt) -> ServingSettings:
    """The threads that the receipt's figures are of, and as many replicas as there are cores for."""
    if receipt.deployment.device != CPU:
        return ServingSettings(batch=receipt.deployment.batch)
    cores = len(usable_cores())
    threads = min(receipt.deployment.threads, cores)
    return ServingSettings(replicas=cores // threads, threads=threads, batch=receipt.deployment.batch)


def served_name(folder: Path) -> str:
    """What a bundle is called where nothing else is asked for: its folder, made fit for an address; of the k-th network
    of a run also the run's folder."""
    parts = [folder.name]
    if folder.name.isdigit() and len(folder.parts) > 3:  # RUN/winners/1, RUN/exports/2
        parts.insert(0, folder.parts[-3])
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts)).strip("-") or "model"


def refuse_torch(receipt: Receipt) -> None:
    """Raises `UserError` where a bundle needs this program's networks in torch, which other programs do not have."""
    if receipt.deployment.runtime == "torch":
        raise UserError(
            f"the bundle is for {receipt.deployment.name}, which needs all of this project",
            "export the network with --runtime onnxruntime or openvino",
        )


def refuse_others(out: Path, ours: str) -> None:
    """Raises `UserError` where `out` is there and has no `ours`: it would be replaced."""
    if out.exists() and not (out / ours).exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"'{out}' holds something else", "give a folder that does not exist yet")
