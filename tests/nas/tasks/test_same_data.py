"""Whether data changed since a run was begun, and by how many examples."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nas.data.images import ImageSplit
from nas.errors import UserError
from nas.tasks.same_data import SPLITS_FILE, Changes, changes, fingerprints_of, record_splits, require_same_data
from tests.nas.executors.tasks import tiny_data

DATA = tiny_data()


def test_the_same_data_are_the_same_in_any_order(tmp_path: Path) -> None:
    require_same_data(tmp_path, DATA)  # nothing is recorded, so nothing is known
    record_splits(tmp_path, DATA)
    require_same_data(tmp_path, tiny_data())
    backwards = np.arange(len(DATA.train))[::-1].copy()
    require_same_data(tmp_path, replace(DATA, train=DATA.train.take(backwards)))


def test_each_kind_of_change_is_counted(tmp_path: Path) -> None:
    record_splits(tmp_path, DATA)
    images = np.concatenate([DATA.train.images, 255 - DATA.train.images[:1]])
    more = replace(DATA, train=ImageSplit(images, np.append(DATA.train.labels, 0)))
    with pytest.raises(UserError, match=r"changed by 1 image since .* \(1 added\)"):
        require_same_data(tmp_path, more)
    fewer = replace(DATA, val=DATA.val.take(np.arange(2, len(DATA.val))))
    with pytest.raises(UserError, match=r"changed by 2 images since .* \(2 removed\)"):
        require_same_data(tmp_path, fewer)
    other = DATA.train.labels.copy()
    other[0] = (other[0] + 1) % 10
    relabelled = replace(DATA, train=ImageSplit(DATA.train.images, other))
    with pytest.raises(UserError, match=r"\(1 added, 1 removed\)"):
        require_same_data(tmp_path, relabelled)
    swapped = replace(DATA, train=DATA.val, val=DATA.train)
    found = changes(fingerprints_of(DATA), fingerprints_of(swapped))
    assert found == Changes(added=0, removed=0, moved=len(DATA.train) + len(DATA.val))


def test_a_damaged_record_is_a_sentence(tmp_path: Path) -> None:
    for content in (b"", b"no archive", b"PK\x03\x04 half"):
        (tmp_path / SPLITS_FILE).write_bytes(content)
        with pytest.raises(UserError, match="the record of a run's data"):
            require_same_data(tmp_path, DATA)
    np.savez(tmp_path / SPLITS_FILE, train=np.zeros(3, np.uint64))
    with pytest.raises(UserError, match="the record of a run's data"):
        require_same_data(tmp_path, DATA)
