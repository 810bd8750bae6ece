"""The receipt of a bundle: what is claimed of its files, in a form that can be read back and checked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Any

from nas import __version__
from nas.calls import CONTINUOUS, interval_ms_of
from nas.data_options import DataOptions
from nas.deployment import ALONE, CPU, Deployment
from nas.errors import UserError
from nas.files.writing import sha256_of
from nas.measure.host import HostFingerprint
from nas.networks.find import RECEIPT
from search_spaces import Signature

SCHEMA = 1
PACKAGES = ("torch", "onnx", "onnxruntime", "openvino", "nncf", "numpy", "pillow")
"""Libraries that make or run a bundle."""
OUR_LICENCE = "Apache-2.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The entries of a receipt that using and verifying a bundle need."""

    deployment: Deployment
    model: str
    """File that the runtime loads."""
    signature: Signature
    """Input and output of the network."""
    task: str
    """Reference of its task, see `nas.tasks.task_named`."""
    data_source: str
    """A name or path as the task's `load` takes it."""
    data_seed: int
    data_options: DataOptions
    """How the data were read."""
    metric: str
    """Name that people give its accuracies."""
    validation_sha256: str
    onnx: str
    """The network in fp32."""
    accuracy: float | None
    """Accuracy on the validation split in the deployed runtime, by the task's metric; None if not measured."""
    test_accuracy: float | None
    """The same on the test split."""
    onnx_accuracy: float | None
    """Accuracy of the fp32 network (`onnx`) on the validation split."""
    limits: Mapping[str, float]
    fingerprint: HostFingerprint | None
    """The host it was measured on; None where it was not measured."""
    sha256: Mapping[str, str]
    """Checksum of every other file of the bundle, by its name."""


def read_receipt(folder: Path) -> Receipt:
    """The receipt of the bundle in `folder`.

    Raises:
        UserError: no such folder, no receipt, a damaged one, or one of another version.
    """
    path = folder / RECEIPT
    if not folder.is_dir():
        raise UserError(f"no such bundle: '{folder}'", "give the folder that `nas export` printed")
    if not path.is_file():
        raise UserError(f"'{folder}' has no {RECEIPT}, so it is no bundle", "give a folder that `nas export` wrote")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"'{path}' is damaged: {error}", "export the network again") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise UserError(
            f"'{path}' was written by a newer version (schema {schema}, this one reads {SCHEMA})", "update this program"
        )
    if schema != SCHEMA:
        raise UserError(f"'{path}' is no receipt of schema {SCHEMA}", "export the network again with `nas export`")
    try:
        return _parse(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise UserError(f"'{path}' is not a whole receipt: {problem}", "export the network again") from error


def changed_files(folder: Path, receipt: Receipt) -> list[str]:
    """The defects of a bundle's files, in words; empty where all are there and as they were delivered."""
    missing = [name for name in receipt.sha256 if not (folder / name).is_file()]
    changed = [n for n, listed in receipt.sha256.items() if n not in missing and sha256_of(folder / n) != listed]
    return [f"{n} is missing" for n in missing] + [f"{n} was changed" for n in changed]


def _parse(document: dict[str, Any]) -> Receipt:
    host, data = document["fingerprint"], document["data"]
    sha256 = {str(name): str(checksum) for name, checksum in document["sha256"].items()}
    outside = [name for name in sha256 if Path(name).name != name]
    if outside:
        raise ValueError(f"{outside[0]!r} is no file of the bundle")
    unknown = [document[name] for name in ("model", "onnx") if document[name] not in sha256]
    if unknown:
        raise ValueError(f"no checksum of {unknown[0]!r}")
    return Receipt(
        deployment=Deployment(
            runtime=str(document["runtime"]),
            precision=str(document["precision"]),
            threads=int(document["threads"]),
            batch=int(document["batch"]),
            device=str(document.get("runs_on", CPU)),
            interval_ms=interval_ms_of(str(document.get("calls", CONTINUOUS))),
            covers=document.get("limit_on", ALONE),
        ),
        model=document["model"],
        signature=Signature.from_json(document["signature"]),
        task=str(document["task"]),
        data_source=str(data["source"]),
        data_seed=int(data["seed"]),
        data_options=DataOptions.of(data.get("options", {})),
        metric=str(document.get("metric", "accuracy")),
        validation_sha256=str(data["validation_sha256"]),
        onnx=document["onnx"],
        accuracy=document["accuracy"]["deployed"],
        test_accuracy=document["accuracy"]["test"],
        onnx_accuracy=document["accuracy"]["onnx_fp32"],
        limits=dict(document["limits"]),
        fingerprint=HostFingerprint.from_json(host) if host is not None else None,
        sha256=sha256,
    )


def versions() -> dict[str, str]:
    """Versions of this program and of the installed libraries that make or run a bundle."""
    return {"nas": __version__, **{name: version(name) for name in PACKAGES if _installed(name)}}


def licences() -> dict[str, str]:
    """The same packages' licences, as they state them themselves."""
    return {"nas": OUR_LICENCE, **{name: _licence(name) for name in PACKAGES if _installed(name)}}


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _licence(package: str) -> str:
    """The SPDX expression, or what older packages have instead."""
    stated = metadata(package)
    classifiers = [c.split(" :: ")[-1] for c in stated.get_all("Classifier") or () if c.startswith("License :: ")]
    text = stated.get("License-Expression") or stated.get("License") or ", ".join(classifiers)
    return text.strip().splitlines()[0] if text and text.strip() else "not stated"
