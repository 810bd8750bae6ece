"""Training steps in a process that keeps the memory it frees, and in one that gives it back to the system.

`python -m experiments.step_memory` prints the median step of well-known designs of the space `compact` in bf16, in
fresh processes that take turns (`nas.machine.restart_with_kept_memory`).
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median

import click

from nas.machine import environment
from nas.measure.host import usable_threads
from search_spaces import load_search_space

SPACE, SIDE, CLASSES = "compact", 32, (10,)


def median_steps_ms(batch: int, steps: int) -> list[float]:
    """Milliseconds of the median step, forward and backward, of each design after one to warm up."""
    import torch

    torch.set_num_threads(usable_threads())
    space, found = load_search_space(SPACE).restrict("resolution", (SIDE,)), []
    for design in space.designs:
        arch = design[0]
        network = space.build(arch, CLASSES).train().to(memory_format=torch.channels_last)
        inputs = torch.randn(batch, *space.signature(arch, CLASSES).input.shape).to(memory_format=torch.channels_last)
        times: list[float] = []
        while len(times) <= steps:
            start = time.perf_counter()
            with torch.autocast("cpu", torch.bfloat16):
                answers = network(inputs)
            network.zero_grad(set_to_none=True)
            answers.float().square().mean().backward()
            times.append(time.perf_counter() - start)
        found.append(1e3 * median(times[1:]))
    return found


def rounds_ms(keeps: bool, rounds: Sequence[list[list[float]]]) -> list[float]:
    """The median over the rounds for each design."""
    return [median(times) for times in zip(*(each[keeps] for each in rounds), strict=True)]


@click.command()
@click.option("--batch", default=256, show_default=True)
@click.option("--steps", default=12, show_default=True)
@click.option("--rounds", default=3, show_default=True, help="Fresh processes of either kind.")
@click.option("--child", is_flag=True, hidden=True)
def main(batch: int, steps: int, rounds: int, child: bool) -> None:
    """Print the steps of both kinds of processes, and their ratio."""
    if child:
        click.echo(json.dumps(median_steps_ms(batch, steps)))
        return
    found = []
    for _ in range(rounds):
        pair = []
        for keeps in (False, True):
            command = [sys.executable, "-m", "experiments.step_memory", "--child"]
            command += ["--batch", str(batch), "--steps", str(steps)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment(trains=keeps))
            pair.append(json.loads(done.stdout))
        found.append(pair)
    given_back, kept = rounds_ms(False, found), rounds_ms(True, found)
    click.echo("| design | given back, ms | kept, ms | ratio |\n|---|---|---|---|")
    for number, (one, other) in enumerate(zip(given_back, kept, strict=True)):
        click.echo(f"| {SPACE}#{number} | {one:.0f} | {other:.0f} | {one / other:.2f} |")


if __name__ == "__main__":
    main()
