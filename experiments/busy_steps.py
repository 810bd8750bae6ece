"""Training steps beside other processes, with threads that spin while they wait for each other and threads that sleep.

`python -m experiments.busy_steps` prints the median step of a few networks alone, and beside a process on each core, in
a fresh process for either way to wait (`nas.machine.threads_that_sleep`).
"""

import json
import os
import subprocess
import sys
import time
from statistics import median

import click
import numpy as np

from experiments.proposal_check import busy_cores
from nas.machine import threads_that_sleep
from nas.measure.host import usable_threads
from search_spaces import load_search_space

SPACE, CLASSES, BATCH, NETWORKS = "compact", (10,), 32, 4


def median_steps_ms(seconds: float) -> list[float]:
    """Milliseconds of the median step of each network, steps being repeated for so many seconds."""
    import torch

    torch.set_num_threads(usable_threads())
    space, found = load_search_space(SPACE), []
    for row in space.sample(NETWORKS, np.random.default_rng(0)):
        arch = space.architecture(row)
        network = space.build(arch, CLASSES).train()
        inputs = torch.randn(BATCH, *space.signature(arch, CLASSES).input.shape)
        times: list[float] = []
        while sum(times) < seconds:
            start = time.perf_counter()
            network(inputs).square().mean().backward()
            times.append(time.perf_counter() - start)
        found.append(1e3 * median(times))
    return found


@click.command()
@click.option("--seconds", default=3.0, show_default=True, help="Of steps, for each network.")
@click.option("--child", type=click.Choice(["spin", "sleep"]), hidden=True)
def main(seconds: float, child: str | None) -> None:
    """Print steps alone and beside a process on each core, for threads that spin and threads that sleep."""
    if child is not None:
        if child == "sleep":
            threads_that_sleep()
        median_steps_ms(seconds / 10)
        alone = median_steps_ms(seconds)
        with busy_cores(usable_threads()):
            click.echo(json.dumps([alone, median_steps_ms(seconds)]))
        return
    click.echo("| threads | alone, ms | busy, ms | busy by alone |\n|---|---|---|---|")
    for way in ("spin", "sleep"):
        command = [sys.executable, "-m", "experiments.busy_steps", "--child", way, "--seconds", str(seconds)]
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        alone, beside = json.loads(done.stdout)
        ratios = ", ".join(f"{b / a:.1f}" for a, b in zip(alone, beside, strict=True))
        told = (", ".join(f"{ms:.0f}" for ms in times) for times in (alone, beside))
        click.echo(f"| {way} | {' | '.join(told)} | {ratios} |")


if __name__ == "__main__":
    main()
