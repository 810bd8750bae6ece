"""A run on disk: its folder, records that survive a kill, its studies, and weights of short trainings."""
