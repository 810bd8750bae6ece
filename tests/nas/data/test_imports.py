"""Names and configurations must be readable without the seconds that torch takes to import."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "module", ["nas.data", "nas.tasks.detection.data", "nas.tasks.classification.baselines", "nas.training.recipe"]
)
def test_import_is_light(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'torch', 'torchvision', 'sklearn', 'pandas'}} & sys.modules.keys()))"
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root)
    assert done.stdout.strip() == "[]"
