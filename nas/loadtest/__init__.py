"""Load on a server, and what it answers in which time."""
