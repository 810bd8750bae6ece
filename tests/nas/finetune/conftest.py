"""A finished run's folder, as far as a fine-tuning reads it."""

from pathlib import Path

import pytest

from tests.nas.small_runs import small_description, write_data, write_run


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", small_description(), write_data(tmp_path / "data.npz"))
