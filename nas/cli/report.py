"""`nas report`."""

from pathlib import Path

import click


@click.command(short_help="Write a run's report again and print its tables.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the run's JSON document instead of tables.")
@click.option("--open", "open_browser", is_flag=True, help="Show the report in a browser.")
def report(run: Path, as_json: bool, open_browser: bool) -> None:
    """Write RUN/report.html again from the results in the folder RUN, and print its tables.

    \b
    Example:
      nas report runs/classification-local-10ms
    """
    from nas.report.document import to_json
    from nas.report.run_folder import read_run, render_run

    document, candidates = read_run(run)
    path = render_run(run, document, candidates)
    if as_json:
        click.echo(to_json(document))
    else:
        from nas.report.tables import print_result

        print_result(document)
        click.echo(f"report: {path}")
    if open_browser:
        click.launch(path.resolve().as_uri())
