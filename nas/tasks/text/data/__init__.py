"""The values of text classification data, and how they are read."""

from nas.tasks.text.data.values import TextData, TextSplit, TextTraits

__all__ = ["TextData", "TextSplit", "TextTraits"]
