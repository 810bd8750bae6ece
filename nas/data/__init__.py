"""Images in memory: splits, pre-processing, decoding."""

from nas.data.contents import hold_out
from nas.data.images import ImageData, ImageSplit, Preprocess, RawImages, resized

__all__ = ["ImageData", "ImageSplit", "Preprocess", "RawImages", "hold_out", "resized"]
