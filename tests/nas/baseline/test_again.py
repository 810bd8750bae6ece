"""What a run with another limit takes over from one that ended early."""

from pathlib import Path

from nas.baseline.again import take_over
from nas.baseline.folder import BaselineFolder, read_step, write_step


def test_a_run_that_ended_before_it_planned_is_taken_over(tmp_path: Path) -> None:
    old, new = BaselineFolder(tmp_path / "old"), BaselineFolder(tmp_path / "new")
    old.baseline_network.mkdir(parents=True)
    new.path.mkdir()
    write_step(old.times, {}, [1.0])  # it ends here where no network keeps the limit
    take_over(old, new)
    assert read_step(new.times, {}) == [1.0]
    assert not new.plan.exists()
    write_step(old.plan, {"data": "x"}, {"library": 3, "finals": 4})
    take_over(old, new)
    assert read_step(new.plan, {"data": "x"}) == {"library": 3}
