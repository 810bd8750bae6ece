"""Every source of data, and everything that can be wrong with one."""

import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision
from PIL import Image

from experiments.datasets import convert_cifar10_mosaic
from nas.data import ImageData
from nas.data_options import DataOptions
from nas.errors import UnknownNameError, UserError
from nas.tasks.classification.data.registry import DATASETS, default_root, load_dataset
from tests.nas.tasks.classification.conftest import MakeFolder, write_images


def same(a: ImageData, b: ImageData) -> bool:
    pairs = [(a.train, b.train), (a.val, b.val), (a.test, b.test)]
    return a.classes == b.classes and all(
        np.array_equal(x.images, y.images) and np.array_equal(x.labels, y.labels) for x, y in pairs
    )


def test_digits() -> None:
    data = load_dataset("digits")
    assert len(data.train) + len(data.val) + len(data.test) == 1797
    assert data.native_resolution == 32
    assert data.num_classes == 10
    assert not data.flip_ok
    assert data.train.images.max() == 255


# --- folders and archives


def test_folder_with_train_and_val(make_folder: MakeFolder) -> None:
    data = load_dataset(str(make_folder(count=20)))
    assert data.classes == ("cat", "dog")
    assert (len(data.train) + len(data.val), len(data.test)) == (40, 40)
    assert set(data.val.labels) == {0, 1}
    assert data.native_resolution == 36  # the shorter side
    assert data.name == "photos"


def test_folder_with_three_splits_is_taken_as_it_is(make_folder: MakeFolder) -> None:
    data = load_dataset(str(make_folder(splits=("train", "valid", "test"), count=3)))
    assert (len(data.train), len(data.val), len(data.test)) == (6, 6, 6)
    assert data.notes == ()


def test_class_folders_are_split(make_folder: MakeFolder) -> None:
    root = make_folder(splits=(), count=20)
    (root / "cat" / "notes.txt").write_text("not an image")
    data = load_dataset(str(root))
    assert len(data.train) + len(data.val) + len(data.test) == 40
    assert set(data.val.labels) == set(data.test.labels) == {0, 1}


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz", ".zip"])
def test_archives_equal_the_folder(make_folder: MakeFolder, tmp_path: Path, suffix: str) -> None:
    root = make_folder(splits=("train", "val", "test"))
    archive = tmp_path / f"photos{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as zipped:
            for file in sorted(root.rglob("*.png"), reverse=True):
                zipped.write(file, file.relative_to(tmp_path))
    else:
        with tarfile.open(archive, "w" if suffix == ".tar" else "w:gz") as tar:
            tar.add(root, "photos")
    assert same(load_dataset(str(archive)), load_dataset(str(root)))


def test_archives_are_never_extracted(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder()
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(root, "photos")
        tar.add(root / "train/cat/0.png", "../../escaped.png")
        link = tarfile.TarInfo("photos/train/cat/link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    before = sorted(tmp_path.rglob("*"))
    assert same(load_dataset(str(archive)), load_dataset(str(root)))  # neither stray member is data
    assert sorted(tmp_path.rglob("*")) == before


def test_images_of_many_kinds_and_sizes(make_folder: MakeFolder) -> None:
    root = make_folder(splits=(), count=4)
    rng = np.random.default_rng(0)
    rgb = Image.fromarray(rng.integers(0, 256, (500, 300, 3), dtype=np.uint8))
    rgb.save(root / "cat/large.jpg")
    rgb.convert("L").save(root / "cat/grey.jpeg")
    rgb.convert("P").save(root / "dog/palette.gif")
    rgb.convert("RGBA").resize((9, 7)).save(root / "dog/small.webp")
    data = load_dataset(str(root), options=DataOptions(max_resolution=33))
    assert data.native_resolution == 33
    assert len(data.train) + len(data.val) + len(data.test) == 12


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    from nas.data.decode import decode

    image = Image.new("RGB", (64, 64))
    image.paste((255, 255, 255), (0, 0, 64, 32))  # white above
    exif = Image.Exif()
    exif[0x0112] = 3  # turned by 180 degrees
    image.save(tmp_path / "a.jpg", exif=exif)
    pixels = decode((tmp_path / "a.jpg").read_bytes, "a.jpg", 64)
    assert pixels[:16].mean() < 10
    assert pixels[-16:].mean() > 245


@pytest.mark.parametrize("damage", ["text", "empty", "truncated"])
@pytest.mark.parametrize("packed", [False, True])
def test_unreadable_image_is_named(make_folder: MakeFolder, tmp_path: Path, damage: str, packed: bool) -> None:
    root = make_folder(count=6)
    write_images(root / "big", 1, seed=9, size=(200, 200))
    content = {"text": b"not an image", "empty": b"", "truncated": (root / "big/0.png").read_bytes()[:4000]}[damage]
    shutil.rmtree(root / "big")
    (root / "val/dog/broken.png").write_bytes(content)
    source = root
    if packed:
        source = tmp_path / "photos.tar"
        with tarfile.open(source, "w") as tar:
            tar.add(root, "photos")
    with pytest.raises(UserError, match=r"cannot read image '.*val/dog/broken\.png'") as caught:
        load_dataset(str(source))
    assert caught.value.hint


def test_links_are_followed_but_not_in_circles(make_folder: MakeFolder, tmp_path: Path) -> None:
    root = make_folder(splits=(), count=4)
    plain = load_dataset(str(root))
    (root / "dog").rename(tmp_path / "elsewhere")
    (root / "dog").symlink_to(tmp_path / "elsewhere")
    (root / "cat" / "round").symlink_to(root)
    assert same(load_dataset(str(root)), plain)


def test_link_that_leads_nowhere_is_named(make_folder: MakeFolder) -> None:
    root = make_folder()
    (root / "train/cat/gone.png").symlink_to(root / "absent.png")
    with pytest.raises(UserError, match=r"cannot read image '.*train/cat/gone\.png': No such file"):
        load_dataset(str(root))


def _empty(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()


def _flat(root: Path) -> None:
    _empty(root)
    write_images(root, 3, seed=0)


def _one_class(root: Path) -> None:
    shutil.rmtree(root / "train/dog")
    shutil.rmtree(root / "val/dog")


def _no_train(root: Path) -> None:
    shutil.rmtree(root / "train")
    shutil.copytree(root / "val", root / "other")


def _empty_class(root: Path) -> None:
    for file in (root / "train/dog").iterdir():
        file.unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_empty, "no images in"),
        (_flat, "has images but no class folders"),
        (_one_class, r"only one class \('cat'\)"),
        (_no_train, "has a folder 'val' but none named 'train'"),
        (_empty_class, "class folder '.*train/dog' has no images"),
        (lambda root: shutil.rmtree(root / "train/dog"), "it adds 'dog'"),
        (lambda root: (root / "val/dog").rename(root / "val/fox"), "it adds 'fox'"),
        (lambda root: [shutil.rmtree(root / "val" / name) for name in ("cat", "dog")], "has no images in val"),
    ],
)
def test_unusable_folders(make_folder: MakeFolder, spoil: Any, message: str) -> None:
    root = make_folder()
    spoil(root)
    with pytest.raises(UserError, match=message) as caught:
        load_dataset(str(root))
    assert caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip", "a.npz"])
def test_damaged_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x1f\x8bPK rubbish" * 50)
    with pytest.raises(UserError, match="cannot read") as caught:
        load_dataset(str(path))
    assert caught.value.hint


def test_single_array_is_no_data_set(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    with pytest.raises(UserError, match="single array"):
        load_dataset(str(tmp_path / "a.npz"))


@pytest.mark.parametrize("name", ["a.tar", "a.zip", "a.npz"])
def test_empty_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UserError, match="cannot read") as caught:
        load_dataset(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_truncated_archives(make_folder: MakeFolder, tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(make_folder(), "photos")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(UserError, match="cannot read archive"):
        load_dataset(str(path))


# --- names and paths


def test_unknown_names_and_paths(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_dataset("digit")
    assert "'digits'" in (caught.value.hint or "")
    for missing in (str(tmp_path / "absent"), "./absent", "absent.npz", "~/absent-folder"):
        with pytest.raises(UserError, match="no such file or folder"):
            load_dataset(missing)
    for name in ("", "x" * 300):
        with pytest.raises(UnknownNameError):
            load_dataset(name)
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(UserError, match="cannot tell what"):
        load_dataset(str(tmp_path / "x.csv"))


def test_every_name_is_described() -> None:
    assert all(source.description for source in DATASETS.values())


def test_default_root_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_root() == tmp_path / "nas" / "data"


def test_data_larger_than_memory_is_refused() -> None:
    from nas.data.decode import ensure_fits

    with pytest.raises(UserError, match="GiB is free"):
        ensure_fits(2**60, "a set")


# --- arrays


def arrays(n: int = 12, size: int = 32, **changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    images = {f"x_{s}": rng.integers(0, 256, (n, size, size, 3), dtype=np.uint8) for s in ("train", "val")}
    labels = {f"y_{s}": np.arange(n) % 3 for s in ("train", "val")}
    return {k: v for k, v in (images | labels | changes).items() if v is not None}


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays(n=30, size=40, classes=np.array(["x", "y", "z"])))
    data = load_dataset(str(tmp_path / "a.npz"))
    assert data.classes == ("x", "y", "z")
    assert data.native_resolution == 40
    assert len(data.test) == 30
    np.savez(tmp_path / "b.npz", **arrays(n=30, size=8))
    assert load_dataset(str(tmp_path / "b.npz")).native_resolution == 32


class _Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": None}, "has no x_train"),
        ({"y_val": None}, "has no y_val"),
        ({"x_train": np.zeros((12, 32, 32, 3), np.float32)}, "x_train in .* must be uint8"),
        ({"x_val": np.zeros((12, 3, 32, 32), np.uint8)}, "x_val in .* must be uint8"),
        ({"x_val": np.zeros((0, 32, 32, 3), np.uint8), "y_val": np.zeros(0, int)}, "x_val in .* must be uint8"),
        ({"y_train": np.arange(11) % 3}, "y_train in .* must be 12 integers"),
        ({"y_train": np.zeros(12)}, "y_train in .* must be 12 integers"),
        ({"y_train": np.arange(12) % 3 - 1}, "they are -1..2"),
        ({"y_train": np.arange(12) * 1000}, "they are 0..11000"),
        ({"classes": np.array(["a", "b"])}, "labels in .* must be 0..1"),
        ({"y_train": np.arange(12) % 2}, "class '2' of data set 'a.npz' has no images in train"),
        ({"y_train": np.array([_Evil()] * 12, dtype=object)}, "cannot read .* as arrays"),
    ],
)
def test_unusable_npz(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays(**changes))
    with pytest.raises(UserError, match=message) as caught:
        load_dataset(str(tmp_path / "a.npz"))
    assert caught.value.hint


# --- named sets from files


def write_cifar10(root: Path, per_file: int = 20) -> None:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        labels = (np.arange(per_file) % 10).astype(np.uint8)[:, None]
        pixels = rng.integers(0, 256, (per_file, 3072), dtype=np.uint8)
        (folder / name).write_bytes(np.hstack([labels, pixels]).tobytes())
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n\n")


def test_cifar10_binary(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    data = load_dataset("cifar10", root=tmp_path)
    assert data.classes == tuple("abcdefghij")
    assert (len(data.train) + len(data.val), len(data.test)) == (100, 20)
    raw = np.frombuffer((tmp_path / "cifar-10-batches-bin/test_batch.bin").read_bytes(), np.uint8)
    assert data.test.images[0, 0, 1].tolist() == [raw[1 + 1], raw[1 + 1 + 1024], raw[1 + 1 + 2048]]


def test_cifar100_uses_the_fine_label(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    fine = np.tile(np.arange(3, dtype=np.uint8), 4)
    records = np.zeros((12, 3074), np.uint8)
    records[:, 0], records[:, 1] = 7, fine
    for name in ("train.bin", "test.bin"):
        (folder / name).write_bytes(records.tobytes())
    (folder / "fine_label_names.txt").write_text("x\ny\nz\n")
    data = load_dataset("cifar100", root=tmp_path)
    assert data.test.labels.tolist() == fine.tolist()


def test_unusable_cifar10(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    file = tmp_path / "cifar-10-batches-bin/data_batch_3.bin"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(UserError, match="whole number"):
        load_dataset("cifar10", root=tmp_path)
    file.write_bytes(b"\xff" + content[1:])
    with pytest.raises(UserError, match="labels above 9"):
        load_dataset("cifar10", root=tmp_path)
    file.unlink()
    with pytest.raises(UserError, match=r"cannot read '.*data_batch_3\.bin'"):
        load_dataset("cifar10", root=tmp_path)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr("urllib.request.urlopen", refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
def test_no_network_says_where_to_put_the_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot download") as caught:
        load_dataset(name, root=tmp_path)
    assert str(tmp_path) in (caught.value.hint or "")


def test_torchvision_set_from_local_files(tmp_path: Path) -> None:
    wnids = sorted(torchvision.datasets.Imagenette._WNID_TO_CLASS)
    for split in ("train", "val"):
        for i, wnid in enumerate(wnids):
            folder = tmp_path / "imagenette2-160" / split / wnid
            write_images(folder, 2, seed=i)
            for file in list(folder.iterdir()):
                Image.open(file).save(file.with_suffix(".jpeg"))
                file.unlink()
    data = load_dataset("imagenette", root=tmp_path, options=DataOptions(max_resolution=64))
    assert data.classes[0] == "tench"
    assert (len(data.train), len(data.val), len(data.test)) == (10, 10, 20)
    assert data.native_resolution == 64


def test_cifar10_mosaics_become_npz(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tiles = rng.integers(0, 256, (3, 25, 40, 32, 32, 3), dtype=np.uint8)
    for name, mosaic in zip(("train-00", "train-01", "test-00"), tiles, strict=True):
        flat = mosaic.swapaxes(1, 2).reshape(800, 1280, 3)
        Image.fromarray(flat).save(tmp_path / f"{name}.webp", lossless=True)
    labels = (np.arange(2000) % 10).astype(np.uint8)
    np.savez(tmp_path / "labels.npz", train=labels, test=labels[:1000])
    convert_cifar10_mosaic(tmp_path, tmp_path / "out.npz", val_files=1)
    data = load_dataset(str(tmp_path / "out.npz"))
    assert np.array_equal(data.val.images, tiles[1].reshape(-1, 32, 32, 3))
    assert data.classes[3] == "cat"
    assert data.notes == ()


@pytest.mark.parametrize("suffix", [".tar", ".zip"])
def test_an_archive_is_read_where_it_is(
    make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    from nas.data import tree

    archive = tmp_path / f"photos{suffix}"
    shutil.make_archive(str(archive.with_suffix("")), suffix[1:], make_folder())
    monkeypatch.setattr(tree, "ensure_fits", refuse)
    found = tree.read_archive(archive, (".png",))
    part, read = next((parts, read) for parts, read in found.files.items() if parts[0] == "train")
    assert read() == make_folder().joinpath(*part).read_bytes()
    size = archive.stat().st_size
    with archive.open("r+b") as file:
        file.truncate(size // 4)
    with pytest.raises(UserError, match=f"cannot read archive '{archive}'"):
        [read() for read in found.files.values()]


def refuse(*_: object) -> None:
    raise AssertionError("nothing is kept in memory")


def test_a_compressed_tar_has_to_fit_into_memory(
    make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nas.data.decode as decode

    archive = tmp_path / "photos.tar.gz"
    shutil.make_archive(str(tmp_path / "photos"), "gztar", make_folder())
    monkeypatch.setattr(decode, "available_memory_bytes", lambda: 1)
    with pytest.raises(UserError, match=r"photos.tar.gz' needs .* of memory"):
        load_dataset(str(archive))


def test_a_member_that_claims_too_much_is_refused(
    make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nas.data.decode as decode
    from nas.data import tree

    shutil.make_archive(str(tmp_path / "photos"), "zip", make_folder())
    monkeypatch.setattr(tree, "CHECK_BYTES", 100)
    monkeypatch.setattr(decode, "available_memory_bytes", lambda: 1)
    with pytest.raises(UserError, match=r"a file in archive '.*photos.zip' needs .* of memory"):
        load_dataset(str(tmp_path / "photos.zip"))
