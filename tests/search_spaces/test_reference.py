"""Spaces by reference: names, attributes of modules, tables in files; the same in every process."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_spaces import SEARCH_SPACES, StagedSpace, architecture_of_json, load_search_space, resolve_space, space_of
from search_spaces.detect import DetectSpace
from search_spaces.documents import document_of
from search_spaces.errors import UnknownNameError, UserError
from search_spaces.reference import SPACE_FILE
from tests.search_spaces.own_space import SEPARABLE, SPACE, TABLE

HERE = "tests.search_spaces.own_space"
NOT_A_SPACE = 3

SIZE = (10,)


def make() -> StagedSpace:
    return SPACE


def make_of(table: object) -> object:
    return table


def written(space: StagedSpace, folder: Path, **changes: Any) -> Path:
    """A file of the space's table, called `lean`; families by reference where they are not ours."""
    document = {**document_of(space), "name": "lean", **changes}
    path = folder / "lean.json"
    path.write_text(json.dumps({k: v for k, v in document.items() if v is not ...}, indent=2))
    return path


@pytest.mark.parametrize("name", sorted(SEARCH_SPACES))
def test_bundled_names_are_their_own_references(name: str) -> None:
    space = resolve_space(name)
    assert space.name == name
    arch = space.anchors[0]
    assert arch.key == load_search_space(name).anchors[0].key
    assert arch.key.startswith(f"{name}:")
    assert arch.document is None
    assert "table" not in space.to_json(arch)
    assert space_of(arch).decisions == space.decisions


@pytest.mark.parametrize("reference", [f"{HERE}:SPACE", f"{__name__}:make"])
def test_an_attribute_of_a_module_is_a_space(reference: str) -> None:
    space = resolve_space(reference)
    assert space.name == reference
    assert space.decisions == SPACE.decisions
    arch = space.architecture(space.sample(1, np.random.default_rng(0))[0])
    assert space_of(arch).blocks(arch, SIZE) == SPACE.blocks(SPACE.architecture(arch.choices), SIZE)
    assert architecture_of_json(json.loads(json.dumps(space.to_json(arch)))) == arch
    restricted = space.restrict("resolution", [32])
    assert restricted.name == reference
    assert restricted.size < space.size == SPACE.size


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("no.such.module:SPACE", "there is no search space 'no.such.module:SPACE': No module named 'no'"),
        (f"{HERE}:MISSING", "has no attribute 'MISSING'"),
        (f"{__name__}:NOT_A_SPACE", "is no search space but int"),
        (f"{__name__}:make_of", "cannot be called without arguments"),
        (f"{__name__}:dict", "has no attribute"),
        (":SPACE", "there is no search space ':SPACE'"),
        ("lean@0123456789abcdef", "the table of the space 'lean@0123456789abcdef' is missing"),
        ("absent.json", "cannot read the space 'absent.json'"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(reference: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence.replace("(", r"\(")) as refused:
        resolve_space(reference)
    assert refused.value.hint


def test_a_name_that_is_close_to_a_bundled_one_is_suggested() -> None:
    with pytest.raises(UnknownNameError) as unknown:
        resolve_space("mixd")
    assert unknown.value.hint == "did you mean 'mixed'?"


@pytest.mark.parametrize("name", ["dense", "detect"])
def test_a_table_in_a_file_is_a_space_that_its_architectures_carry(name: str, tmp_path: Path) -> None:
    bundled = load_search_space(name)
    path = written(bundled, tmp_path)
    space = resolve_space(str(path))
    assert isinstance(space, DetectSpace if name == "detect" else StagedSpace)
    assert space.name.startswith("lean@")
    assert space.decisions == bundled.decisions
    assert len(space.anchors) == len(bundled.anchors)
    arch = space.architecture(space.sample(1, np.random.default_rng(0))[0])
    path.unlink()
    sent = pickle.loads(pickle.dumps(arch))  # noqa: S301 - as a worker process gets it
    for found in (sent, architecture_of_json(json.loads(json.dumps(space.to_json(arch))))):
        assert (found, found.key) == (arch, arch.key)
        assert space_of(found).blocks(found, SIZE) == bundled.blocks(bundled.architecture(arch.choices), SIZE)


def test_the_reference_of_a_table_is_its_contents(tmp_path: Path) -> None:
    space = resolve_space(str(written(load_search_space("mobile"), tmp_path)))
    again = json.dumps(dict(reversed(json.loads((tmp_path / "lean.json").read_text()).items())))
    (tmp_path / SPACE_FILE).write_text(again)
    assert resolve_space(space.name, beside=tmp_path).decisions == space.decisions
    without = written(load_search_space("mobile"), tmp_path, kernels=...)
    assert resolve_space(str(without)).name == space.name, "the default was written out"
    other = resolve_space(str(written(load_search_space("mobile"), tmp_path, stem_widths=[8], anchors=[])))
    assert other.name != space.name
    assert other.document is not None
    (tmp_path / SPACE_FILE).write_text(other.document)
    with pytest.raises(UserError, match=f"the table of the space '{space.name}' was changed: it is now '{other.name}'"):
        resolve_space(space.name, beside=tmp_path)


def test_another_process_makes_the_same_of_it(tmp_path: Path) -> None:
    separable = SEPARABLE.named(f"{HERE}:SEPARABLE")
    table = replace(TABLE, families=("basic", separable.name), anchors=({"stage2.family": separable.name},))
    path = written(StagedSpace(table, families=(separable,)), tmp_path)
    space = resolve_space(str(path))
    arch = space.architecture(space.sample(1, np.random.default_rng(3))[0])
    file = tmp_path / "arch.pickle"
    file.write_bytes(pickle.dumps(arch))
    code = (
        "import pickle, sys; from pathlib import Path; from search_spaces import space_of;"
        "arch = pickle.loads(Path(sys.argv[1]).read_bytes()); print(arch.key, space_of(arch).blocks(arch, (10,)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{arch.key} {space.blocks(arch, SIZE)}"
    assert {block.kind for a in space.anchors for block in space.blocks(a, SIZE)} >= {"basic", separable.name}


def test_a_family_that_nobody_else_could_find_is_refused() -> None:
    with pytest.raises(UserError, match="'separable' cannot be found by its name in another process"):
        document_of(SPACE)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda d: [], "has no 'schema'"),
        (lambda d: {**d, "schema": "nas-space/9"}, "has no 'schema' of 'nas-space/1'"),
        (lambda d: {**d, "kind": "graph"}, "the kind 'graph' is none of staged, detect"),
        (lambda d: {**d, "name": "a b"}, "the name 'a b' is no plain word"),
        (lambda d: {**d, "widht": [1]}, "unknown field of a space's table 'widht'"),
        (lambda d: {k: v for k, v in d.items() if k != "stages"}, "does not say 'stages'"),
        (lambda d: {**d, "stem_widths": [0]}, r"'stem_widths' is \[0\] instead of a list of positive whole numbers"),
        (lambda d: {**d, "stem_widths": [8, 8]}, "needs distinct options"),
        (lambda d: {**d, "early": 1}, "'early' is 1 instead of true or false"),
        (lambda d: {**d, "stages": [{"widths": [8]}]}, "a stage needs 'widths' and 'depths'"),
        (lambda d: {**d, "families": ["mbconvv"]}, r"names unknown families \['mbconvv'\]"),
        (lambda d: {**d, "families": [f"{HERE}:TABLE"]}, "is no family of blocks but SpaceTable"),
        (lambda d: {**d, "anchors": [{"stage9.width": 3}]}, "an anchor decides about 'stage9.width'"),
        (lambda d: {**d, "anchors": [{"stem.width": 3}]}, "3 is not an option of 'stem.width'"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(
    spoil: Callable[[dict[str, Any]], object], sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "lean.json"
    path.write_text(json.dumps(spoil({**document_of(load_search_space("mobile")), "name": "lean"})))
    with pytest.raises(UserError, match=f"lean.json' is not the table of a space: .*{sentence}"):
        resolve_space(str(path))


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "lean.json").write_text("{")
    with pytest.raises(UserError, match=r"lean\.json' is not JSON"):
        resolve_space(str(tmp_path / "lean.json"))
