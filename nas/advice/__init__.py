"""Where the time of a network goes, block by block, why, and what would save some of it: `nas advise`."""
