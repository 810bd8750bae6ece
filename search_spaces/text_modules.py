"""The torch modules of networks on token ids; see `search_spaces.families.text`.

Dimensions in docstrings: b texts, t tokens, c channels. Everything is static but b, so that exported graphs hold no
arithmetic on shapes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from search_spaces.families.text import PAIRS
from search_spaces.modules import ConvBn, activation_module

PAD = 0
"""The id that fills texts up to their length: never a token of a text."""
CLOSED = -1e4
"""Added to the score of what attention must not look at. Not infinite: rows without any token would be no numbers."""
DROPOUT = 0.1
HEAD_DROPOUT = 0.3
"""Shares of elements that are dropped in training: inside blocks, and before the last layer."""
WIDE_DROPOUT = 0.5
"""See `Wide`."""
EMBEDDING_STD = 0.1
MULTIPLIER = 2011
"""Of the first token of a pair, whose entry in the table is (MULTIPLIER * first + second) mod `PAIRS`. With up to 8,000
tokens that stays below 2^24: OpenVINO 2026.4 divides integers as fp32 numbers, and gives wrong entries above."""


class Embedded(nn.Module):
    """`(b, t)` int64 -> `(b, t, c)`: a row for each token, plus one for each place."""

    def __init__(self, entries: int, width: int, tokens: int) -> None:
        super().__init__()
        self.table = nn.Embedding(entries, width, padding_idx=PAD)
        self.places = nn.Parameter(torch.zeros(tokens, width))
        self.dropout = nn.Dropout(DROPOUT)
        with torch.no_grad():
            self.table.weight.mul_(EMBEDDING_STD)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.dropout(self.table(ids) + self.places)
        return found


class AttentionBlock(nn.Module):
    """Self-attention and a feed-forward part, both residual behind a layer norm: `(b, t, c)` -> `(b, t, c)`."""

    def __init__(self, width: int, heads: int, ratio: float, activation: str, tokens: int) -> None:
        super().__init__()
        inner, self.heads, self.tokens, self.channels = int(width * ratio), heads, tokens, width // heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.second_norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, inner), nn.Linear(inner, width)
        self.act = activation_module(activation)
        self.dropout = nn.Dropout(DROPOUT)
        with torch.no_grad():
            # Scores are divided by the root of the channels once and for all: one operator less.
            self.qkv.weight[:width] *= self.channels**-0.5

    def forward(self, x: Tensor, closed: Tensor) -> Tensor:
        """`closed` (b, 1, 1, t): 0 for tokens of the text, `CLOSED` elsewhere."""
        joint = self.qkv(self.norm(x)).reshape(-1, self.tokens, 3, self.heads, self.channels).permute(2, 0, 3, 1, 4)
        query, key, value = joint[0], joint[1], joint[2]
        seen = torch.softmax(query @ key.transpose(-1, -2) + closed, dim=-1) @ value
        mixed = seen.transpose(1, 2).reshape(-1, self.tokens, self.heads * self.channels)
        x = x + self.dropout(self.out(mixed))
        found: Tensor = x + self.dropout(self.down(self.act(self.up(self.second_norm(x)))))
        return found


class RowConvBn(ConvBn):
    """`ConvBn` along a text, `(b, c, 1, t)`: a map of one row, which runtimes have their fast convolutions for."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel: int = 1, *, groups: int = 1, activation: str | None = None
    ) -> None:
        super().__init__(in_channels, out_channels, groups=groups, activation=activation)
        self.conv = nn.Conv2d(
            in_channels, out_channels, (1, kernel), padding=(0, kernel // 2), groups=groups, bias=False
        )
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")


class RowBlock(nn.Module):
    """A residual block of convolutions along the text: `(b, t, c)` -> `(b, t, c)`."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        row = self.body(x.transpose(1, 2).unsqueeze(2)).squeeze(2).transpose(1, 2)
        found: Tensor = x + self.dropout(row)
        return found


class ConvBlock(RowBlock):
    """Wider, along the text channel by channel, and narrower again."""

    def __init__(self, width: int, kernel: int, ratio: float, activation: str) -> None:
        inner = int(width * ratio)
        super().__init__(
            nn.Sequential(
                RowConvBn(width, inner, activation=activation),
                RowConvBn(inner, inner, kernel, groups=inner, activation=activation),
                RowConvBn(inner, width),
            )
        )


class DenseBlock(RowBlock):
    """One convolution along the text."""

    def __init__(self, width: int, kernel: int, activation: str) -> None:
        super().__init__(RowConvBn(width, width, kernel, activation=activation))


class Shrink(nn.Module):
    """One token of two: `(b, t, c)` -> `(b, t / 2, c)`."""

    def __init__(self, how: str, tokens: int, width: int) -> None:
        super().__init__()
        self.how, self.tokens, self.width = how, tokens // 2, width

    def forward(self, x: Tensor) -> Tensor:
        pairs = x.reshape(-1, self.tokens, 2, self.width)
        return pairs.amax(2) if self.how == "max" else pairs.mean(2)


class TextHead(nn.Module):
    """Pooling over the tokens of the text and a linear layer: `(b, t, c)`, `(b, t, 1)` -> `(b, classes)`."""

    def __init__(self, width: int, classes: int, pool: str) -> None:
        super().__init__()
        self.pool = pool
        self.dropout = nn.Dropout(HEAD_DROPOUT)
        self.linear = nn.Linear(2 * width if pool == "both" else width, classes)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        found = []
        if self.pool != "max":
            found.append((x * mask).sum(1) / mask.sum(1).clamp(min=1.0))
        if self.pool != "mean":
            found.append((x + (1 - mask) * CLOSED).amax(1))
        logits: Tensor = self.linear(self.dropout(found[0] if len(found) == 1 else torch.cat(found, 1)))
        return logits


class Wide(nn.Module):
    """A linear model of tokens, and perhaps of pairs of neighbours: `(b, t)` -> `(b, classes)`.

    An entry of a table has a score for each class and a weight. Scores are summed over the text and divided by the root
    of the summed weights (at least 1), as in TF-IDF features of length 1, so that long texts are not surer than short
    ones. Tables are zero at first, so that a network without data is as if it had none; `nas.tasks.text.linear_model`
    knows better. The table of pairs is shared by all pairs with the same remainder. In training the model is left out
    of a share `WIDE_DROPOUT` of the texts: or the rest of the network would have nothing to learn.
    """

    def __init__(self, entries: int, classes: int, *, pairs: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(entries, classes + 1, padding_idx=PAD)
        self.pairs = nn.Embedding(PAIRS, classes + 1, padding_idx=PAD) if pairs else None
        for table in self.tables:
            nn.init.zeros_(table.weight)

    @property
    def tables(self) -> list[nn.Embedding]:
        """That of tokens, and that of pairs where there is one."""
        return [self.words] if self.pairs is None else [self.words, self.pairs]

    def forward(self, ids: Tensor) -> Tensor:
        sums: Tensor = self.words(ids).sum(1)
        if self.pairs is not None:
            sums = sums + self.pairs(pair_entries(ids)).sum(1)
        scores = sums[:, :-1] / sums[:, -1:].clamp(min=1.0).sqrt()
        if self.training:
            scores = scores * (torch.rand(len(ids), 1, device=ids.device) >= WIDE_DROPOUT)
        return scores


def pair_entries(ids: Tensor) -> Tensor:
    """`(b, t)` int64 -> `(b, t - 1)`: the entry of each pair of neighbours; that of two `PAD` is `PAD`."""
    return (ids[:, :-1] * MULTIPLIER + ids[:, 1:]) % PAIRS


class TextNetwork(nn.Module):
    """Token ids `(b, t)` int64, filled up with `PAD` -> logits `(b, classes)`."""

    def __init__(
        self,
        embed: nn.Module,
        stem: nn.Module | None,
        shrinks: Sequence[Shrink],
        projects: Sequence[nn.Module],
        stages: Sequence[Sequence[nn.Module]],
        head: nn.Module,
        wide: Wide | None,
    ) -> None:
        """`shrinks` before all stages but the first; `projects` before each, the identity where nothing changes."""
        super().__init__()
        self.embed, self.stem = embed, stem
        self.shrinks, self.projects = nn.ModuleList(shrinks), nn.ModuleList(projects)
        self.stages = nn.ModuleList(nn.ModuleList(blocks) for blocks in stages)
        self.head, self.wide = head, wide
        self._tokens = [shrink.tokens for shrink in shrinks]

    def forward(self, ids: Tensor) -> Tensor:
        mask = (ids != PAD).float()
        x = self.embed(ids)
        if self.stem is not None:
            x = self.stem(x)
        for number, project in enumerate(self.projects):
            if number:
                shrink = self.shrinks[number - 1]
                x, mask = shrink(x), mask.reshape(-1, self._tokens[number - 1], 2).amax(2)
            x = project(x)
            blocks = self.stages[number]
            assert isinstance(blocks, nn.ModuleList)
            attends = isinstance(blocks[0], AttentionBlock)
            closed = ((1 - mask) * CLOSED)[:, None, None] if attends else mask
            for block in blocks:
                x = block(x, closed) if attends else block(x)
        logits: Tensor = self.head(x, mask[:, :, None])
        return logits if self.wide is None else logits + self.wide(ids)
