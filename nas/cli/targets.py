"""`nas targets`."""

import dataclasses
import json

import click


@click.command(short_help="List the devices to search for.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def targets(as_json: bool) -> None:
    """List the devices that networks can be searched for.

    `local` is this machine. A bundled target carries a profile that was measured on such a machine.

    \b
    Example:
      nas targets
    """
    from nas.targets.registry import list_targets

    found = [dataclasses.asdict(target) for target in list_targets()]
    if as_json:
        click.echo(json.dumps({"targets": found}, indent=2))
    else:
        from nas.report.tables import print_targets

        print_targets(found)
