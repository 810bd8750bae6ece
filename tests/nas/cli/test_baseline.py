"""`nas search --baseline`: what makes no sense is refused in one sentence, before anything is loaded or written."""

import json
from pathlib import Path

import pytest

from nas.baseline.config import BaselineConfig
from nas.cli.main import run
from nas.errors import UserError
from nas.limits import Limits


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["search", *arguments]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--speedup", "3"), "--speedup compares with a trained network, and none was given"),
        (("--latency-ms", "3", "--max-loss", "1"), "--max-loss compares with a trained network"),
        (("--baseline", "x", "--data", "digits"), "said once, by a latency or by a factor"),
        (("--baseline", "x", "--data", "digits", "--speedup", "2", "--latency-ms", "3"), "said once"),
        (("--baseline", "x", "--speedup", "2"), "nothing says which data the network is for"),
        (("--baseline", "x", "--data", "digits", "--speedup", "1"), "--speedup 1 makes nothing faster"),
        (("--baseline", "x", "--data", "digits", "--speedup", "2", "--space", "mobile"), "--space is of no use"),
        (("--baseline", "x", "--data", "digits", "--speedup", "2", "--target", "pi5"), "'pi5' is not this host"),
        (
            ("--baseline", "x", "--data", "digits", "--speedup", "2", "--max-params", "1M"),
            "--max-params is not supported",
        ),
        (
            ("--baseline", "x", "--data", "digits", "--latency-ms", "2", "--percentile", "99"),
            "--percentile 99 is not",
        ),
        (
            ("--baseline", "x", "--data", "digits", "--speedup", "2", "--resolution", "32", "--resolution", "64"),
            "a trained network has one --resolution",
        ),
        (("--baseline", "x", "--data", "digits", "--speedup", "2"), "no such network: 'x'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    message = refusal(capsys, *arguments)
    assert sentence in message
    assert len(message.strip().splitlines()) <= 3
    assert not list(tmp_path.iterdir())


def test_a_run_that_has_taught_nothing_is_no_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = BaselineConfig(baseline="x", data="digits", speedup=2.0)
    (tmp_path / "config.json").write_text(json.dumps(config.identity()))
    assert "has taught no options" in refusal(capsys, "--run", str(tmp_path), "--latency-ms", "3")
    assert "--data cannot be changed with --run" in refusal(capsys, "--run", str(tmp_path), "--data", "digits")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_loss": 1.5}, "--max-loss 150"),
        ({"max_drop": -0.1}, "--max-drop -10"),
        ({"budget_s": 0.0}, "a budget of 0.0 s"),
        ({"threads": 0}, "--threads 0"),
        ({"limit_on": "photo"}, "--limit-on"),
        ({"calls": "often"}, "often"),
        ({"speedup": float("nan")}, "--speedup nan"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        BaselineConfig(**{"baseline": "x", "data": "digits", "speedup": 2.0, **settings})  # type: ignore[arg-type]


def test_a_run_is_named_by_what_was_asked() -> None:
    fast = BaselineConfig(baseline="x", data="digits", speedup=2.5, calls="20/s")
    assert str(fast.run_dir) == "runs/classification-baseline-local-2.5x-20-per-s"
    within = BaselineConfig(baseline="x", data="digits", limits=Limits.of(latency_ms=4))
    assert str(within.run_dir) == "runs/classification-baseline-local-4ms"
    assert json.loads(json.dumps(fast.identity()))["mode"] == "baseline"
