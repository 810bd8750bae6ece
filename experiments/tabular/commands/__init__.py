"""The commands of `python -m experiments.tabular`, one module each."""
