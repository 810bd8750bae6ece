"""Teachers of texts: whose answers are asked for once, kept, and learnt from, also where nobody gave a label."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nas.controller.config import SearchConfig
from nas.errors import UserError
from nas.limits import Limits
from nas.progress import SilentProgress
from nas.tasks import TASKS
from nas.tasks.classification import loss
from nas.tasks.examples import Examples
from nas.tasks.same_data import changes, fingerprints_of
from nas.tasks.teaching import OwnTeacher
from nas.tasks.text.checkpoint import Checkpoint, is_checkpoint, load_checkpoint, matched
from nas.tasks.text.data import TextData
from nas.tasks.text.data.unlabelled import read_unlabelled
from nas.tasks.text.objective import TextObjective
from nas.tasks.text.teaching import Answering, TextTeaching, answers
from tests.nas.tasks.text.sentences import sentences, text_data, write_csv

CPU = torch.device("cpu")
MORE = [text for text, _ in sentences(60, 5)]


@pytest.fixture(scope="module")
def data() -> TextData:
    return text_data(240)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Oracle(torch.nn.Module):
    """Says for each text the class that more of its training texts' tokens are of."""

    def __init__(self, data: TextData) -> None:
        super().__init__()
        split, size = data.train, data.preprocess.size
        counts = [np.bincount(split.ids[split.labels == label].ravel(), minlength=size) for label in (0, 1)]
        self.scores = torch.from_numpy(np.log1p(np.stack(counts, axis=1)).astype(np.float32))
        self.asked = 0

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.asked += len(ids)
        return (self.scores[ids] * (ids > 3)[..., None]).sum(1)


def teacher_of(network: torch.nn.Module, data: TextData) -> OwnTeacher:
    return OwnTeacher(name="RUN#1", network=network, input=data.train.input, preprocess=None, sha256="0" * 64)


def taught(data: TextData, teacher: OwnTeacher | str, unlabelled: Path | None = None) -> TextData:
    more = None if unlabelled is None else str(unlabelled)
    return TextTeaching().taught(data, teacher, unlabelled=more, within_s=math.inf, progress=SilentProgress())


def unlabelled(folder: Path, texts: Sequence[str] = MORE) -> Path:
    (folder / "more.txt").write_text("\n".join(texts), encoding="utf-8")
    return folder / "more.txt"


def test_answers_join_the_training_texts_and_nothing_else_changes(data: TextData, tmp_path: Path) -> None:
    held = data.preprocess.decode(data.test.ids)[:3]
    found = taught(data, teacher_of(Oracle(data), data), unlabelled(tmp_path, [*MORE, *held, MORE[0], "  "]))
    assert len(found.train) == len(data.train) + len(MORE), "texts of the data, copies and empty lines are left out"
    assert found.train.taught is not None
    assert found.train.given is not None
    assert found.train.taught.shape == (len(found.train), 2)
    assert found.train.given.tolist() == [True] * len(data.train) + [False] * len(MORE)
    np.testing.assert_array_equal(found.train.labels[: len(data.train)], data.train.labels)
    np.testing.assert_array_equal(
        found.train.labels[len(data.train) :], found.train.taught[len(data.train) :].argmax(1)
    )
    assert found.val is data.val
    assert found.test is data.test
    assert changes(fingerprints_of(data), fingerprints_of(found)).total == 0
    assert any(f"{len(MORE)} texts without labels" in note for note in found.notes)
    assert any("4 texts without labels were left out" in note for note in found.notes)
    task = TASKS["text"]
    assert [f.accuracy for f in task.floors(found, 0)] == [f.accuracy for f in task.floors(data, 0)]
    again = task.split_of(task.arrays(found.train))
    for name in ("ids", "labels", "contents", "taught", "given"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found.train, name))


def test_a_text_is_asked_about_once(data: TextData, tmp_path: Path) -> None:
    oracle = Oracle(data)
    first = taught(data, teacher_of(oracle, data))
    asked = oracle.asked
    assert asked == len({*data.preprocess.decode(data.train.ids), *data.preprocess.decode(data.val.ids)})
    second = taught(data, teacher_of(oracle, data), unlabelled(tmp_path))
    assert oracle.asked == asked + len(MORE)
    np.testing.assert_array_equal(second.train.taught[: len(first.train)], first.train.taught)  # type: ignore[index]
    (file,) = (tmp_path / "cache" / "nas" / "answers").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    taught(data, teacher_of(oracle, data))
    assert oracle.asked == 2 * asked + len(MORE), "a damaged file is made again"


def test_a_teacher_that_takes_too_long_is_refused(data: TextData) -> None:
    slow = Answering(name="slow", key="0" * 64, answer=lambda texts: np.zeros((len(texts), 2), np.float32))
    with pytest.raises(UserError, match=r"slow.*takes about .* to answer 30 texts") as error:
        answers(slow, MORE[:30], 2, within_s=0.0, progress=SilentProgress())
    assert "--budget" in str(error.value.hint)


def test_a_teacher_that_knows_nothing_is_refused(data: TextData) -> None:
    class Wrong(Oracle):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return -super().forward(ids)

    with pytest.raises(UserError, match="guessing"):
        taught(data, teacher_of(Wrong(data), data))


def test_the_loss_is_that_of_labels_and_of_answers(data: TextData, tmp_path: Path) -> None:
    found = taught(data, teacher_of(Oracle(data), data), unlabelled(tmp_path))
    examples = Examples(train=found.train, val=found.val, preprocess=found.preprocess, size=(2,), traits=found.traits)
    plain, network = TASKS["text"].recipe(), torch.nn.Linear(1, 1)

    def objective(weight: float) -> TextObjective:
        return TextObjective(network, examples, plain.changed(distillation={"logits_weight": weight}), CPU)

    outputs = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    own, others = torch.arange(8), torch.arange(len(found.train) - 8, len(found.train))
    labels = torch.from_numpy(found.train.labels[:8])
    alone = loss(outputs, labels, plain.label_smoothing)
    torch.testing.assert_close(objective(0.0).loss(outputs, own), alone)
    assert found.train.taught is not None
    answered = torch.from_numpy(found.train.taught)
    for places, weight in ((own, 1.0), (others, 0.0), (others, 0.5)):
        assert float(objective(weight).loss(answered[places], places)) == pytest.approx(0, abs=1e-6)
        assert float(objective(weight).loss(-answered[places], places)) > 0.1


@pytest.fixture(scope="module")
def folder(data: TextData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT of the library transformers that was trained on the data, with a tokenizer of its own."""
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("bert")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=__import__("tokenizers").Tokenizer.from_str(data.preprocess.tokenizer),
        pad_token="[PAD]", cls_token="[CLS]", mask_token="[MASK]", unk_token="[UNK]", model_max_length=64,
    )  # fmt: skip
    config = BertConfig(
        vocab_size=data.preprocess.size, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, num_labels=2, id2label={0: "UP", 1: "Down"},
        label2id={"UP": 0, "Down": 1},
    )  # fmt: skip
    torch.manual_seed(0)
    network: Any = BertForSequenceClassification(config)
    encoded = tokenizer(data.preprocess.decode(data.train.ids), padding=True, return_tensors="pt")
    wanted = torch.from_numpy(1 - data.train.labels)  # the data's classes are down, up
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(40):
        optimizer.zero_grad()
        network(**encoded, labels=wanted).loss.backward()
        optimizer.step()
    network.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_a_folder_of_transformers_teaches(data: TextData, folder: Path, tmp_path: Path) -> None:
    assert TextTeaching().foreign(str(folder))
    found = taught(data, str(folder), unlabelled(tmp_path))
    own = found.train.labelled
    assert own.taught is not None
    assert (own.taught.argmax(1) == own.labels).mean() > 0.7, "classes are matched by name, whatever their order"
    checkpoint = load_checkpoint(str(folder), data.classes)
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.order == (1, 0)
    assert checkpoint.remark == ""
    texts = ["ba du", "ke " * 500, ""]
    np.testing.assert_allclose(
        np.concatenate([checkpoint.logits([text]) for text in texts]), checkpoint.logits(texts), atol=1e-4
    )


def test_folders_that_are_no_teacher(data: TextData, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="knows 2 classes, the data have 3"):
        load_checkpoint(str(folder), ("a", "b", "c"))
    for name in folder.iterdir():
        (tmp_path / name.name).write_bytes(name.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_checkpoint(str(tmp_path), data.classes)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"no model\.safetensors"):
        load_checkpoint(str(tmp_path), data.classes)
    for text in ("no json", "[]", '{"task": "text"}'):
        (tmp_path / "config.json").write_text(text)
        assert not is_checkpoint(str(tmp_path))


def test_classes_with_other_names_are_taken_in_their_order() -> None:
    order, remark = matched("bert", ["NEGATIVE", "POSITIVE"], ["0", "1"])
    assert order == (0, 1)
    assert "0 is its NEGATIVE" in remark


@pytest.mark.parametrize("form", ["lines", "table", "folder"])
def test_texts_without_labels_have_many_forms(form: str, tmp_path: Path) -> None:
    path = tmp_path / {"lines": "more.txt", "table": "more.csv", "folder": "more"}[form]
    if form == "folder":
        (path / "inner").mkdir(parents=True)
        for number, text in enumerate(MORE):
            (path / "inner" / f"{number:03}.txt").write_text(text)
    else:
        path.write_text("\n".join([*(["tweet"] if form == "table" else []), *MORE]))
    assert read_unlabelled(str(path)) == MORE


@pytest.mark.parametrize("content", [None, b"", b" \n \n", b"\xff\xfe", b"a,b\n1,2"])
def test_files_without_texts(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / ("more.csv" if content and b"," in content else "more.txt")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_unlabelled(str(path))
    assert error.value.hint


def test_requests_that_make_no_sense(tmp_path: Path) -> None:
    usual: dict[str, Any] = {"limits": Limits.of(latency_ms=1.0), "target": "local"}
    with pytest.raises(UserError, match="nobody says what the texts"):
        SearchConfig(**usual, task="text", data=str(write_csv(tmp_path / "t.csv")), unlabelled="more.txt")
    with pytest.raises(UserError, match="--unlabelled is not for classification"):
        SearchConfig(**usual, teacher="RUN#1", unlabelled="more.txt")
    cluster = SearchConfig(**usual, task="text", data=str(tmp_path / "t.csv"), teacher="RUN#1", ray="auto")
    assert replace(cluster, unlabelled="more.txt").unlabelled, "a text teacher's answers travel with the data"
