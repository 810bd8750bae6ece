"""Object detection: heads, losses, metric, and well-known opponents."""
