"""Object detection data: images with boxes."""

from nas.data.detection.load import load_detection
from nas.data.detection.values import Boxes, DetectionData, DetectionSplit

__all__ = ["Boxes", "DetectionData", "DetectionSplit", "load_detection"]
