"""Training a run's networks with a recipe: `finetune`, and the recipes as files."""
