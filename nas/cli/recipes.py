"""`nas recipes`."""

import click


@click.group(short_help="List the recipes for `nas finetune`, or show one.", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
@click.pass_context
def recipes(context: click.Context, as_json: bool) -> None:
    """List the bundled recipes; `nas recipes show NAME` prints one with everything it inherits.

    \b
    Example:
      nas recipes
      nas recipes show classification-fast
      nas recipes show my.yaml --set epochs=20
    """
    if context.invoked_subcommand is not None:
        return
    from nas.training.recipe_files import load_recipe, recipe_names

    descriptions = {name: load_recipe(name).description for name in recipe_names()}
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
def show(recipe: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Print RECIPE, a bundled name or a YAML file, with everything it inherits; the output is a recipe file itself."""
    from nas.training.recipe_files import load_recipe, to_yaml

    resolved = load_recipe(recipe, overrides)
    click.echo(resolved.model_dump_json(indent=2) if as_json else to_yaml(resolved).rstrip())
