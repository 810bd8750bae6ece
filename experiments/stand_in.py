"""An untrained network in the place of a searched one, for latency alone: its outputs mean nothing."""

from search_spaces import Architecture, SearchSpace, load_search_space

SPACE, RESOLUTION, SIZE = "mixed", 128, (10,)
NAME = f"stand-in for a searched network, {RESOLUTION} px"


def stand_in() -> tuple[SearchSpace, Architecture]:
    """The first anchor of the space, 60 million MACs at 128 px: of the size that searches for a fraction of a
    millisecond on a processor find."""
    space = load_search_space(SPACE)
    return space, space.replace(space.anchors[0], resolution=RESOLUTION)
