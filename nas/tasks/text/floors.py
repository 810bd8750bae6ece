"""What can be had of texts without a network: the most frequent class, and the usual linear model of words."""

import time
import warnings

import numpy as np
from numpy.typing import NDArray

from nas.tasks.floor import LINEAR_MARGIN, Floor, guessing
from nas.tasks.text.data import TextData, TextSplit
from nas.tasks.text.evaluate import merit

TRAIN_TEXTS = 30_000
"""At most so many: more take minutes."""
PENALTIES = (1.0, 4.0, 16.0)
"""Inverse strengths of the linear model's penalty; the best on validation texts is taken."""
LINEAR = "TF-IDF and logistic regression"


def text_floors(data: TextData, seed: int) -> tuple[Floor, ...]:
    """Guessing, and logistic regression (scikit-learn) on TF-IDF of words, pairs of words and parts of words; both from
    given labels alone.

    `seed` draws the training texts where there are more than `TRAIN_TEXTS`.
    """
    return guessing(data.train.labelled, data.val, data.test, merit), linear(data, seed)


def linear(data: TextData, seed: int) -> Floor:
    """The linear model with the penalty that is best on the validation texts."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    start = time.perf_counter()
    train = data.train.labelled.some(TRAIN_TEXTS, seed)
    features, val, test = _features(data, train)
    balance = "balanced" if data.class_weights is not None else None
    models = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a floor need not be the best linear model
        for penalty in PENALTIES:
            model = LogisticRegression(C=penalty, class_weight=balance, max_iter=100).fit(features, train.labels)
            models.append((merit(_found(model, val), data.val), -penalty, model))
    accuracy, _, best = max(models, key=lambda found: found[:2])
    return Floor(
        name=LINEAR, accuracy=accuracy, test=merit(_found(best, test), data.test), margin=LINEAR_MARGIN,
        seconds=time.perf_counter() - start,
    )  # fmt: skip


def _found(model: object, features: object) -> NDArray[np.int64]:
    predicted: NDArray[np.int64] = model.predict(features)  # type: ignore[attr-defined]
    return predicted.astype(np.int64)


def _features(data: TextData, train: TextSplit) -> tuple[object, object, object]:
    """Sparse features of training, validation and test texts."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
    parts = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=2)
    union = make_union(words, parts)
    texts = [data.preprocess.decode(split.ids) for split in (train, data.val, data.test)]
    return union.fit_transform(texts[0]), union.transform(texts[1]), union.transform(texts[2])
