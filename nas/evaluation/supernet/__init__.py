"""A weight-sharing supernet for the staged spaces: one training, then an accuracy per candidate for seconds."""
