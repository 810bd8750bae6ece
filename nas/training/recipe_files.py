"""Recipes as YAML: by name from a table of texts, or a file; inheritance, and single settings from the command line.

A file has the keys of `nas.training.recipe.Recipe` and perhaps `inherits: NAME`, a known recipe or a file beside it.
Every task brings its own recipes (`nas.tasks.recipes`); those that several inherit from are here.
Sections are merged key by key; anything else replaces what was inherited.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from nas.errors import UnknownNameError, UserError
from nas.training.recipe import INHERITS, Recipe, merged

Settings = dict[str, Any]
_SUFFIXES = (".yaml", ".yml")
_NO_YAML = (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError)
"""What PyYAML raises; the last three where a value only looks like a number or a date: `0x_`, `2024-13-45`."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe one, which refuses a key that is there twice: it would quietly take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        known: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in known:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
            known.add(key.value)
        return super().construct_mapping(node, deep)


def yaml_recipes(package: str) -> dict[str, str]:
    """Name -> YAML text of the files in the folder `recipes` of an installed package."""
    found = [file for file in files(package).joinpath("recipes").iterdir() if _is_yaml(file.name)]
    return {Path(file.name).stem: file.read_text(encoding="utf-8") for file in found}


def shared_recipes() -> dict[str, str]:
    """Name -> YAML text of the recipes that those of tasks inherit from."""
    return yaml_recipes("nas.training")


def recipe_label(name_or_file: str) -> str:
    """A recipe's name, for folders and tables."""
    return Path(name_or_file).stem if _is_yaml(name_or_file) else name_or_file


def load_recipe(
    name_or_file: str, overrides: Sequence[str] = (), *, bundled: Mapping[str, str] | None = None
) -> Recipe:
    """The resolved recipe.

    Args:
        name_or_file: a name in `bundled`, or a `.yaml` file.
        overrides: `key.sub=value`, each value read as YAML; they win over the file.
        bundled: name -> YAML text of the recipes that may be named, also by `inherits`; None: `shared_recipes()`.

    Raises:
        UserError: an unknown name or key (`UnknownNameError`), a value that makes no sense, a file that cannot be
            read, or files that inherit from each other.
    """
    settings = _resolved(name_or_file, None, (), shared_recipes() if bundled is None else bundled)
    for override in overrides:
        settings = merged(settings, _override(override))
    return Recipe.of(settings, f"recipe {name_or_file!r}")


def to_yaml(recipe: Recipe) -> str:
    """The resolved recipe as a YAML file that says the same."""
    return str(yaml.safe_dump(recipe.to_json(), sort_keys=False, allow_unicode=True))


def _resolved(name_or_file: str, beside: Path | None, chain: tuple[str, ...], bundled: Mapping[str, str]) -> Settings:
    path, text = _text(name_or_file, beside, bundled)
    identity = str(path) if path is not None else name_or_file
    if identity in chain:
        cycle = " -> ".join(recipe_label(c) for c in (*chain[chain.index(identity) :], identity))
        raise UserError(f"recipes inherit from each other: {cycle}", "remove one `inherits`")
    settings = _parsed(text, name_or_file)
    parent = settings.pop(INHERITS, None)
    if parent is None:
        return settings
    if not isinstance(parent, str):
        raise UserError(f"recipe {name_or_file!r} inherits from {parent!r}", "name one recipe or file: inherits: base")
    inherited = _resolved(parent, path.parent if path is not None else None, (*chain, identity), bundled)
    return merged(inherited, settings)


def _text(name_or_file: str, beside: Path | None, bundled: Mapping[str, str]) -> tuple[Path | None, str]:
    """The file (None for a bundled recipe) and its text."""
    if not _is_yaml(name_or_file):
        if name_or_file not in bundled:
            raise UnknownNameError("recipe", name_or_file, sorted(bundled))
        return None, bundled[name_or_file]
    path = ((beside or Path()) / Path(name_or_file).expanduser()).resolve()
    try:
        return path, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"cannot read the recipe '{path}': {reason}", "give a YAML file or a bundled name") from error


def _parsed(text: str, name: str) -> Settings:
    try:
        settings = yaml.load(text, _Loader)  # noqa: S506 (it is a SafeLoader)
    except _NO_YAML as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise UserError(f"the recipe {name!r} is not YAML: {problem}{where}", "write `key: value` lines") from error
    if settings is None:
        return {}
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise UserError(f"the recipe {name!r} is not a table of settings", "write `key: value` lines")
    return settings


def _override(text: str) -> Settings:
    key, equals, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts):
        raise UserError(f"--set {text!r} is no setting", "write it like --set optimizer.lr=0.01")
    if parts == [INHERITS]:
        raise UserError(f"--set {text!r}: only a file can inherit", f"name that recipe itself: --recipe {value}")
    try:
        nested: Any = yaml.safe_load(value)
    except _NO_YAML as error:
        raise UserError(f"--set {text!r} has a value that is not YAML", "write it like --set epochs=20") from error
    if isinstance(nested, str):
        nested = _number(nested)
    for part in reversed(parts):
        nested = {part: nested}
    assert isinstance(nested, dict)
    return nested


def _number(text: str) -> str | float:
    """YAML 1.1 reads 1e-3 as a text."""
    try:
        return float(text)
    except ValueError:
        return text


def _is_yaml(name: str) -> bool:
    return name.lower().endswith(_SUFFIXES)
