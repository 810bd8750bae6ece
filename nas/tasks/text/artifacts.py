"""The bundle of a network that tells the class of a text. Of the texts it holds no more than its tokenizer knows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from nas.data.processor import read_document, read_labels
from nas.errors import UserError
from nas.tasks.artifacts import Figures, Prepared, Sheet
from nas.tasks.text import ACCURACY, answers, f1_scores, macro_f1
from nas.tasks.text.evaluate import accuracy, logits_in_runtime
from nas.tasks.text.portable import CLS, MASK, MAX_CHARACTERS, PAD, cut, postprocess, token_ids
from nas.tasks.text.tokenizer import SPECIAL, TextPreprocess, canonical, read_tokenizer
from search_spaces import Signature, TensorSpec

if TYPE_CHECKING:
    from nas.tasks.task import Run
    from nas.tasks.text.data import TextData

LABELS, TOKENIZER, INPUT = "labels.json", "tokenizer.json", "text.json"
_EXPORT = "export the network again"

_HEAD = '''\
"""Classify a text: python run.py "some text". Without one: run the sample and compare with its stored output."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
{imports}
from tokenizers import Tokenizer

'''
_MAIN = """\
here = Path(__file__).resolve().parent
documents = "labels.json", "text.json", "tokenizer.json", "sample.json"
labels, how, tokenizer, sample = (json.loads((here / name).read_text("utf-8")) for name in documents)
known = Tokenizer.from_str(json.dumps(cut(tokenizer, how["vocabulary"])))
inputs = token_ids(known, sys.argv[1] if sys.argv[1:] else sample["example"], how["tokens"])
{run}
for found in postprocess(output, labels)[:5]:
    print(f"{found['label']}: {found['score']:.1%}")
if not sys.argv[1:]:
    difference = float(np.abs(output - np.array(sample["logits"])).max())
    print(f"largest difference from the stored output: {difference:.2g}, allowed: {sample['tolerance']:.2g}")
    sys.exit(not difference <= sample["tolerance"])
"""


@dataclass(frozen=True, slots=True)
class TextProcessor:
    """See `nas.tasks.artifacts.Processor`: every class with its probability. Examples are texts, or bytes in UTF-8."""

    tokenizer: Tokenizer
    tokens: int
    labels: Sequence[str]

    def preprocess(self, example: Any) -> Prepared:
        return Prepared(token_ids(self.tokenizer, text_of(example), self.tokens), None)

    def postprocess(self, output: NDArray[np.float32], context: Any) -> list[dict[str, Any]]:
        if len(self.labels) != len(output):
            raise UserError(
                f"{LABELS} names {len(self.labels)} classes, the network tells {len(output)} apart", _EXPORT
            )
        return postprocess(output, self.labels)


def text_of(example: Any) -> str:
    """A text from a string, bytes in UTF-8, the path of a file of such, or a binary file object.

    Raises:
        UserError: it is none of them, or no text.
    """
    try:
        if isinstance(example, str):
            return example
        if isinstance(example, Path):
            example = example.read_bytes()
        elif hasattr(example, "read"):
            example = example.read()
        if isinstance(example, bytes):
            return example.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError("a text is not in UTF-8", "give a string, or bytes in UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read '{example}': {error.strerror}", "give a text, or the path of one") from error
    raise UserError(f"a {type(example).__name__} is no text", "give a string, or bytes in UTF-8")


def _size(how: Any, name: str, folder: Path) -> int:
    """A number in `INPUT`; raises `UserError` where it is missing or none that a network has."""
    value = how.get(name) if isinstance(how, dict) else None
    if type(value) is not int or not 1 <= value <= 10**6:
        raise UserError(f"'{folder / INPUT}' does not say how many {name} a network takes", _EXPORT)
    return value


class TextArtifacts:
    """See `nas.tasks.artifacts.BundleArtifacts`."""

    def documents(self, preprocess: TextPreprocess, signature: Signature) -> dict[str, Any]:
        """The whole tokenizer, and how much of it the network takes: it is cut when it is loaded."""
        return {
            TOKENIZER: preprocess.document(),
            INPUT: {
                "tokens": signature.input.shape[0],
                "vocabulary": signature.input.values,
                "begins_with": CLS,
                "filled_up_with": PAD,
                "hidden": MASK,
            },
        }

    def read_preprocess(self, folder: Path) -> TextPreprocess | None:
        path = folder / TOKENIZER
        if not path.is_file():
            return None
        return read_tokenizer(canonical(read_document(folder, TOKENIZER)), str(path))

    def processor(self, folder: Path) -> TextProcessor:
        if self.read_preprocess(folder) is None:
            raise UserError(f"cannot read '{folder / TOKENIZER}': there is no such file", _EXPORT)
        how, document = read_document(folder, INPUT), read_document(folder, TOKENIZER)
        tokens, vocabulary = (_size(how, name, folder) for name in ("tokens", "vocabulary"))
        tokenizer = Tokenizer.from_str(json.dumps(cut(document, vocabulary)))
        return TextProcessor(tokenizer, tokens, read_labels(folder, LABELS))

    def script(self, signature: Signature) -> str:
        import inspect

        constants = f"MAX_CHARACTERS, PAD, CLS = {MAX_CHARACTERS}, {PAD}, {CLS}"
        sources = "\n\n\n".join(inspect.getsource(part).rstrip() for part in (cut, token_ids, postprocess))
        return f"{_HEAD}{constants}\n\n\n{sources}\n\n\n{_MAIN}"

    def write_sample(
        self, folder: Path, data: "TextData", input: TensorSpec
    ) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """A made-up text of random tokens, as long as a usual one: no text of the data leaves them."""
        lengths = (data.val.ids != PAD).sum(axis=1)
        first, vocabulary = len(SPECIAL) + 256, min(input.values or 0, data.preprocess.size)
        rng = np.random.default_rng(len(lengths))
        drawn = rng.integers(min(first, vocabulary - 1), vocabulary, (1, max(1, int(np.median(lengths)) - 1)))
        text = data.preprocess.decode(drawn.astype(np.int32))[0]
        example = {"example": text, "label": "(made up)"}
        return self._ids(data.preprocess, text, input), example

    def _ids(self, preprocess: TextPreprocess, text: str, input: TensorSpec) -> NDArray[np.int64]:
        tokenizer = Tokenizer.from_str(json.dumps(cut(preprocess.document(), input.values or 0)))
        return token_ids(tokenizer, text, input.shape[0])

    def read_sample(self, folder: Path, sample: Mapping[str, Any]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self.processor(folder).preprocess(self.usual_example(folder, sample)).inputs
        return found

    def usual_example(self, folder: Path, sample: Mapping[str, Any]) -> str:
        return str(sample["example"])

    def write_output(self, folder: Path, output: NDArray[np.float32]) -> dict[str, Any]:
        return {"logits": [float(value) for value in output]}

    def read_output(self, folder: Path, sample: Mapping[str, Any]) -> NDArray[np.float32]:
        return np.array(sample["logits"], dtype=np.float32)

    def figures(self, run: "Run", data: "TextData", signature: Signature, batch: int) -> Figures:
        """Both metrics and the F1 score of each class, on the validation texts, and the share of texts that are cut."""
        split = data.for_input("val", signature.input)
        found = answers(logits_in_runtime(run, split, batch=batch))
        scores = f1_scores(found, split.labels, len(data.classes))
        every = {name: None if np.isnan(f1) else float(f1) for name, f1 in zip(data.classes, scores, strict=True)}
        full = float((split.ids[:, -1] != PAD).mean())
        return Figures(
            accuracy={
                "by_metric": {ACCURACY: accuracy(found, split), "macro-F1": macro_f1(found, split.labels)},
                "f1": every,
            },
            more={"texts_that_fill_all_tokens": full},
        )

    def sheet(self, run: "Run", data: "TextData", signature: Signature, batch: int) -> Sheet | None:
        return None
