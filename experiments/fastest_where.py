"""Who is fastest where: the same networks in the tables of several devices, threads and patterns of calls.

    python -m experiments.fastest_where --out docs/fastest-where.md

Nothing is measured: profiles hold what was. A place is a device with a number of threads and a pattern of calls; of
each network the fastest deployment there counts, and only networks that every place has measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from nas.deployment import CPU
from nas.errors import UserError
from nas.files.writing import write_whole
from nas.targets.profile import DeploymentTable, DeviceProfile
from nas.targets.registry import bundled_profiles
from nas.text import milliseconds

_COLUMNS = (
    "chosen for", "deployed in", "tau", "same deployment", "slower, median and worst",
    "largest turn, ms there and here",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """A device with so many threads, called in one pattern."""

    label: str
    deployments: tuple[str, ...]
    keys: tuple[str, ...]
    """Of the networks."""
    latency_ms: NDArray[np.float64]
    """(deployments, networks), NaN where nothing was measured."""

    @property
    def measured(self) -> set[str]:
        """Keys of the networks that every deployment here has a time of."""
        unknown = np.isnan(self.latency_ms).sum(axis=0)
        return {key for key, missing in zip(self.keys, unknown, strict=True) if missing == 0}

    def of(self, keys: Sequence[str]) -> "Place":
        """The same place with these networks alone, in this order."""
        at = {key: index for index, key in enumerate(self.keys)}
        columns = self.latency_ms[:, [at[key] for key in keys]]
        return Place(label=self.label, deployments=self.deployments, keys=tuple(keys), latency_ms=columns)

    @property
    def fastest_ms(self) -> NDArray[np.float64]:
        """(networks,) in the fastest deployment of each."""
        found: NDArray[np.float64] = self.latency_ms.min(axis=0)
        return found

    @property
    def fastest(self) -> list[str]:
        """The fastest deployment of each network."""
        return [self.deployments[index] for index in self.latency_ms.argmin(axis=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Two networks whose order turns round between two places."""

    first: int
    second: int
    """Columns of the networks: `first` is the faster one in the first place, and the slower one in the second."""
    by: float
    """The smaller one of the two ratios of their times, above 1."""


def places_of(profile: DeviceProfile) -> list[Place]:
    """The places that a profile knows, with a processor and calls of one image, the most threads first."""
    found: dict[tuple[int, str], list[DeploymentTable]] = {}
    for table in (*profile.tables, *profile.spaced):
        if table.deployment.device == CPU and table.deployment.batch == 1:
            found.setdefault((table.deployment.threads, table.deployment.calls), []).append(table)
    return [
        Place(
            label=f"{profile.name}, {threads} thread{'s' * (threads > 1)}, {calls}",
            deployments=tuple(table.deployment.name for table in tables),
            keys=tuple(network.key for network in profile.networks),
            latency_ms=np.stack([table.steady_latency_ms() for table in tables]),
        )
        for (threads, calls), tables in sorted(found.items(), key=lambda item: (-item[0][0], item[0][1]))
    ]


def in_common(places: Sequence[Place]) -> list[Place]:
    """The places with the networks that all of them measured.

    Raises:
        UserError: there is none.
    """
    keys = sorted(set.intersection(*(place.measured for place in places)))
    if not keys:
        raise UserError(
            f"no network was measured in each of {'; '.join(place.label for place in places)}",
            "leave one of them out, or profile it with more networks",
        )
    return [place.of(keys) for place in places]


def largest_turn(there: Place, here: Place) -> Turn | None:
    """The pair of networks whose order turns round most clearly from `there` to `here`; None where none does."""
    before, after = np.log(there.fastest_ms), np.log(here.fastest_ms)
    gain = np.minimum(before[None, :] - before[:, None], after[:, None] - after[None, :])
    first, second = (int(index) for index in np.unravel_index(gain.argmax(), gain.shape))
    return Turn(first=first, second=second, by=float(np.exp(gain[first, second]))) if gain.max() > 0 else None


def price_of_the_others_choice(there: Place, here: Place) -> NDArray[np.float64]:
    """(networks,) how many times as long a network takes `here` in the deployment that is its fastest `there`.

    NaN where the deployment is unknown here.
    """
    row = {name: index for index, name in enumerate(here.deployments)}
    chosen = [row.get(name) for name in there.fastest]
    times = [np.nan if at is None else here.latency_ms[at, column] for column, at in enumerate(chosen)]
    return np.array(times) / here.fastest_ms


def page(places: Sequence[Place], command: str) -> str:
    """The tables, in Markdown."""
    count = len(places[0].keys)
    names = sorted({name for place in places for name in place.deployments})
    lines = [
        "# Who is fastest where",
        "",
        f"{count} random networks that all of these places have measured, from the profiles that devices keep. Made by",
        f"`{command}`; nothing was measured for it.",
        "",
        "Networks whose fastest deployment is the one of the column:",
        "",
        f"| place | {' | '.join(names)} |",
        f"|{'---|' * (len(names) + 1)}",
    ]
    for place in places:
        cells = [str(place.fastest.count(name)) if name in place.deployments else "-" for name in names]
        lines.append(f"| {place.label} | {' | '.join(cells)} |")
    lines += [
        "",
        "Who chooses for one place and deploys in another: the order of the networks there (Kendall's tau of their",
        "fastest times), what the choice of the deployment costs, and the two networks whose order turns round most",
        "clearly.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"|{'---|' * len(_COLUMNS)}",
    ]
    lines += [_row(there, here) for there, here in permutations(places, 2)]
    return "\n".join(lines) + "\n"


def _row(there: Place, here: Place) -> str:
    tau = float(kendalltau(there.fastest_ms, here.fastest_ms).statistic)
    same = float(np.mean([a == b for a, b in zip(there.fastest, here.fastest, strict=True)]))
    price = 100 * (price_of_the_others_choice(there, here) - 1)
    price = price[np.isfinite(price)]
    costs = f"{np.median(price):.0f} %, {price.max():.0f} %" if len(price) else "-"
    cells = [there.label, here.label, f"{tau:.2f}", f"{same:.0%}", costs, _told(there, here)]
    return f"| {' | '.join(cells)} |"


def _told(there: Place, here: Place) -> str:
    turn = largest_turn(there, here)
    if turn is None:
        return "none"
    pair = (turn.first, turn.second)
    before, after = (
        " against ".join(milliseconds(float(place.fastest_ms[column])) for column in pair) for place in (there, here)
    )
    return f"{before}; {after}"


@click.command()
@click.option("--profile", "files", multiple=True, type=click.Path(path_type=Path), help="Of other devices too.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(files: tuple[Path, ...], out: Path) -> None:
    """Compare the bundled profiles, and those of the files."""
    profiles = [*bundled_profiles(), *map(DeviceProfile.load, files)]
    places = in_common([place for profile in profiles for place in places_of(profile)])
    command = " ".join(["python -m experiments.fastest_where", *(f"--profile {file.name}" for file in files)])
    write_whole(out, page(places, command).encode())


if __name__ == "__main__":
    main()
