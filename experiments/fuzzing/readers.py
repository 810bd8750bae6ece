"""The product's readers of files from elsewhere, each with sound samples and the changes that are made to them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.fuzzing import samples
from experiments.fuzzing.mutations import Mutate, Rng, bytes_changed, json_changed, pick, text_changed
from nas.data_options import DataOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One kind of file."""

    build: Callable[[Path], None]
    """Writes sound samples into an empty folder."""
    read: Callable[[Path, Rng], None]
    """Reads the samples in a folder, all of them or one that is drawn."""
    change: Mutate = bytes_changed
    among: Sequence[str] = ("**/*",)
    """Patterns of the files of which one is changed."""
    hostile: Callable[[Path, Rng], None] | None = None
    """A change of the whole folder that is made instead now and then."""
    seal: Callable[[Path], None] | None = None
    """Makes the checksums right again, as whoever means harm would."""
    weight: int = 10
    """How often it is drawn, beside the others."""


def mutate(reader: Reader, folder: Path, rng: Rng) -> str:
    """Change the samples in `folder`; returns what was changed."""
    files = sorted({file for pattern in reader.among for file in folder.glob(pattern) if file.is_file()})
    if reader.hostile is not None and rng.random() < 0.3:
        reader.hostile(folder, rng)
        changed = "the folder"
    else:
        file = pick(rng, files)
        reader.change(file, rng)
        changed = file.relative_to(folder).as_posix()
    if reader.seal is not None and rng.random() < 0.7:
        reader.seal(folder)
        changed += ", sealed"
    return changed


def _each(reads: Iterable[Callable[[], Any]]) -> None:
    """Call all of them; where some refuse, raise what the first one of them did."""
    from nas.errors import UserError

    refused: list[UserError] = []
    for read in reads:
        try:
            read()
        except UserError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def _read_images(folder: Path, rng: Rng) -> None:
    from nas.data.decode import decode, picture_size
    from nas.data.processor import image_of

    reads: list[Callable[[], Any]] = []
    for file in sorted(folder.iterdir()):
        reads += [
            partial(decode, file.read_bytes, file.name, 64),
            partial(decode, file.read_bytes, file.name, 48, exact=True, fit="letterbox"),
            partial(picture_size, file.read_bytes, file.name),
            partial(image_of, file.read_bytes()),
            partial(image_of, file),
        ]
    _each(reads)


def _classification(path: Path, rng: Rng) -> None:
    from nas.tasks.classification.data.registry import load_dataset

    fit = ("crop", "letterbox")[int(rng.integers(2))]
    data = load_dataset(str(path), options=DataOptions(fit=fit, max_resolution=32))  # type: ignore[arg-type]
    data.at("test", 48)


def _read_folder(folder: Path, rng: Rng) -> None:
    _classification(folder / "photos", rng)


def _read_archives(folder: Path, rng: Rng) -> None:
    _read_files(sorted(folder.glob("a.*")), rng)


def _read_arrays(folder: Path, rng: Rng) -> None:
    _read_files(sorted(folder.glob("*.npz")), rng)


def _read_files(files: Sequence[Path], rng: Rng) -> None:
    _each(partial(_classification, file, rng) for file in files)


def _detection(folder: Path, rng: Rng) -> None:
    from nas.tasks.detection.data import load_detection

    load_detection(folder, max_resolution=64)


def _read_recipes(folder: Path, rng: Rng) -> None:
    from nas.tasks.recipes import recipe_named

    _each(partial(recipe_named, str(file)) for file in sorted(folder.glob("*.yaml")))


def _read_spaces(folder: Path, rng: Rng) -> None:
    from nas.networks.description import read_json
    from search_spaces.reference import architecture_of_json, resolve_space

    _each(
        (
            lambda: resolve_space(str(folder / "space.json")).sample(4, np.random.default_rng(0)),
            lambda: architecture_of_json(read_json(folder / "architecture.json")),
        )
    )


def _read_profile(folder: Path, rng: Rng) -> None:
    from nas.targets.profile import DeviceProfile

    DeviceProfile.load(folder / "profile.json").noise_floor_pct  # noqa: B018


def _seal_profile(folder: Path) -> None:
    path = folder / "profile.json"
    try:
        document = json.loads(path.read_text())
        document.pop("sha256", None)
        body = json.dumps(document, sort_keys=True, separators=(",", ":"))
        path.write_text(json.dumps({**document, "sha256": hashlib.sha256(body.encode()).hexdigest()}))
    except (ValueError, TypeError, AttributeError):  # no JSON object any more, or one that cannot be sorted
        return


def _read_kit(folder: Path, rng: Rng) -> None:
    from nas.targets.kit import import_result

    import_result("edge", folder / "result.json")


def _read_bundle(folder: Path, rng: Rng) -> None:
    from nas.bundles.predictor import Predictor
    from nas.bundles.receipt import read_receipt
    from nas.bundles.verify import check_sums
    from nas.networks.find import find_network

    place = folder / "bundle"
    check_sums(place, read_receipt(place))
    find_network(str(place), accept=("network", "onnx"))
    predictor = Predictor.open(place)
    predictor.predict(place / "sample.png")


def _seal_bundle(folder: Path) -> None:
    path = folder / "bundle" / "receipt.json"
    try:
        document = json.loads(path.read_text())
        for name in document["sha256"]:
            document["sha256"][name] = hashlib.sha256((path.parent / name).read_bytes()).hexdigest()
        path.write_text(json.dumps(document))
    except (ValueError, TypeError, KeyError, AttributeError, OSError):
        return


def _read_onnx(folder: Path, rng: Rng) -> None:
    from nas.advice.graph import read_graph
    from nas.bench.onnx_graph import input_of
    from nas.runtimes.onnx_file import output_nodes, read_input

    file = folder / "model.onnx"
    _each(partial(read, file) for read in (read_input, output_nodes, read_graph, partial(input_of, side=32)))


def _build_onnx(folder: Path) -> None:
    samples.bundle(folder)
    (folder / "bundle" / "model.onnx").rename(folder / "model.onnx")


def _read_network(folder: Path, rng: Rng) -> None:
    from nas.networks.description import load_network

    load_network(folder / "bundle" / "model.network.json")


def _read_splits(folder: Path, rng: Rng) -> None:
    from nas.tasks.same_data import require_same_data

    require_same_data(folder, samples.few_digits())


READERS: dict[str, Reader] = {
    "images": Reader(build=samples.images, read=_read_images, weight=30),
    "folders": Reader(build=samples.class_folders, read=_read_folder),
    "archives": Reader(
        build=samples.archives, read=_read_archives, among=("a.*",), hostile=samples.hostile_archives, weight=15
    ),
    "npz": Reader(build=samples.arrays, read=_read_arrays, hostile=samples.hostile_arrays, weight=15),
    "coco": Reader(build=samples.coco, read=_detection, change=json_changed, among=("annotations/*",), weight=15),
    "yolo": Reader(
        build=samples.yolo, read=_detection, change=text_changed, among=("labels/**/*", "*.yaml"), weight=15
    ),
    "voc": Reader(
        build=samples.voc, read=_detection, change=text_changed, among=("Annotations/*", "ImageSets/**/*"), weight=15
    ),
    "recipes": Reader(build=samples.recipe, read=_read_recipes, change=text_changed),
    "spaces": Reader(build=samples.space, read=_read_spaces, change=json_changed),
    "profiles": Reader(
        build=samples.profile, read=_read_profile, change=json_changed, among=("profile.json",), seal=_seal_profile
    ),
    "kits": Reader(build=samples.kit_result, read=_read_kit, change=json_changed, weight=6),
    "bundles": Reader(
        build=samples.bundle, read=_read_bundle, change=json_changed, among=("bundle/*.json",), seal=_seal_bundle
    ),
    "networks": Reader(
        build=samples.bundle, read=_read_network, among=("bundle/model.network.json", "bundle/*.safetensors")
    ),
    "onnx": Reader(build=_build_onnx, read=_read_onnx, among=("model.onnx",)),
    "runs": Reader(build=samples.splits_record, read=_read_splits),
}
"""Every kind by name. A new kind of file that the product reads is one line here."""
