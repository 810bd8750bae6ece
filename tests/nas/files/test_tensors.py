"""Files of tensors: whole or not at all, and each kind of damage is one sentence."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from nas.errors import UserError
from nas.files.tensors import load_tensors, save_tensors

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(3), "c": torch.ones(2, dtype=torch.bfloat16)}


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file may grow beyond 2 kB: what a full disk looks like, without one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_round_trip(tmp_path: Path) -> None:
    save_tensors(tmp_path / "x.safetensors", TENSORS, {"epoch": 3})
    tensors, story = load_tensors(tmp_path / "x.safetensors")
    assert story == {"epoch": 3}
    assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


def test_files_of_others_have_no_story(tmp_path: Path) -> None:
    save_file(TENSORS, str(tmp_path / "x.safetensors"))
    assert load_tensors(tmp_path / "x.safetensors")[1] == {}


@pytest.mark.usefixtures("small_disk")
def test_the_last_good_file_survives_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(path, TENSORS, {"epoch": 1})
    with pytest.raises(UserError, match="cannot save") as caught:
        save_tensors(path, {"a": torch.zeros(10_000)}, {"epoch": 2})
    assert "goes on" in str(caught.value.hint)
    assert load_tensors(path)[1] == {"epoch": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-3], "not a whole safetensors file"),
        (lambda content: content[:5], "not a whole safetensors file"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "was changed"),
        (lambda content: b"PK\x03\x04" + content, "is a pickle"),
        (lambda content: b"\x80\x04\x95" + content, "is a pickle"),
    ],
)
def test_a_damaged_file_is_refused(damage, message: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "x.safetensors"
    save_tensors(path, TENSORS, {})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=message):
        load_tensors(path)


def test_a_real_pickle_is_refused(tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / "x.safetensors")
    with pytest.raises(UserError, match="is a pickle"):
        load_tensors(tmp_path / "x.safetensors")


def test_no_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(path, TENSORS, {"epoch": 3, "curve": [0.5]})
    whole, refused = path.read_bytes(), 0
    for place in range(len(whole)):
        for bit in (1, 2, 4, 8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            try:
                tensors, story = load_tensors(path)
            except UserError:
                refused += 1
                continue
            assert story == {"epoch": 3, "curve": [0.5]}
            assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
    assert refused > 3.5 * len(whole), "what may change is the name of a checksum alone"


def test_a_file_without_the_checksum_of_its_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(path, TENSORS, {"epoch": 3})
    with safe_open(str(path), framework="pt") as file:
        metadata = file.metadata()
    del metadata["header_sha256"]
    save_file(TENSORS, str(path), metadata)
    with pytest.raises(UserError, match="was changed"):
        load_tensors(path)
