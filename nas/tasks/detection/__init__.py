"""Object detection: how raw outputs are learnt, read, cleaned of duplicates and evaluated."""
