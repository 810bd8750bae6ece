"""`nas recipes`."""

import click

from nas.cli.types import TaskReference


@click.group(short_help="List the recipes for `nas finetune`, or show one.", invoke_without_command=True)
@click.option("--task", type=TaskReference(), help="Also those of a task of an installed package: MODULE:ATTRIBUTE.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
@click.pass_context
def recipes(context: click.Context, task: str | None, as_json: bool) -> None:
    """List the recipes of all tasks; `nas recipes show NAME` prints one with everything it inherits.

    \b
    Example:
      nas recipes
      nas recipes show classification-fast
      nas recipes show my.yaml --set epochs=20
    """
    context.obj = task
    if context.invoked_subcommand is not None:
        return
    from nas.tasks import task_named
    from nas.tasks.recipes import bundled_recipes
    from nas.training.recipe_files import load_recipe

    bundled = bundled_recipes(task_named(task) if task is not None else None)
    descriptions = {name: load_recipe(name, bundled=bundled).description for name in bundled}
    if as_json:
        from nas.report.document import to_json

        click.echo(to_json(descriptions))
        return
    width = max(map(len, descriptions))
    for name, description in descriptions.items():
        click.echo(f"{name:{width}}  {description}")


@recipes.command(short_help="Print a recipe as it is used.")
@click.argument("recipe")
@click.option("--set", "overrides", multiple=True, metavar="KEY.SUB=VALUE", help="Change one setting (repeatable).")
@click.option("--json", "as_json", is_flag=True, help="As JSON instead of YAML.")
@click.pass_obj
def show(task: str | None, recipe: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Print RECIPE, a bundled name or a YAML file, with everything it inherits; the output is a recipe file itself."""
    from nas.tasks import task_named
    from nas.tasks.recipes import recipe_named
    from nas.training.recipe_files import to_yaml

    resolved = recipe_named(recipe, overrides, task_named(task) if task is not None else None)
    click.echo(resolved.model_dump_json(indent=2) if as_json else to_yaml(resolved).rstrip())
