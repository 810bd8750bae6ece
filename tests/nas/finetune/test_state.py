"""Files of tensors: whole or not at all, and each kind of damage is one sentence."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from timm.optim import Lamb

from nas.errors import UserError
from nas.finetune.state import group_numbers, load_tensors, optimizer_tensors, restore_optimizer, save_tensors

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
        (lambda content: content[:-3], "no whole safetensors file"),
        (lambda content: content[:5], "no whole safetensors file"),
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


@pytest.mark.parametrize("make", [torch.optim.AdamW, Lamb, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)])
def test_an_optimiser_goes_on_as_if_nothing_had_happened(make) -> None:  # type: ignore[no-untyped-def]
    def step(parameter: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
        (parameter**2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    first = torch.nn.Parameter(torch.ones(3))
    optimizer = make([first])
    step(first, optimizer)
    second = torch.nn.Parameter(first.detach().clone())
    copy = make([second])
    restore_optimizer(copy, {k: v.clone() for k, v in optimizer_tensors(optimizer).items()}, group_numbers(optimizer))
    step(first, optimizer)
    step(second, copy)
    assert torch.equal(first, second)
