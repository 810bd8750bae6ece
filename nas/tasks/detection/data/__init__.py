"""Object detection data: images with boxes."""

from nas.tasks.detection.data.load import load_detection
from nas.tasks.detection.data.values import Boxes, DetectionData, DetectionSplit

__all__ = ["Boxes", "DetectionData", "DetectionSplit", "load_detection"]
