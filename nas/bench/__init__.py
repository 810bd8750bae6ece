"""Measure given networks side by side: latency, throughput, memory and operators, per runtime and precision."""
