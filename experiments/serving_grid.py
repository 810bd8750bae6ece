"""Are the settings that a server chose for itself the best? All of the grid, measured again, beside the choice.

`python -m experiments.serving_grid RUN#1 --slo-ms 20` takes about 6 minutes on 2 quiet cores. It exits with 1 where the
chosen settings are more than a tenth below the best.
"""

import sys

import click

from nas.loadtest.subjects import settings_text
from nas.loadtest.tuning import at_slo, tuned
from nas.networks.find import find_bundle
from nas.progress import progress_for
from nas.text import count

TOLERANCE = 0.1


@click.command()
@click.argument("bundle")
@click.option("--slo-ms", type=click.FloatRange(min=0.1), default=20.0, show_default=True)
def main(bundle: str, slo_ms: float) -> None:
    """Choose the settings of a server, then measure every other choice as well."""
    progress = progress_for()
    found = tuned(bundle, slo_ms, progress)
    folder = find_bundle(bundle)
    with progress.stage("the whole grid again", total=len(found.grid)) as bar:
        again = []
        for entry in found.grid:
            again.append(at_slo(folder, entry, slo_ms))
            bar.advance(1)
    chosen = settings_text(found.best.settings.to_json())
    click.echo(f"| replicas x threads | closed loop/s | at {slo_ms:g} ms/s | chosen |\n|---|---|---|---|")
    for entry in again:
        text = settings_text(entry.settings.to_json())
        at = "none" if entry.at_slo_per_s is None else count(entry.at_slo_per_s)
        click.echo(f"| {text} | {count(entry.closed_per_s)} | {at} | {'yes' if text == chosen else ''} |")
    rates = {settings_text(entry.settings.to_json()): entry.at_slo_per_s or 0.0 for entry in again}
    best = max(rates.values())
    share = rates[chosen] / best if best else 0.0
    click.echo(f"the chosen settings, measured again: {share:.0%} of the best")
    sys.exit(0 if share >= 1 - TOLERANCE else 1)


if __name__ == "__main__":
    main()
