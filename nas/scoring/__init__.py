"""A bundle over many images: files in a folder, as they arrive, or from a stream."""
