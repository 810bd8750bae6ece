"""A task, space, block families and device profile that no file of the product knows: from contracts to a benchmark.

The task tells by 12 token ids which of two vocabularies a sentence is of. All of it is named by references to this
file, as a user's own package would be.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from nas.bundles.predictor import Predictor
from nas.cli.main import run
from nas.data.contents import contents_of_arrays
from nas.data_options import USUAL, DataOptions
from nas.errors import UserError
from nas.tasks.artifacts import Figures, Prepared
from nas.tasks.floor import Floor
from nas.tasks.task import TrainingShape
from nas.training.objective import Validation
from nas.training.recipe import Recipe
from nas.training.recipe_files import load_recipe, shared_recipes
from search_spaces import Architecture, Decision, OutputSpec, SearchSpace, Signature, TensorSpec
from search_spaces.blocks import BlockColumns, BlockFamily, BlockSpec, Conv, Elementwise
from search_spaces.signature import Size
from tests.nas.brief import hurry
from tests.nas.tasks.contract import check_task
from tests.search_spaces.contract import check_space

if TYPE_CHECKING:
    from nas.tasks.examples import Examples

ME = "tests.test_open_house"
LENGTH, VOCABULARY = 12, 40
IDS = TensorSpec((LENGTH,), "int64", VOCABULARY)


# -- the space -------------------------------------------------------------------------------------


class LookUp(Conv):
    """Rows of a table: no arithmetic, and no bias."""

    @property
    def macs(self) -> NDArray[np.int64]:
        return np.zeros_like(self.params)

    @property
    def params(self) -> NDArray[np.int64]:
        return np.asarray(self.in_channels * self.out_channels, dtype=np.int64)


class MeanOfIds(nn.EmbeddingBag):
    """(b, length) int64 -> (b, width), written with operators that every exporter knows."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return self.weight[ids].mean(1)


def _looked_up(b: BlockColumns) -> Elementwise:
    return Elementwise(pooled=b.height * b.out_channels, arranged=b.height * b.out_channels)


def _linear(b: BlockColumns) -> Sequence[Conv]:
    return [Conv(b.in_channels, b.out_channels)]


def _nothing(b: BlockColumns) -> Elementwise:
    return Elementwise()


_ANY = (frozenset[str](), (1.0, 1.0, 1.0))
FAMILIES = {
    family.name: family
    for family in (
        BlockFamily(
            "ids", *_ANY, lambda b: [LookUp(b.in_channels, b.out_channels)], _looked_up,
            lambda spec: MeanOfIds(spec.in_channels, spec.out_channels),
        ),
        BlockFamily(
            "hidden", *_ANY, _linear, _nothing,
            lambda spec: nn.Sequential(nn.Linear(spec.in_channels, spec.out_channels), nn.ReLU()),
        ),
        BlockFamily("classes", *_ANY, _linear, _nothing, lambda spec: nn.Linear(spec.in_channels, spec.out_channels)),
    )
}  # fmt: skip


class TokenSpace(SearchSpace):
    """A mean of embedded ids, and linear layers on it."""

    task = f"{ME}:TASK"
    families: Mapping[str, BlockFamily] = FAMILIES

    def __init__(self) -> None:
        super().__init__("tokens", [Decision("width", (8, 16, 32, 64)), Decision("depth", (0, 1, 2, 3))])

    def signature(self, arch: Architecture, size: Size) -> Signature:
        return Signature(IDS, OutputSpec("logits", size, size))

    def blocks(self, arch: Architecture, size: Size) -> tuple[BlockSpec, ...]:
        width, depth = (int(option) for option in self.parameters(arch).values())

        def block(kind: str, given: int, out: int) -> BlockSpec:
            return BlockSpec(kind, given, out, 1, 1, 1.0, 1, False, "relu", LENGTH if kind == "ids" else 1, 1)

        body = [block("hidden", width, width)] * depth
        return (block("ids", VOCABULARY, width), *body, block("classes", width, size[0]))

    def build(self, arch: Architecture, size: Size) -> nn.Module:
        return nn.Sequential(*(self.families[block.kind].build(block) for block in self.blocks(arch, size)))


SPACE = TokenSpace()


# -- the task: data, objective, bundle ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Sentences:
    """`ids` (n, length) int64 and `labels` (n,) int64."""

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]

    @property
    def input(self) -> TensorSpec:
        return IDS

    @property
    def fingerprints(self) -> NDArray[np.uint64]:
        return contents_of_arrays(np.concatenate([self.ids, self.labels[:, None]], axis=1))

    def __len__(self) -> int:
        return len(self.ids)

    def some(self, count: int, seed: int = 0) -> "Sentences":
        return self.take(np.random.default_rng(seed).permutation(len(self))[:count])

    def take(self, indices: NDArray[np.int64] | Sequence[int]) -> "Sentences":
        at = np.asarray(indices, dtype=np.int64)
        return Sentences(np.array(self.ids[at]), np.array(self.labels[at]))


def sentences(count: int, seed: int) -> Sentences:
    """Class 1 uses the upper half of the vocabulary three times as often as class 0."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    upper = rng.random((count, LENGTH)) < np.where(labels == 1, 0.75, 0.25)[:, None]
    return Sentences(rng.integers(VOCABULARY // 2, size=(count, LENGTH)) + upper * (VOCABULARY // 2), labels)


@dataclass(frozen=True, slots=True, eq=False)
class SentenceData:
    """See `nas.tasks.task.TaskData`."""

    name: str
    train: Sentences
    val: Sentences
    test: Sentences
    preprocess: str = "ids"
    task: str = f"{ME}:TASK"
    classes: tuple[str, ...] = ("lower", "upper")
    output_size: Size = (2,)
    traits: None = None
    notes: tuple[str, ...] = ("drawn at random",)

    def with_splits(self, *, train: Sentences, val: Sentences, test: Sentences) -> "SentenceData":
        return replace(self, train=train, val=val, test=test)

    def with_preprocess(self, preprocess: str) -> "SentenceData":
        return replace(self, preprocess=preprocess)

    def for_input(self, split: str, input: TensorSpec) -> Sentences:
        found: Sentences = getattr(self, split)
        return found

    def inputs(self, split: Sentences) -> NDArray[np.int64]:
        return split.ids


def token_data(seed: int = 0, count: int = 256) -> SentenceData:
    return SentenceData("tokens", sentences(count, seed), sentences(64, seed + 1), sentences(64, seed + 2))


class SentenceObjective:
    """See `nas.training.objective.Objective`."""

    def __init__(self, examples: "Examples[Sentences]", device: torch.device) -> None:
        self._examples, self._device = examples, device
        self.input = examples.train.input
        self.train_examples, self.val_examples = len(examples.train), len(examples.val)

    def inputs(self, indices: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self._examples.train.ids)[indices].to(self._device)

    def batch(
        self, indices: torch.Tensor, generator: torch.Generator, progress: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ids = self.inputs(indices)
        order = torch.randperm(LENGTH, generator=generator)
        return ids[:, order], torch.from_numpy(self._examples.train.labels)[indices].to(self._device)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs.float(), targets)

    def distillation_loss(self, outputs: torch.Tensor, teacher_outputs: torch.Tensor) -> torch.Tensor:
        return (outputs - teacher_outputs).float().square().mean()

    def guessing_loss(self, first_loss: float) -> float:
        return float(np.log(2))

    def validate(self, network: nn.Module, precision: str) -> Validation:
        return Validation(TASK.accuracy(network, self._examples.val, "ids"))


def _ids_of(example: Any) -> NDArray[np.int64]:
    found = np.asarray(example)
    if found.shape != (LENGTH,) or found.dtype.kind != "i":
        raise UserError(f"{example!r} is no sentence of {LENGTH} ids", f"give {LENGTH} ids")
    return found.astype(np.int64)


class SentenceProcessor:
    """See `nas.tasks.artifacts.Processor`."""

    def preprocess(self, example: Any) -> Prepared:
        return Prepared(_ids_of(example)[None], None)

    def postprocess(self, output: NDArray[np.float32], context: Any) -> list[dict[str, Any]]:
        return [{"label": ("lower", "upper")[at], "score": float(output[at])} for at in output.argsort()[::-1]]


_SCRIPT = '''"""Tell what a sentence is: python run.py 1 2 3. Without ids: run the sample."""

import json
import sys
from pathlib import Path

import numpy as np
{imports}

here = Path(__file__).resolve().parent
sample = json.loads((here / "sample.json").read_text("utf-8"))
inputs = np.array([[int(word) for word in sys.argv[1:]] or sample["example"]], dtype=np.int64)
{run}
print(("lower", "upper")[int(output.argmax())])
if not sys.argv[1:]:
    sys.exit(not np.abs(output - np.array(sample["logits"])).max() <= sample["tolerance"])
'''


class SentenceArtifacts:
    """See `nas.tasks.artifacts.BundleArtifacts`."""

    def documents(self, preprocess: str, signature: Signature) -> dict[str, Any]:
        return {"tokens.json": {"input": preprocess}}

    def read_preprocess(self, folder: Path) -> str | None:
        file = folder / "tokens.json"
        return str(json.loads(file.read_text())["input"]) if file.exists() else None

    def processor(self, folder: Path) -> SentenceProcessor:
        return SentenceProcessor()

    def script(self, signature: Signature) -> str:
        return _SCRIPT

    def write_sample(
        self, folder: Path, data: SentenceData, input: TensorSpec
    ) -> tuple[NDArray[np.int64], dict[str, Any]]:
        example = data.val.some(1)
        return example.ids, {"example": example.ids[0].tolist(), "label": data.classes[int(example.labels[0])]}

    def read_sample(self, folder: Path, sample: Mapping[str, Any]) -> NDArray[np.int64]:
        return np.array([sample["example"]], dtype=np.int64)

    def usual_example(self, folder: Path, sample: Mapping[str, Any]) -> list[int]:
        return [int(number) for number in sample["example"]]

    def write_output(self, folder: Path, output: NDArray[np.float32]) -> dict[str, Any]:
        return {"logits": output.tolist()}

    def read_output(self, folder: Path, sample: Mapping[str, Any]) -> NDArray[np.float32]:
        return np.array(sample["logits"], dtype=np.float32)

    def figures(self, run: Any, data: SentenceData, signature: Signature, batch: int) -> Figures:
        return Figures(more={"sentences": len(data.val)})

    def sheet(self, run: Any, data: SentenceData, signature: Signature, batch: int) -> None:
        return None


SHAPE = TrainingShape(short_epochs=(1, 2), min_short_images=64, final_epochs=(2, 4))


@dataclass(frozen=True)
class TokenTask:
    """See `nas.tasks.task.Task`."""

    name: str = "tokens"
    metric: str = "accuracy"
    examples: str = "sentences"
    default_space: str = f"{ME}:SPACE"
    fallback_space: str = f"{ME}:SPACE"
    default_data: str | None = "drawn"
    default_recipe: str = "tokens-usual"
    shape: TrainingShape = SHAPE
    proxies: tuple[str, ...] = ()
    estimators: tuple[str, ...] = ("short", "predictor")

    @cached_property
    def baselines(self) -> Mapping[str, Any]:
        return {}

    @property
    def artifacts(self) -> SentenceArtifacts:
        return SentenceArtifacts()

    def metric_of(self, data: SentenceData) -> str:
        return self.metric

    def load(self, name_or_path: str, *, seed: int, options: DataOptions = USUAL) -> SentenceData:
        if name_or_path != "drawn":
            raise UserError(f"there are no sentences {name_or_path!r}", "give --data drawn")
        return token_data(seed)

    def check(self, data: SentenceData) -> None:
        return None

    def proxy_labels(self, split: Sentences) -> NDArray[np.int64]:
        return split.labels

    def searchable(self, space: SearchSpace, data: SentenceData, allowed: Mapping[str, Any]) -> SearchSpace:
        return space.restricted(allowed)

    def input_label(self, input: TensorSpec) -> str:
        return f"{input.shape[0]} ids"

    def arrays(self, split: Sentences) -> dict[str, NDArray[Any]]:
        return {"ids": split.ids, "labels": split.labels}

    def split_of(self, arrays: Mapping[str, NDArray[Any]]) -> Sentences:
        return Sentences(arrays["ids"], arrays["labels"])

    @property
    def recipes(self) -> Mapping[str, str]:
        return {"tokens-usual": "description: the usual one\ninherits: base\nepochs: 2\naugmentation: {crop: none}\n"}

    def check_recipe(self, recipe: Recipe) -> None:
        if recipe.augmentation.crop != "none":
            raise UserError("sentences are not cropped", "set augmentation.crop=none")

    def recipe(self, **settings: Any) -> Recipe:
        known = shared_recipes() | dict(self.recipes)
        return load_recipe("tokens-usual", bundled=known).changed(**{"start": "scratch", **settings})

    def objective(
        self, network: nn.Module, examples: Any, recipe: Recipe, *, device: torch.device, teacher: Any = None
    ) -> SentenceObjective:
        self.check_recipe(recipe)
        return SentenceObjective(examples, device)

    def teacher_view(self, input: TensorSpec, own: TensorSpec, given: Any, wanted: Any) -> None:
        return None

    @property
    def teaching(self) -> None:
        return None

    def accuracy(
        self, network: nn.Module, split: Sentences, preprocess: Any, *, precision: Any = "fp32", device: str = "auto"
    ) -> float:
        network.eval()
        where = next(network.parameters()).device
        with torch.inference_mode():
            found = network(torch.from_numpy(split.ids).to(where)).argmax(1).cpu().numpy()
        return float((found == split.labels).mean())

    def accuracy_in_runtime(
        self, run: Any, split: Sentences, preprocess: Any, signature: Signature, *, batch: int = 1
    ) -> float:
        found = []
        for start in range(0, len(split), batch):
            part = split.ids[start : start + batch]
            found.append(run(np.resize(part, (batch, LENGTH)))[: len(part)].argmax(1))
        return float((np.concatenate(found) == split.labels).mean())

    def figures_in_runtime(
        self, run: Any, split: Sentences, preprocess: Any, signature: Signature, *, classes: Any, batch: int = 1
    ) -> dict[str, float]:
        return {self.metric: self.accuracy_in_runtime(run, split, preprocess, signature, batch=batch)}

    def agreement(self, got: NDArray[np.float32], expected: NDArray[np.float32], signature: Signature) -> float:
        return float((got.argmax(1) == expected.argmax(1)).mean())

    def hits(self, outputs: NDArray[np.float32], split: Sentences, signature: Signature) -> NDArray[np.bool_] | None:
        right: NDArray[np.bool_] = outputs.argmax(axis=1) == split.labels
        return right

    def usual_preprocess(self, data: SentenceData) -> Mapping[str, Any]:
        return {}

    def mirrored(self, network: nn.Module, data: SentenceData) -> nn.Module | None:
        return None

    def floors(self, data: SentenceData, seed: int) -> tuple[Floor, ...]:
        return (Floor(name="guessing", accuracy=0.5, test=0.5, margin=0.0, seconds=0.0),)

    def standard_error(self, accuracy: float, split: Sentences) -> float | None:
        return float(np.sqrt(0.25 / len(split)))


TASK = TokenTask()


# -- the tests -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def here() -> Any:
    """This module by the name that other processes find it by."""
    import importlib

    return importlib.import_module(ME)


def test_the_space_keeps_the_contract(here: Any) -> None:
    from search_spaces import resolve_space

    check_space(resolve_space(f"{ME}:SPACE"), (2,))


def test_the_task_keeps_the_contract(here: Any, tmp_path: Path) -> None:
    from search_spaces import resolve_space

    check_task(here.TASK, here.token_data(count=16), resolve_space(f"{ME}:SPACE"), tmp_path)


def test_no_file_of_the_product_knows_of_it() -> None:
    root = Path(__file__).parents[1]
    for package in ("nas", "search_spaces", "predictors"):
        for file in (root / package).rglob("*.py"):
            assert "open_house" not in file.read_text(encoding="utf-8"), file


@pytest.mark.slow
def test_from_a_new_device_to_a_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    hurry(monkeypatch)
    space, task, out = f"{ME}:SPACE", f"{ME}:TASK", tmp_path / "run"
    runtimes = ["--runtime", "onnxruntime", "--precision", "fp32", "--threads", "1"]

    assert run(["profile", "toy", "--space", space, "--networks", "12", *runtimes]) == 0
    line = ["search", "--target", "toy", "--latency-ms", "50", "--task", task, "--max-trials", "3", "--threads", "1"]
    assert run([*line, "--no-baselines", "--seed", "1", "--out", str(out), "--estimator", "short"]) == 0
    best = json.loads((out / "result.json").read_text())["best"][0]
    assert best["architecture"]["space"] == space
    assert best["accuracy"]["deployed"] > 0.6, "guessing gives 0.5"

    assert run(["finetune", f"{out}#1", "--set", "epochs=1"]) == 0
    bundle = tmp_path / "bundle"
    assert run(["export", f"{out}#1", "--out", str(bundle), "--target", "toy"]) == 0
    capsys.readouterr()
    assert run(["export", "--verify", str(bundle), "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {check["status"] for check in checks} == {"passed"}, checks

    predictor = Predictor.open(bundle)
    sentence = sentences(2, 9)
    assert predictor.predict(sentence.ids[1])[0]["label"] in ("lower", "upper")
    script = subprocess.run([sys.executable, str(bundle / "run.py")], capture_output=True, text=True, check=False)
    assert script.returncode == 0, script.stderr

    few = ["--runtime", "onnxruntime", "--batch", "1", "--streams", "1", "--sessions", "1"]
    assert run(["bench", str(bundle), f"{out}#1", *few, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
