"""Predictions for candidates on the target: latencies, sizes and memory, and whether the limits can be kept."""
