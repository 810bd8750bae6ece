"""Classification data in memory: sources by name or path, splits, pre-processing."""

from nas.data.images import ImageData, ImageSplit, Preprocess, RawImages, hold_out, resized
from nas.data.registry import DATASETS, DatasetSource, load_dataset

__all__ = [
    "DATASETS",
    "DatasetSource",
    "ImageData",
    "ImageSplit",
    "Preprocess",
    "RawImages",
    "hold_out",
    "load_dataset",
    "resized",
]
