"""Small seeded searches and their traces: proposals, recipes and decisions, nothing that a machine or a clock steers.

The search is real (space, predicted latencies, feasibility, zero-cost scores, plan, sampler, short trainings, last
round, deployments), except at five seams, all of them in `seams`:

- the throughput of training is told, not measured, so that expected times are the same everywhere;
- candidates are trained in this process, where the other seams can be reached;
- a training is recorded as it was asked for, but done on a few images only (most short ones not at all), and the
  accuracy it returns is a fixed function of the network, so that decisions follow neither from rounding nor from the
  processor;
- zero-cost scores of most networks are drawn by their keys: computing them would take most of the time;
- a deployed file runs on the validation split, and then gets a fixed accuracy too.

Who moves or renames a function that `seams` replaces corrects it there, and who renames a setting of a recipe in
`recipe_of`; the names and values in the trace stay. Numbers that floating-point arithmetic can move between processors
(predictions, zero-cost scores, losses) are compared with the tolerances in `TOLERANCES`; how many candidates the
sampler scored is left out, because its populations follow the last digits.
"""

import hashlib
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
from numpy.typing import NDArray

import nas.controller.candidates as proposing
import nas.controller.planning.recipes as recipes
import nas.controller.runs.records as last_round
import nas.deploy.deploy as deploying
import nas.executors.training as short_trainings
from nas.cli.main import run
from nas.controller.planning.throughput import TrainingThroughput
from nas.evaluation.short_training import ShortTraining
from nas.tasks import task_of
from nas.tasks.classification.task import Classification
from nas.training.recipe import Recipe
from nas.training.result import TrainResult
from search_spaces import Architecture
from tests.nas.controller.in_process import train_here
from tests.nas.fake_device import fake_profile, save_fake_profile
from tests.nas.tasks.coco import write_coco

WORK_S = {"digits-mixed": 0.5, "coco-detect": 2.0}
"""So slow that short recipes differ between networks (fewer images or epochs for larger ones), and so fast that there
are several finalists."""
STEPS, BATCH, VALIDATED = 2, 32, 8
"""Of each training that is really done: steps of its one epoch, images of a step at most, and validation images."""
TOLERANCES = {"train_loss": 0.03, "proxies": 0.02}
"""Relative ones, by field; of all other numbers that are no integers `TOLERANCE`."""
TOLERANCE = 1e-4


UNTRAINED = TrainResult(
    accuracy=0.0, curve=(), seconds=1.0, stopped=None, precision="fp32", details={}
)  # fmt: skip


@dataclass(slots=True)
class Recorder:
    """The trainings in order, and the fixed worth of each network by its key."""

    trainings: list[dict[str, Any]] = field(default_factory=list)
    worth: dict[str, float] = field(default_factory=dict)

    def trained(self, kind: str, really: Callable[..., Any]) -> Callable[..., Any]:
        """In place of `really` (`nas.evaluation.short_training.trained`), for trainings of this kind."""

        def recorded(description: Any, data: Any, short: ShortTraining, callback: Any = None, **options: Any) -> Any:
            key = key_of(description)
            done = kind == "final" or is_real(key)
            batch = min(BATCH, short.recipe.fixed_batch_size)
            few = ShortTraining(short.recipe.changed(epochs=1, batch_size=batch, least_steps=0), STEPS * batch)
            if done:
                network, result = really(description, few_validated(data), few, callback, **options)
            else:
                network, result = description.build(), UNTRAINED
            params = sum(p.numel() for p in network.parameters())
            self.trainings.append(
                {
                    "kind": kind,
                    "key": key,
                    "params": params,
                    "train_images": short.train_images,
                    "recipe": recipe_of(short.recipe),
                    "train_loss": [log.train_loss for log in result.curve],
                }
            )
            worth = 0.3 + 0.3 * min(1.0, params / 1e6) + 0.2 * lot(key)
            if kind == "final":  # some come to less than before, and keep the weights of the short training
                worth += 0.06 * lot(key + kind) - (0.015 if is_real(key) else 0.0)
            self.worth[key] = worth
            return network, replace(result, accuracy=worth)

        return recorded

    def validated(self, really: Callable[..., Any]) -> Callable[..., Any]:
        """In place of `really` (`nas.deploy.deploy.validated`): int8 loses more than allowed of every other network."""

        def fixed(tried: Any, data: Any, description: Any) -> tuple[float, None]:
            really(tried, few_validated(data), description)
            loses = 0.03 if lot(key_of(description) + "int8") > 0.5 else 0.004
            lost = loses if tried.deployment.precision == "int8" and not tried.in_float else 0.0
            return self.worth[key_of(description)] - lost, None

        return fixed


def lot(text: str) -> float:
    """A number in [0, 1) that is drawn by the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32


def is_real(key: str) -> bool:
    """Whether the zero-cost scores and the short training of a network are computed: one in four, drawn by its key."""
    return lot(key + "real") < 0.25


def scored(really: Callable[..., Any]) -> Callable[..., Any]:
    """In place of `really` (`nas.controller.proxies.proxy_scores`): fixed scores where `is_real` says no."""

    def made(space: Any, data: Any, seed: int) -> Callable[[Architecture], NDArray[np.float64]]:
        known, count = really(space, data, seed), len(task_of(data).proxies)

        def scores(arch: Architecture) -> Any:
            return known(arch) if is_real(arch.key) else np.array([lot(f"{arch.key} {i}") for i in range(count)])

        return scores

    return made


def few_validated(data: Any) -> Any:
    """The same data with a few validation images: nobody looks at what is measured on them."""
    return data.with_splits(train=data.train, val=data.val.some(VALIDATED), test=data.test)


def key_of(description: Any) -> str:
    """The key of the architecture that a network's description names."""
    key: str = description.source.key
    return key


def recipe_of(recipe: Recipe) -> dict[str, Any]:
    """A recipe under names that stay, whatever the code calls them."""
    optimizer = recipe.optimizer
    return {
        "epochs": recipe.epochs,
        "batch_size": recipe.batch_size,
        "lr": optimizer.lr,
        "optimizer": optimizer.name,
        "momentum": optimizer.momentum,
        "weight_decay": optimizer.weight_decay,
        "warmup_fraction": recipe.schedule.warmup_fraction,
        "label_smoothing": recipe.label_smoothing,
        "clip_norm": recipe.clip_norm,
        "ema_decay": recipe.ema_decay,
        "augment": recipe.augmentation.crop,
        "precision": recipe.precision,
        "seed": recipe.seed,
        "time_limit_s": recipe.time_limit_s,
    }


def seams(patch: pytest.MonkeyPatch, recorder: Recorder, work_s: float) -> None:
    """Everything that is replaced in the product, and nothing else is."""
    patch.setitem(deploying.deploy.__kwdefaults__, "sessions", 1)  # times decide nothing in a trace
    patch.setattr(recipes, "host_throughput", lambda *_, **__: TrainingThroughput("cpu", "fp32", work_s))
    train_here(patch)
    patch.setattr(Classification, "floors", lambda task, data, seed: ())  # few epochs are worth less than that
    patch.setattr(proposing, "proxy_scores", scored(proposing.proxy_scores))
    patch.setattr(short_trainings, "trained", recorder.trained("short", short_trainings.trained))
    patch.setattr(last_round, "trained", recorder.trained("final", last_round.trained))
    patch.setattr(deploying, "validated", recorder.validated(deploying.validated))


def digits(folder: Path) -> str:
    """Images: the sampler that learns, two limits at once, and the random baseline."""
    return (
        "--space mixed --data digits --latency-ms 0.75 --max-params 1300000 --max-trials 7 --seed 7 --estimator short "
        "--baselines"
    )


def detect(folder: Path) -> str:
    """Boxes in COCO's layout: a front of latency and mAP, and the estimator that `auto` chooses."""
    data = write_coco(folder / "shapes", {"train": 96, "val": 16, "test": 8})
    return (
        f"--task detection --space detect --data {data} --objective pareto --latency-ms 1.2 --max-trials 7 --seed 3 "
        "--no-baselines"
    )


SEARCHES: dict[str, Callable[[Path], str]] = {"digits-mixed": digits, "coco-detect": detect}
"""The options of `nas search` beside its target, threads and folder; each makes its data in the folder it is given."""


def trace(name: str, folder: Path) -> dict[str, Any]:
    """Run the search `name` of `SEARCHES` in the empty `folder` and return its trace as it reads back from JSON."""
    recorder, out = Recorder(), folder / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        profile = fake_profile("golden", networks=60, host=False, spaces=("mixed", "detect"))
        save_fake_profile(folder / "cache", profile)
        seams(patch, recorder, WORK_S[name])
        options = shlex.split(SEARCHES[name](folder))
        code = run(["search", "--target", "golden", "--threads", "2", "--out", str(out), "--quiet", *options])
    assert code == 0, f"nas search ended with exit code {code}"
    document = json.loads((out / "result.json").read_text())
    studies = ("search", "random") if document["baselines"] else ("search",)
    made = {
        "question": {key: document[key] for key in ("task", "metric", "space", "space_size", "seed")}
        | {"resolutions": document["restricted_to"]["resolution"]},
        "limits": document["limits_text"],
        "images": {split: document["data"][split] for split in ("train", "val", "test")},
        "feasibility": document["feasibility"],
        "feasible": document["feasible"],
        "estimator": document["estimator"]["name"],
        "short_s": document["recipe"]["short_s"],
        "estimate_s": {k: v for k, v in document["estimate_s"].items() if k not in ("prepare", "total")},
        "studies": {study: proposals(out, study) for study in studies},
        "trainings": recorder.trainings,
        "candidates": candidates(out),
        "winners": [winner(best) for best in document["best"]],
        "baselines": [
            {key: found[key] for key in ("name", "kind", "runtime", "precision", "macs", "params")}
            | {"resolution": pixels(found)}
            for found in document["baselines"]
        ],
    }
    plain: dict[str, Any] = json.loads(json.dumps(rounded(made)))
    return plain


def proposals(out: Path, study: str) -> list[dict[str, Any]]:
    """The trials in order, each with what was known of its network before it was trained."""
    trials = optuna.load_study(study_name=study, storage=f"sqlite:///{out}/study.db").trials
    told = ("key", "deployment", "predicted_latency_ms", "predicted_std_ms", "proxies", "images", "estimator")
    return [
        {"trial": t.number, "state": t.state.name, "constraints": dict(t.constraints)}
        | {name: t.user_attrs.get(name) for name in told}
        for t in trials
    ]


def candidates(out: Path) -> dict[str, Any]:
    """What the table of candidates decides, and how many rows of each kind it has."""
    table = pd.read_parquet(out / "candidates.parquet")
    kinds = table.groupby(["state", "origin"]).size()
    scored = table[table.state == "scored"]
    return {
        "rows": {f"{state}, {origin}": int(count) for (state, origin), count in kinds.items()},
        "front": list(table[table.pareto].key),
        "finalists": list(table[table.accuracy_trained.notna()].key),
        "scored_macs": int(scored.macs.sum()),
        "scored_params": int(scored.params.sum()),
        "scored_latency_ms": float(scored.predicted_latency_ms.sum()),
    }


def winner(best: dict[str, Any]) -> dict[str, Any]:
    """A winner's identity, and what was decided of its deployments."""
    kept = (
        *("rank", "key", "architecture", "runtime", "precision", "threads", "batch", "weights", "macs"),
        *("params", "predicted_latency_ms", "predicted_std_ms", "within_limit"),
    )
    deployments = [{key: d[key] for key in ("name", "accepted", "chosen")} for d in best["deployments"]]
    return {key: best[key] for key in kept} | {"resolution": pixels(best), "deployments": deployments}


def pixels(result: dict[str, Any]) -> int:
    """Rows of the images that a network takes."""
    return int(result["input"].removesuffix(" px"))


def rounded(value: Any) -> Any:
    """With six digits of each number that is no integer: more are noise."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def differences(expected: Any, found: Any, path: str = "", tolerance: float = TOLERANCE) -> list[str]:
    """One line for each value that differs, with its place: empty where both are the same trace."""
    if isinstance(expected, dict) and isinstance(found, dict):
        lines = []
        for key in [*expected, *(k for k in found if k not in expected)]:
            at = f"{path}.{key}" if path else key
            if key not in found:
                lines.append(f"{at}: missing, was {expected[key]!r}")
            elif key not in expected:
                lines.append(f"{at}: new, {found[key]!r}")
            else:
                lines += differences(expected[key], found[key], at, TOLERANCES.get(key, tolerance))
        return lines
    if isinstance(expected, list) and isinstance(found, list):
        count = [f"{path}: {len(found)} entries, was {len(expected)}"] if len(found) != len(expected) else []
        pairs = enumerate(zip(expected, found, strict=False))
        return count + [line for i, (e, f) in pairs for line in differences(e, f, f"{path}[{i}]", tolerance)]
    return [] if same(expected, found, tolerance) else [f"{path}: {found!r}, was {expected!r}"]


def same(expected: Any, found: Any, tolerance: float) -> bool:
    """Equal; numbers that are not both integers, within the relative tolerance."""
    numbers: Sequence[Any] = [v for v in (expected, found) if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) == 2 and any(isinstance(v, float) for v in numbers):
        return bool(found == pytest.approx(expected, rel=tolerance, abs=1e-9, nan_ok=True))
    return type(expected) is type(found) and bool(expected == found)
