"""What `nas predict` says at its end."""

from collections.abc import Mapping
from typing import Any

from nas.text import duration, percent

MOST_LABELS = 10


def folder_sentences(document: Mapping[str, Any]) -> list[str]:
    """The document of `nas.scoring.offline.predict_folder` for people."""
    images, bad, scored = document["images"], document["bad"], document["scored"]
    lines = [f"{images} images in {document['out']}"]
    if scored:
        found = f", the other {document['found']} before" if document["found"] else ""
        lines.append(f"{scored} scored in {duration(document['seconds'])}: {document['images_per_s']:.0f}/s{found}")
    else:
        lines.append("all of them were scored before")
    if document["other_files"]:
        lines.append(f"{document['other_files']} other files were left out")
    if bad:
        lines.append(f"{bad} without an answer ({percent(bad / images)}), listed in {document['errors']}")
    if not document["within_max_bad"]:
        lines.append(f"that is more than --max-bad {percent(document['max_bad'])}")
    labels = list(document["labels"].items())
    shown = ", ".join(f"{label} {count}" for label, count in labels[:MOST_LABELS])
    if shown:
        rest = len(labels) - MOST_LABELS
        lines.append(f"answers: {shown}{f', and {rest} more classes' if rest > 0 else ''}")
    return lines
