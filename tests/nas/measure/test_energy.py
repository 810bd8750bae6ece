"""Energy counters: which are read, what they add up to, and why there are none."""

from pathlib import Path

import pytest

from nas.measure.energy import energy_j, package_counters, why_no_energy
from nas.measure.statistics import Activity


def counter(root: Path, name: str, microjoules: str) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "energy_uj").write_text(microjoules)
    return folder / "energy_uj"


def test_packages_are_added_and_their_parts_left_out(tmp_path: Path) -> None:
    first, second = counter(tmp_path, "intel-rapl:0", "1500000\n"), counter(tmp_path, "intel-rapl:1", "500000\n")
    counter(tmp_path, "intel-rapl:0:0", "900000\n")
    assert package_counters(tmp_path) == (first, second)
    assert energy_j((first, second)) == pytest.approx(2.0)
    assert why_no_energy(tmp_path) is None


def test_the_platform_which_holds_the_package_is_left_out(tmp_path: Path) -> None:
    package = counter(tmp_path, "intel-rapl:0", "1500000\n")
    platform = counter(tmp_path, "intel-rapl:1", "2500000\n")
    for file, name in ((package, "package-0\n"), (platform, "psys\n")):
        file.with_name("name").write_text(name)
    assert package_counters(tmp_path) == (package,)


def test_a_host_without_counters_says_so(tmp_path: Path) -> None:
    assert energy_j(()) is None
    assert "no energy counters" in str(why_no_energy(tmp_path))


def test_a_counter_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    broken = counter(tmp_path, "intel-rapl:0", "")
    assert energy_j((broken,)) is None
    assert "may not be read" in str(why_no_energy(tmp_path))


def test_windows_add_up_unless_one_is_unknown() -> None:
    known, unknown = Activity(wall_s=1, cpu_s=1, energy_j=2.0), Activity(wall_s=1, cpu_s=1)
    assert (known + known).energy_j == 4.0
    assert (known + unknown).energy_j is None
