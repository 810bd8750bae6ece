import io

import pytest

from nas.progress import PLAIN_INTERVAL_S, PlainProgress, Progress, RichProgress, SilentProgress, progress_for


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def use(progress: Progress) -> None:
    """What the engine does: nested stages, unknown lengths, notes."""
    with progress.stage("outer", total=3) as outer:
        outer.advance()
        with progress.stage("inner") as inner:
            inner.advance(2, note="[x]")
        progress.note("a [sentence]")
        outer.advance(2, note="done")
    with progress.stage("second", total=1) as bar:
        bar.advance()


@pytest.mark.parametrize("progress", [SilentProgress(), PlainProgress(), RichProgress()])
def test_writes_to_stderr_alone(progress: Progress, capsys: pytest.CaptureFixture[str]) -> None:
    use(progress)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("a [sentence]" in shown.err) == (not isinstance(progress, SilentProgress))


def test_plain_lines_are_sparse_and_tell_the_time_left() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, clock)
    with progress.stage("short trainings", total=24) as bar:
        for step in range(24):
            clock.now += PLAIN_INTERVAL_S / 8
            bar.advance(1, note=f"network {step + 1}")
    assert stream.getvalue().splitlines() == [
        "short trainings: 8 of 24, about 1 min left (network 8)",
        "short trainings: 16 of 24, about 30 s left (network 16)",
        "short trainings: done in 1 min 30 s",
    ]


def test_failed_stage_is_not_called_done() -> None:
    stream = io.StringIO()
    with pytest.raises(ValueError, match="broken"), PlainProgress(stream).stage("measure"):
        raise ValueError("broken")
    assert stream.getvalue() == ""


def test_rich_display_is_closed_after_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    progress = RichProgress()
    with pytest.raises(ValueError, match="broken"), progress.stage("first"):
        raise ValueError("broken")
    with progress.stage("second", total=1) as bar:
        bar.advance()
    assert "second" in capsys.readouterr().err


def test_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(progress_for(quiet=True), SilentProgress)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert isinstance(progress_for(), PlainProgress)
