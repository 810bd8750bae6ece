"""How true a device profile's predictions are on networks that had no part in it.

`python -m experiments.latency_profiles measure --out heldout.json` measures fresh random networks on this machine in
three sessions each; `... report --profile PROFILE --heldout heldout.json --out docs/latency.md` judges the profile on
them. `... space detect --out FOLDER` does it all for one space: a profile, held-out networks and the page about them.
`... disturbed --out FILE` shows what a busy machine does to a profile, and whether it says so; `... few --profile
PROFILE` how few networks a new device needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from experiments.latency_few import few_networks_page
from experiments.latency_profiles_report import write_report
from nas.progress import progress_for
from nas.runtimes import deployments_here
from nas.targets.preparing import ALL_SPACES
from nas.targets.profile import DeviceProfile
from nas.targets.profiling import make_profile
from search_spaces import resolve_space

HELD_OUT_SEED = 1_000_003
"""Another than a profile's own, 0."""


@click.group()
def cli() -> None:
    """Judge device profiles on networks they never saw."""


@cli.command()
@click.option("--networks", default=180, show_default=True, help="In equal parts from the spaces.")
@click.option("--sessions", default=3, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--seed", default=HELD_OUT_SEED, show_default=True, help="Another than a profile's own, 0.")
@click.option("--space", "spaces", multiple=True, default=ALL_SPACES, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def measure(networks: int, sessions: int, threads: int, seed: int, spaces: tuple[str, ...], out: Path) -> None:
    """Measure held-out networks on this machine, in the form of a profile; an interrupted call is repeated."""
    make_profile(
        "heldout",
        deployments_here(threads),
        path=out,
        progress=progress_for(),
        budget_s=float("inf"),
        spaces=[resolve_space(name) for name in spaces],
        networks=networks,
        sessions=sessions,
        seed=seed,
    )


@cli.command()
@click.argument("spaces", nargs=-1, required=True)
@click.option("--networks", default=240, show_default=True, help="For fitting, in equal parts from the spaces.")
@click.option("--held-out", default=40, show_default=True, help="For judging, in equal parts from the spaces.")
@click.option("--sessions", default=3, show_default=True, help="Of the networks for judging; the others have one.")
@click.option("--threads", default=2, show_default=True)
@click.option("--runtime", "runtimes", multiple=True, help="Only this one (repeatable).")
@click.option("--precision", "precisions", multiple=True, help="Only this one (repeatable).")
@click.option("--resolution", "resolutions", type=int, multiple=True, help="Only this one (repeatable).")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder; an interrupted call is repeated.")
def space(
    spaces: tuple[str, ...], networks: int, held_out: int, sessions: int, threads: int, runtimes: tuple[str, ...],
    precisions: tuple[str, ...], resolutions: tuple[int, ...], out: Path,
) -> None:  # fmt: skip
    """Profile this machine with networks of SPACES and judge it on others of them: profile.json, heldout.json and
    latency.md in the folder."""
    here = [d for d in deployments_here(threads, runtimes or None) if not precisions or d.precision in precisions]

    def measured(name: str, count: int, fresh: int, seed: int) -> DeviceProfile:
        return make_profile(
            name,
            here,
            path=out / f"{name}.json",
            progress=progress_for(),
            budget_s=float("inf"),
            spaces=[resolve_space(name) for name in spaces],
            allowed={"resolution": resolutions} if resolutions else None,
            networks=count,
            sessions=fresh,
            seed=seed,
        )

    fitted = measured("profile", networks, 1, 0)
    judged = measured("heldout", held_out, sessions, HELD_OUT_SEED)
    line = f"space {' '.join(spaces)} --networks {networks} --held-out {held_out} --threads {threads} --out {out.name}"
    write_report(fitted, judged, out / "latency.md", command=line)
    click.echo(f"wrote {out / 'latency.md'}")


@cli.command()
@click.option("--networks", default=48, show_default=True, help="Half of them on a quiet machine.")
@click.option("--threads", default=2, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The profile; a new file.")
def disturbed(networks: int, threads: int, out: Path) -> None:
    """Profile this machine while, from the middle on, one process per core computes beside it; say what was noticed."""
    if out.exists():
        raise click.UsageError(f"{out} exists: give a new file")

    def profiled(count: int) -> DeviceProfile:
        return make_profile(
            "disturbed",
            deployments_here(threads),
            path=out,
            progress=progress_for(),
            budget_s=float("inf"),
            networks=count,
            noise_sessions=1,
        )

    quiet = profiled(networks // 2)
    with busy_cores():
        whole = profiled(networks)
    width = len(whole.tables)
    for name, half, flagged in (
        ("quiet half", quiet.networks, quiet.disturbed),
        ("busy half", whole.networks[len(quiet.networks) :], whole.disturbed - quiet.disturbed),
    ):
        click.echo(f"{name}: {flagged} of {len(half) * width} measurements called disturbed")
    for before, after in zip(quiet.tables, whole.tables, strict=True):
        if before.held_out is not None and after.held_out is not None:
            errors = f"{before.held_out.mape:.1%} from the quiet half, {after.held_out.mape:.1%} from both"
            click.echo(f"{after.deployment.name}: mean held-out error {errors}")


@contextmanager
def busy_cores() -> Iterator[None]:
    """One process per core that computes all the time, while the block runs."""
    line = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(line) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@cli.command()
@click.option("--profile", "profile_path", type=click.Path(path_type=Path), required=True)
@click.option("--heldout", type=click.Path(path_type=Path), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The page; plots lie beside it.")
@click.option("--again", type=click.Path(path_type=Path), help="Some of the held-out networks, at another time.")
@click.option("--speed", type=click.Path(path_type=Path, exists=True), help="What `experiments.latency_speed` printed.")
def report(profile_path: Path, heldout: Path, out: Path, again: Path | None, speed: Path | None) -> None:
    """Write the page of figures and plots."""
    second = None if again is None else DeviceProfile.load(again)
    section = "" if speed is None else speed.read_text()
    write_report(DeviceProfile.load(profile_path), DeviceProfile.load(heldout), out, second, speed=section)


@cli.command()
@click.option("--profile", "profile_path", type=click.Path(path_type=Path), required=True)
@click.option("--threads", default=1, show_default=True, help="Tables of so many threads stand for the new device.")
@click.option("--sizes", default="5,10,20,40", show_default=True, help="Networks measured on the new device.")
@click.option("--seeds", default=5, show_default=True)
def few(profile_path: Path, threads: int, sizes: str, seeds: int) -> None:
    """Print how well a new device is predicted from few networks, with and without known devices."""
    counts = [int(size) for size in sizes.split(",")]
    click.echo(few_networks_page(DeviceProfile.load(profile_path), threads, counts, seeds))


if __name__ == "__main__":
    cli()
