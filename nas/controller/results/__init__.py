"""The outcome of a search: as one value, as the result document, and as bundles."""
