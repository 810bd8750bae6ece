"""Short trainings of classifiers: configuration, loop, accuracy, batch-norm statistics."""
