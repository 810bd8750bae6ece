"""The time of a search: its budget, the recipes that fit into it, and how fast the training device is."""
