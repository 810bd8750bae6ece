"""A virtual environment with a few packages and nothing else, made without installing anything."""

import subprocess
import venv
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType


def make_bare_python(folder: Path, modules: Iterable[ModuleType]) -> Path:
    """Create the environment in `folder`, linking the installed packages of `modules`; returns its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    paths = subprocess.run([python, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True)
    packages = Path(paths.stdout.decode().strip())
    for module in modules:
        assert module.__file__ is not None
        source = Path(module.__file__).parent
        # Compiled libraries lie beside their package, under its name or its distribution's.
        for part in (source, *source.parent.glob(f"{source.name}.libs"), *source.parent.glob(f"{_wheel(source)}.libs")):
            if not (packages / part.name).exists():
                (packages / part.name).symlink_to(part)
    return python


def _wheel(source: Path) -> str:
    return {"PIL": "pillow"}.get(source.name, source.name)
