"""The table of results and its verdicts, and trainings that are done once."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from experiments import zoo_deploy
from experiments.zoo_table import curves_chart, main
from experiments.zoo_trainings import Trainings, accuracies_of, contestants, shortened
from experiments.zoo_verdicts import Row, last_gain, results_table, verdicts
from nas.data.images import image_input
from nas.errors import UnknownNameError, UserError
from nas.measure.measurement import Measurement, MeasureRequest
from nas.measure.site import this_host
from nas.runtimes import deployments_here
from nas.tasks.classification.data.registry import load_dataset
from nas.training.recipe_files import load_recipe
from nas.training.result import EpochRecord
from tests.nas.small_bundles import instant, timed


def row(name: str, accuracies: tuple[float, ...], p50_ms: float, *, winner: bool = False, gain: float = 0.0) -> Row:
    return Row(
        name=name,
        winner=winner,
        deployment="openvino-int8",
        resolution=128,
        accuracies=accuracies,
        p50_ms=p50_ms,
        images_per_s=1e3 / p50_ms,
        disturbed=False,
        last_gain=gain,
        train_loss=0.6,
        params=2_000_000,
    )


WINNER = row("run#1", (0.80, 0.81, 0.82), 0.5, winner=True)
BIG = row("resnet50", (0.75, 0.76, 0.77), 4.0)
SMALL = row("resnet10_w50", (0.70, 0.71, 0.72), 0.4)
NEAR = row("resnet10", (0.80, 0.80, 0.80), 0.5)


def test_bars_are_judged_for_every_pair() -> None:
    text = verdicts([WINNER, BIG, SMALL, NEAR])
    assert "- run#1: 8.0 x, +5.0 points: reached" in text
    assert "- run#1 against resnet10_w50: +10.0 points, spread 2.0, 3 seeds: reached" in text
    assert "- run#1 against resnet10: +1.0 points, spread 2.0, 3 seeds: **missed**" in text
    assert "run#1 against resnet50" not in text  # slower than the winner
    assert "- resnet10 (80.0 %): run#1 1.00 x: **missed**" in text
    assert "- resnet50 (76.0 %): run#1 8.00 x: aim" in text


def test_aims_missing_winners_and_one_seed_are_told() -> None:
    fast = row("run#1", (0.9,), 0.3, winner=True, gain=0.02)
    text = verdicts([fast, BIG, row("resnet10", (0.95,), 0.3)])
    assert "13.3 x, +14.0 points: aim (still rising: run#1)" in text
    assert "not judged: one seed" in text
    assert "resnet10 (95.0 %): **missed**, no winner is as accurate" in text
    assert "Not judged" in verdicts([WINNER, SMALL])
    assert "no baseline is as fast" in verdicts([WINNER, BIG])


def test_table_is_sorted_by_latency() -> None:
    lines = results_table([BIG, WINNER, SMALL]).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["resnet10_w50", "**run#1**", "resnet50"]
    assert "| 81.0 ± 1.0 | 3 | 0.500 | 2000 |" in lines[3]
    assert len({line.count("|") for line in lines}) == 1


def test_a_curve_that_still_rises_is_found() -> None:
    assert last_gain([0.5] * 20) == 0.0
    assert last_gain([i / 100 for i in range(20)]) == pytest.approx(0.02)
    assert last_gain([0.5]) == float("inf")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "noise.npz"
    images = {f"x_{name}": rng.integers(0, 256, (24, 32, 32, 3), dtype=np.uint8) for name in ("train", "val", "test")}
    np.savez(path, **images, **{f"y_{name}": np.arange(24) % 3 for name in ("train", "val", "test")})
    return path


def test_trainings_are_done_once_and_settings_are_kept(photos: Path, tmp_path: Path) -> None:
    arguments = ["train", "--data", str(photos), "--network", "resnet10_w50", "--epochs", "2", "--seeds", "2"]
    runner = CliRunner()
    for _ in range(2):
        done = runner.invoke(main, [*arguments, "--threads", "1", "--out", str(tmp_path)], catch_exceptions=False)
        assert done.exit_code == 0
    finished = Trainings(tmp_path).finished()
    assert [(t["network"], t["seed"], t["epochs"], t["stopped"]) for t in finished] == [
        ("resnet10_w50", 0, 2, None),
        ("resnet10_w50", 1, 2, None),
    ]
    network, description = Trainings(tmp_path).load(finished[1])
    assert (description.signature.output.size, description.signature.input) == ((3,), image_input(32))
    assert sum(p.numel() for p in network.parameters()) == finished[1]["params"]
    assert "resnet10_w50" in curves_chart(finished)
    with pytest.raises(UserError, match="trainings with another recipe"):
        runner.invoke(
            main,
            [*arguments, "--set", "optimizer.lr=0.1", "--threads", "1", "--out", str(tmp_path)],
            catch_exceptions=False,
        )


def test_every_seed_is_deployed_and_judged_on_test_images(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed_together(requests: Sequence[MeasureRequest], *, sessions: int, timeout_s: float) -> list[Measurement]:
        return [timed(r, 4.0 if r.streams == 1 else 2.5) for r in requests]

    monkeypatch.setattr(zoo_deploy, "this_host", lambda: replace(this_host(), measure=instant))
    monkeypatch.setattr(zoo_deploy, "deployments_here", lambda threads: deployments_here(threads, ["onnxruntime"]))
    monkeypatch.setattr(zoo_deploy, "measure", timed_together)
    where = ["--data", str(photos), "--out", str(tmp_path)]
    train = ["train", "--network", "resnet10_w50", "--epochs", "2", "--seeds", "2", "--threads", "1"]
    for command in (train, ["table", "--threads", "2"]):
        done = CliRunner().invoke(main, [*command, *where], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    accuracies = []
    for seed in range(2):
        folder = tmp_path / "resnet10_w50" / f"seed{seed}" / "deployed"
        tried = json.loads((folder / "deployed.json").read_text())["tried"]
        names = [t["deployment"]["precision"] for t in tried]
        assert names == (["fp32", "int8"] if seed == 0 else [names[0]])
        ((key, figures),) = json.loads((folder / "test.json").read_text()).items()
        accuracies.append(figures["accuracy"])
        chosen = key.split()[0].removeprefix("onnxruntime-")
        assert seed == 0 or names == [chosen]
    shown = f"| {50 * sum(accuracies):.1f} ± "
    assert shown in (line := next(x for x in done.output.splitlines() if x.startswith("| resnet10_w50")))
    assert "| 2 | 4.00 | 400 |" in line, "the better throughput is that of two streams"
    assert (tmp_path / "results.md").read_text().strip() == done.output.strip()
    assert "<svg" in (tmp_path / "curves.svg").read_text()


def test_a_killed_training_goes_on_after_its_last_epoch(photos: Path, tmp_path: Path) -> None:
    data = shortened(load_dataset(str(photos)), 18, 12)
    contestant = contestants(["resnet10_w50"], [], data, None)[0]
    recipe = load_recipe("base", ["epochs=3", "precision=fp32", "channels_last=true", "batch_size=9"])
    Trainings(tmp_path / "whole").train(contestant, 1, data, recipe)

    def killed(record: EpochRecord) -> None:
        if record.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trainings(tmp_path / "parts").train(contestant, 1, data, recipe, killed)
    assert not Trainings(tmp_path / "parts").finished()
    seen: list[int] = []
    Trainings(tmp_path / "parts").train(contestant, 1, data, recipe, lambda record: seen.append(record.epoch))
    assert seen == [3]
    (whole,), (parts,) = (Trainings(tmp_path / name).finished() for name in ("whole", "parts"))
    assert [e["train_loss"] for e in parts["curve"]] == [e["train_loss"] for e in whole["curve"]]
    assert accuracies_of(parts) == accuracies_of(whole)


def test_a_training_that_diverges_has_a_line_and_no_result(photos: Path, tmp_path: Path) -> None:
    data = load_dataset(str(photos))
    contestant = contestants(["resnet10_w50"], [], data, None)[0]
    settings = ["epochs=1", "batch_size=6", "precision=fp32", "channels_last=true", "clip_norm=null"]
    recipe = load_recipe("base", [*settings, "optimizer.lr=1e30"])
    Trainings(tmp_path).train(contestant, 0, data, recipe)
    assert "diverged in epoch 1" in Trainings(tmp_path).finished()[0]["stopped"]


def test_what_training_costs_is_told(photos: Path) -> None:
    arguments = ["estimate", "--data", str(photos), "--network", "resnet10_w50", "--epochs", "7", "--threads", "1"]
    told = CliRunner().invoke(main, [*arguments, "--images", "32", "--set", "precision=fp32"], catch_exceptions=False)
    assert "| resnet10_w50 | " in told.output
    assert "for 7 epochs of 24 images, 3 seeds" in told.output


def test_a_line_cut_by_a_kill_does_not_spoil_the_next(tmp_path: Path) -> None:
    log = Trainings(tmp_path).log
    log.write_text(json.dumps({"network": "a", "seed": 0}) + "\n" + '{"network": "b", "se')
    assert [t["network"] for t in Trainings(tmp_path).finished()] == ["a"]


def test_unknown_contestants(photos: Path, tmp_path: Path) -> None:
    data = load_dataset(str(photos))
    with pytest.raises(UnknownNameError, match="resnet11"):
        contestants(["resnet11"], [], data, None)
    with pytest.raises(UserError, match="names no winner"):
        contestants([], [str(tmp_path)], data, None)
