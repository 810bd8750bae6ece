"""Object detection: its heads, losses, metrics and trainings."""
