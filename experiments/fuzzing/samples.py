"""Small sound files of every kind that the product reads: what mutations begin from."""

import io
import json
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from nas.data import ImageData

IMAGE_NAMES = ("a.jpg", "b.png", "c.webp", "d.bmp", "e.gif", "f.ppm", "g.tiff", "h.jpg")
CLASSES = ("cat", "dog")
_SPLITS = ("train", "val", "test")


def picture(seed: int, size: tuple[int, int] = (40, 36)) -> Image.Image:
    """Noise of (width, height) pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def images(folder: Path) -> None:
    """One of each format, one with an orientation."""
    for seed, name in enumerate(IMAGE_NAMES):
        exif = Image.Exif()
        exif[0x0112] = 6
        options: dict[str, Any] = {"exif": exif} if name in ("h.jpg", "b.png") else {}
        picture(seed).save(folder / name, **options)


def class_folders(folder: Path) -> None:
    """Two classes with six pictures each, in two formats."""
    for label, name in enumerate(CLASSES):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(6):
            suffix = ("jpg", "png")[number % 2]
            picture(10 * label + number).save(folder / "photos" / name / f"{number}.{suffix}")


def archives(folder: Path) -> None:
    """The same packed in every way."""
    class_folders(folder)
    files = sorted((folder / "photos").rglob("*.*"))
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for file in files:
            packed.write(file, file.relative_to(folder))
    for suffix, mode in ((".tar", "w"), (".tar.gz", "w:gz"), (".tar.bz2", "w:bz2"), (".tar.xz", "w:xz")):
        with tarfile.open(folder / f"a{suffix}", mode) as tar:  # type: ignore[call-overload]
            for file in files:
                tar.add(file, str(file.relative_to(folder)))


def hostile_archives(folder: Path, rng: np.random.Generator) -> None:
    """Members that lead elsewhere, links and devices, beside sound ones."""
    content = (folder / "photos" / "cat" / "0.jpg").read_bytes()
    names = ("../../escaped.jpg", "/escaped.jpg", "photos/cat/../../../escaped.jpg", "photos/dog/" + "x" * 300 + ".jpg")
    name = names[int(rng.integers(len(names)))]
    with zipfile.ZipFile(folder / "a.zip", "a") as packed:
        packed.writestr(name, content)
    with tarfile.open(folder / "a.tar", "a") as tar:
        info = tarfile.TarInfo(name)
        kinds = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
        info.type = kinds[int(rng.integers(len(kinds)))]
        info.linkname = "/etc/hostname"
        info.size = len(content) if info.type == tarfile.REGTYPE else 0
        tar.addfile(info, io.BytesIO(content))


def arrays(folder: Path) -> None:
    """An `.npz`, compressed and not."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (12, 9, 8, 3), dtype=np.uint8), np.arange(12) % 2
    known: dict[str, Any] = {"x_train": x, "y_train": y, "x_val": x, "y_val": y, "classes": np.array(CLASSES)}
    np.savez(folder / "a.npz", **known)
    np.savez_compressed(folder / "b.npz", **known)


def hostile_arrays(folder: Path, rng: np.random.Generator) -> None:
    """Arrays of other shapes and types than they should have."""
    odd = (
        *(np.zeros((0, 9, 8, 3), np.uint8), np.zeros((12, 0, 8, 3), np.uint8), np.zeros(12), np.array("text")),
        *(np.full(12, 2**62), np.full(12, -1), np.full((12, 1), 1), np.zeros((12, 9, 8, 4), np.uint8)),
        *(np.zeros((12, 1, 2000, 3), np.uint8), np.array([np.nan] * 12), np.array([b"\xff"] * 12)),
        *(np.zeros(12, "datetime64[s]"), np.zeros(12, np.complex64), np.zeros(12, [("a", "i4")]), np.ones(12, bool)),
    )
    with np.load(folder / "a.npz") as file:
        known: dict[str, Any] = dict(file)
    name = list(known)[int(rng.integers(len(known)))]
    known[name] = odd[int(rng.integers(len(odd)))]
    np.savez(folder / "a.npz", **known)


def _box(number: int) -> tuple[int, int, int, int]:
    return (2 + number, 3, 20 + number, 25)


def _scenes(folder: Path, images_folder: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for at, split in enumerate(_SPLITS):
        place = folder / images_folder.format(split=split)
        place.mkdir(parents=True, exist_ok=True)
        found[split] = [f"{split}{number}" for number in range(4)]
        for number, stem in enumerate(found[split]):
            picture(10 * at + number).save(place / f"{stem}.jpg")
    return found


def coco(folder: Path) -> None:
    """COCO json of three splits."""
    for split, stems in _scenes(folder, "images/{split}").items():
        pictures = [{"id": n, "file_name": f"{stem}.jpg", "width": 40, "height": 36} for n, stem in enumerate(stems)]
        boxes = [(n, *_box(n)) for n in range(len(stems))]
        annotations = [
            {"id": n, "image_id": n, "category_id": 3 + n % 2, "iscrowd": 0, "bbox": [x0, y0, x1 - x0, y1 - y0]}
            for n, x0, y0, x1, y1 in boxes
        ]
        categories = [{"id": 3, "name": "cat"}, {"id": 4, "name": "dog"}]
        (folder / "annotations").mkdir(exist_ok=True)
        document = {"images": pictures, "annotations": annotations, "categories": categories}
        (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(document))


def yolo(folder: Path) -> None:
    """A YOLO folder of three splits."""
    for split, stems in _scenes(folder, "images/{split}").items():
        (folder / "labels" / split).mkdir(parents=True)
        for number, stem in enumerate(stems):
            (folder / "labels" / split / f"{stem}.txt").write_text(f"{number % 2} 0.5 0.4 0.3 0.{number + 2}\n")
    (folder / "data.yaml").write_text("path: .\ntrain: images/train\nval: images/val\nnames: [cat, dog]\n")


def voc(folder: Path) -> None:
    """Pascal VOC of three splits."""
    (folder / "Annotations").mkdir()
    (folder / "ImageSets" / "Main").mkdir(parents=True)
    for split, stems in _scenes(folder, "JPEGImages").items():
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(f"{stem}\n" for stem in stems))
        for number, stem in enumerate(stems):
            x0, y0, x1, y1 = _box(number)
            (folder / "Annotations" / f"{stem}.xml").write_text(
                f"<annotation><filename>{stem}.jpg</filename><size><width>40</width><height>36</height></size>"
                f"<object><name>{CLASSES[number % 2]}</name><difficult>0</difficult><bndbox><xmin>{x0}</xmin>"
                f"<ymin>{y0}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object></annotation>"
            )


def recipe(folder: Path) -> None:
    """A recipe that inherits, and one of every setting."""
    from nas.tasks.recipes import bundled_recipes

    for name, text in bundled_recipes().items():
        if name in ("classification-search", "base-strong", "classification-distill", "base"):
            (folder / f"{name}.yaml").write_text(text)


def space(folder: Path) -> None:
    """The table of a space, and an architecture with its table inside."""
    from search_spaces import load_search_space
    from search_spaces.documents import document_of
    from search_spaces.reference import resolve_space

    (folder / "space.json").write_text(json.dumps(document_of(load_search_space("compact"))))
    found = resolve_space(str(folder / "space.json"))
    arch = found.architecture(found.sample(1, np.random.default_rng(0))[0])
    (folder / "architecture.json").write_text(json.dumps(found.to_json(arch)))


def kit_result(folder: Path) -> None:
    """What a kit's script writes after two sessions."""
    from nas.targets.kit_measure import host
    from nas.targets.preparing import networks_to_measure
    from search_spaces import load_search_space, resolve_space

    archs = networks_to_measure([resolve_space("mixed")], 12, 0, {"resolution": [32]})
    networks = [
        {"architecture": load_search_space(arch.space).to_json(arch), "files": {"fp32": f"{n}.fp32.onnx"}}
        for n, arch in enumerate(archs)
    ]
    answer = {"p50_ms": 2.0, "reference_p50_ms": 1.0, "memory_bytes": 1000, "nodes": []}
    sessions = [{f"{n}/fp32": {**answer, "p50_ms": 2.0 + n} for n in range(len(archs))} for _ in range(2)]
    document = {
        "schema": 1, "kit": {"output_size": [10], "networks": networks}, "host": {**host(), "quota_cores": 1.5},
        "threads": 1, "batch": 1, "sessions": sessions, "seconds": 1.0,
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(document))


def profile(folder: Path) -> None:
    """The profile that such a result makes."""
    from nas.targets.kit import import_result

    kit_result(folder)
    import_result("edge", folder / "result.json").save(folder / "profile.json")


def bundle(folder: Path) -> None:
    """A bundle of an untrained network, whose latency nobody measured."""
    import torch

    from nas.bundles.bundle import Claims, complete_bundle, deliver_files
    from nas.data_options import DataSource
    from nas.deploy.deploy import deploy
    from nas.deployment import Deployment
    from nas.networks.description import NetworkDescription
    from search_spaces import load_search_space

    data = few_digits()
    found = load_search_space("mobile").restrict("resolution", [32])
    description = NetworkDescription.of_architecture(found, found.architecture([0] * len(found.decisions)), (10,))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = description.build().eval()
    deployed = deploy(
        network, description, data, [Deployment("onnxruntime", "fp32", 1)],
        folder=folder / "work", max_drop=1.0, upper_bound=lambda d: 1.0, trained=False,
    )  # fmt: skip
    claims = Claims(
        command="nas export", source="model.network.json", target="elsewhere", max_drop=1.0, within_limit=True,
        data=DataSource(source="digits", seed=0), limits={"latency_ms": 5.0, "percentile": 50}, margin_pct=80.0,
        limits_text="at most 5 ms", torch_accuracy=None, test_accuracy=None, predicted_ms=1.0,
    )  # fmt: skip
    complete_bundle(folder / "bundle", deliver_files(deployed, folder / "bundle"), data, claims)


@cache
def few_digits() -> "ImageData":
    """A part of the bundled digits."""
    from nas.tasks.classification.data.registry import load_dataset

    whole = load_dataset("digits")
    return whole.with_splits(train=whole.train.some(64), val=whole.val.some(16), test=whole.test.some(16))


def splits_record(folder: Path) -> None:
    """What a run records of its data."""
    from nas.tasks.same_data import record_splits

    record_splits(folder, few_digits())
