"""Predictors and samplers on other people's tables of measured networks; `python -m experiments.tabular --help`."""
