"""Finding persons in an image, and where their joints are."""
