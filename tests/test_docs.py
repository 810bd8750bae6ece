"""The documentation is honest: its commands exist, its examples run, its links lead somewhere."""

import ast
import importlib
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np
import pytest

from nas.cli.main import COMMANDS, cli
from nas.tasks import task_named

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)


def code_block(path: str) -> str:
    """The block of CONTRIBUTING.md whose first line is the comment `# <path>`."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if block.startswith(f"# {path}\n")]
    assert len(blocks) == 1
    return str(blocks[0])


def module_of(path: str) -> ModuleType:
    module = ModuleType(path.removesuffix(".py").replace("/", "."))
    exec(compile(code_block(path), path, "exec"), module.__dict__)
    return module


def mentioned_commands(document: Path) -> list[list[str]]:
    """Each `nas ...` in a code span or at the start of a line of a code block, as words."""
    text = document.read_text()
    spans = re.findall(r"`(nas [^`\n]+)`", text)
    lines = [line for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [found.split() for found in (*spans, *(line for line in lines if line.startswith("nas ")))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_named_exists_with_its_options(document: Path) -> None:
    for _, name, *rest in mentioned_commands(document):
        if name == "COMMAND" or name.startswith("-"):
            continue
        assert name in COMMANDS, f"{document.name} names `nas {name}`"
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        given = {word for word in rest if word.startswith("--")}
        assert given <= known | {"--help"}, f"{document.name}: nas {name}"


def test_readme_lists_every_command() -> None:
    named = {words[1] for words in mentioned_commands(ROOT / "README.md")}
    assert set(COMMANDS) <= named


def result_tables(text: str) -> list[list[str]]:
    """The body rows of each Markdown table whose heading names a measured quantity (ms, images/s, per cent, MAPE)."""
    tables = re.findall(r"^(\|.*)\n\|[-:| ]+\n((?:\|.*\n?)*)", text, re.MULTILINE)
    return [rows.splitlines() for heading, rows in tables if re.search(r"\bms\b|images/s|%|MAPE", heading)]


def test_readme_is_short_and_shows_one_small_table_of_results() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert [len(rows) <= 6 for rows in result_tables(text)] == [True]


def test_result_tables_are_found() -> None:
    assert [len(rows) for rows in result_tables((ROOT / "docs/results.md").read_text())] == [7, 12, 11]
    assert result_tables("| exit code | meaning |\n|---|---|\n| 0 | done |\n") == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_inside_the_project_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_headings_that_exist(document: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#\s]*)#([^)]+)\)", document.read_text()):
        page = document.parent / target if target else document
        headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
        anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert anchor in anchors, f"{document.name} links to {target}#{anchor}"


OURS = "nas|predictors|search_spaces|experiments"


def sources(module: str) -> list[Path]:
    """The file of a module, or all files of a package."""
    path = ROOT / module.replace(".", "/")
    return [path.with_suffix(".py")] if path.with_suffix(".py").is_file() else sorted(path.rglob("*.py"))


def is_known(name: str) -> bool:
    """Whether a dotted name is a module, or a word in the module that it names."""
    parts = name.split(".")
    split = next((k for k in range(len(parts), 0, -1) if sources(".".join(parts[:k]))), 0)
    text = "".join(path.read_text() for path in sources(".".join(parts[:split])))
    return split > 0 and all(re.search(rf"\b{part}\b", text) for part in parts[split:])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_and_names_of_the_code_exist(document: Path) -> None:
    text = document.read_text()
    files = re.findall(rf"`((?:{OURS}|tests)/[\w./-]+)`", text)
    assert [file for file in files if not (ROOT / file).exists()] == []
    names = re.findall(rf"`((?:{OURS})(?:\.\w+)+)[`(]", text)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        for module, imported in re.findall(rf"^from ((?:{OURS})[\w.]*) import (.*)$", block, re.MULTILINE):
            names += [f"{module}.{name.strip()}" for name in imported.split(",")]
    assert [name for name in names if not is_known(name)] == []


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert is_known("nas.controller.search.run_search")
    assert not is_known("nas.controller.search.run_serach")
    assert not is_known("nas.controler.search")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_experiments_named_exist_with_their_options(document: Path) -> None:
    known = "".join(path.read_text() for path in sources("experiments"))
    for name, rest in re.findall(r"python -m experiments\.(\w+)([^`\n]*)", document.read_text().replace("\\\n", " ")):
        files = (ROOT / f"experiments/{name}.py", ROOT / f"experiments/{name}/__main__.py")
        assert any(file.is_file() for file in files), f"{document.name} names experiments.{name}"
        for option in re.findall(r"--[a-z][a-z-]*", rest):
            assert re.search(rf"[\"/]{option}[\"/]", known), f"{document.name}: experiments.{name} {option}"


def calls_of_ours(block: str) -> Iterator[tuple[Callable[..., Any], ast.Call]]:
    """Each call in a block of Python of what it imports from this project, `Class(...)` or `Class.method(...)`.

    A block of one entry of a table, `"name": value,`, is read as that table.
    """
    tree = ast.parse(f"{{{block}}}" if re.match(r'(#.*\n)?"[^"\n]*":', block) else block)
    names = dict[str, Any]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and re.match(rf"({OURS})\b", node.module or ""):
            module = importlib.import_module(node.module or "")
            names |= {alias.asname or alias.name: getattr(module, alias.name) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in names:
                yield names[node.func.id], node
            elif isinstance(of := node.func, ast.Attribute) and isinstance(of.value, ast.Name) and of.value.id in names:
                yield getattr(names[of.value.id], of.attr), node


def require_fitting(called: Callable[..., Any], call: ast.Call) -> None:
    """Raise TypeError unless the function takes these arguments, as far as they are written out."""
    keywords = {keyword.arg: None for keyword in call.keywords if keyword.arg}
    plain = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    inspect.signature(called).bind_partial(*plain, **keywords)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_examples_import_and_call_what_exists(document: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        for called, call in calls_of_ours(block):
            require_fitting(called, call)


def test_an_argument_that_does_not_exist_is_noticed() -> None:
    block = "from nas.controller.config import SearchConfig\nSearchConfig(latency_ms=4.0)\n"
    [(called, call)] = calls_of_ours(block)
    with pytest.raises(TypeError, match="latency_ms"):
        require_fitting(called, call)


def test_make_targets_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for document in DOCUMENTS:
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", document.read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{document.name} names `make {target}`"


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test " in (ROOT / "README.md").read_text()
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == "make test"


# Runs on a copy of the package in which the family was added just as CONTRIBUTING.md says.
NEW_FAMILY = """
import numpy as np, torch
from search_spaces import load_search_space
from search_spaces.modules import folded, set_norm_statistics

space = load_search_space("mixed")
arch = space.replace(space.anchors[0], stage1__family="separable", stage1__kernel=5, stage2__family="separable")
blocks = space.blocks(arch, (10,))
assert [block.kind for block in blocks].count("separable") >= 2
network = space.build(arch, (10,))
network(space.signature(arch, (10,)).input.draw_torch(2)).sum().backward()
deployed = folded(network.eval())
assert sum(p.numel() for p in deployed.parameters()) == int(space.costs(space.choices([arch]), (10,))["params"][0])
found = space.sample(200, np.random.default_rng(0))
assert any(b.kind == "separable" for row in found for b in space.blocks(space.architecture(row), (10,)))
"""


@pytest.mark.slow
def test_block_family_example_works(tmp_path: Path) -> None:
    package = tmp_path / "search_spaces"
    shutil.copytree(ROOT / "search_spaces", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "families/separable.py").write_text(code_block("search_spaces/families/separable.py"))
    table = package / "families/__init__.py"
    text = table.read_text()
    assert text.count(" PREDICT_POSE,\n") == 1
    table.write_text(
        text.replace(" PREDICT_POSE,\n", " PREDICT_POSE, SEPARABLE,\n").replace(
            "\nFAMILIES:", "from search_spaces.families.separable import SEPARABLE\n\nFAMILIES:"
        )
    )
    presets = package / "presets.py"
    text = presets.read_text()
    assert (
        text.count('"bottleneck", "rep"),\n    stem_widths=(16, 32, 48, 64),\n    stages=_DENSE_STAGES,\n    anchors=(')
        == 1
    )
    head, mixed = text.split("MIXED = ")
    presets.write_text(head + "MIXED = " + mixed.replace('"rep")', '"rep", "separable")', 1))
    done = subprocess.run([sys.executable, "-c", NEW_FAMILY], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_search_space_in_a_file_example_works(tmp_path: Path) -> None:
    import torch

    from search_spaces import StagedSpace, resolve_space

    (table,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs/search-spaces.md").read_text(), re.DOTALL)
    (tmp_path / "tiny.json").write_text(table)
    space = resolve_space(str(tmp_path / "tiny.json")).restrict("resolution", [32])
    assert isinstance(space, StagedSpace)
    network = space.build(space.anchors[0], (10,))
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert space.parameters(space.anchors[0])["stage4.width"] == 96


def test_search_space_in_a_package_example_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from search_spaces import resolve_space
    from tests.search_spaces.contract import check_space

    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/search-spaces.md").read_text(), re.DOTALL)
    (code,) = [block for block in blocks if block.startswith("# mypackage/spaces.py\n")]
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "mypackage/spaces.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    space = resolve_space("mypackage.spaces:PLAIN")
    assert space.size == 9
    check_space(space, (10,))


@pytest.mark.slow
def test_runtime_example_works(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    from nas.deployment import Deployment
    from nas.runtimes import load_runtime

    node = helper.make_node("GlobalAveragePool", ["images"], ["pooled"])
    flat = helper.make_node("Flatten", ["pooled"], ["logits"])
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 8, 8])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 3])
    graph = helper.make_graph([node, flat], "pool", [images], [logits])
    path = tmp_path / "pool.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)

    runtime = module_of("nas/runtimes/reference.py").Reference()
    given = np.random.default_rng(0).random((3, 3, 8, 8), dtype=np.float32)
    results = []
    for any_runtime in (runtime, load_runtime("onnxruntime")):
        deployment = Deployment(any_runtime.name, "fp32", 1)
        session = any_runtime.load(any_runtime.prepare(path, "fp32", tmp_path, None), deployment)
        results.append(session.run(given))
    assert results[0] == pytest.approx(results[1], abs=1e-5)


def test_dataset_example_works(tmp_path: Path) -> None:
    from nas.data.splits import complete
    from nas.data_options import DataOptions

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 64, 64, 3), dtype=np.uint8)
    np.savez(tmp_path / "defects.npz", images=images, labels=np.arange(40) % 2)
    load = module_of("nas/tasks/classification/data/defects.py").load_defects
    data = complete("defects", load(tmp_path, DataOptions(max_resolution=32)), seed=0)
    assert data.classes == ("good", "scratched")
    assert min(len(data.train), len(data.val), len(data.test)) > 0
    assert data.train.resolution == 32


def test_limit_example_works(monkeypatch: pytest.MonkeyPatch) -> None:
    import nas.limits
    from nas.controller.prediction.probes import FileModel
    from nas.controller.prediction.scoring import CandidateForecast
    from nas.deployment import Deployment

    kind = module_of("nas/limits/activations.py").ActivationsLimit
    monkeypatch.setattr(nas.limits, "KINDS", (*nas.limits.KINDS, kind))
    limits = nas.limits.Limits.of(latency_ms=5.0, max_activations=2e6)
    assert limits.text == "at most 5 ms, at most 2e+06 activations"
    assert nas.limits.Limits.of(**limits.to_json()) == limits
    forecast = CandidateForecast(
        deployment=Deployment("onnxruntime", "fp32", 1), upper_ms=np.array([4.0, 6.0]),
        costs={"activations": np.array([3e6, 1e6])}, files=FileModel(),
    )  # fmt: skip
    assert [limit.ratio(forecast).tolist() for limit in limits.predicted] == [[0.8, 1.2], [1.5, 0.5]]
    assert limits.violations(nas.limits.Observation(latencies_ms=(4.0,))) == []


def test_the_example_of_a_task_is_one_that_the_suite_runs() -> None:
    (task,) = set(re.findall(r"--task (\S+:\S+)", (ROOT / "CONTRIBUTING.md").read_text()))
    (space,) = set(re.findall(r"--space (\S+:\S+)", (ROOT / "CONTRIBUTING.md").read_text()))
    assert task_named(task).default_space == space
    assert (ROOT / task.partition(":")[0].replace(".", "/")).with_suffix(".py").name == "test_open_house.py"
