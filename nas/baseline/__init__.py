"""Baseline mode: of a trained network that is too slow, one of its units that keeps a limit (docs/baseline.md)."""
