"""Self-pretraining of text networks: hidden tokens are told from what is around them, before any label is seen.

What is trained is everything before the first shrinking, since what comes after it has no token of its own. A hidden
token has an embedding of zeros, as one beyond the end of a text has; the answer is compared with all rows of the
embedding's table (BERT, arXiv 1810.04805, with the table tied as in arXiv 1608.05859). A network without blocks that
look around sees the mean of the text beside the place (CBOW, arXiv 1301.3781).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from search_spaces.text_modules import CLOSED, PAD, AttentionBlock, TextNetwork

HIDDEN, RATE, BATCH, DECAY, WARM_UP = 0.2, 2e-3, 64, 0.01, 0.1


def states(network: TextNetwork, shown: Tensor, mask: Tensor) -> Tensor:
    """What the network knows of each token before the first shrinking: `(b, t)`, `(b, t)` -> `(b, t, c)`."""
    x: Tensor = network.embed(shown)
    if network.stem is not None:
        x = network.stem(x)
    if len(network.projects):
        x = network.projects[0](x)
        blocks = network.stages[0]
        assert isinstance(blocks, nn.ModuleList)
        attends = isinstance(blocks[0], AttentionBlock)
        closed = ((1 - mask) * CLOSED)[:, None, None]
        for block in blocks:
            x = block(x, closed) if attends else block(x)
    return x


class Guess(nn.Module):
    """Scores of all tokens for the hidden places: their state and the mean of the text, to the embedding's table."""

    def __init__(self, width: int, table: nn.Embedding) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(2 * width)
        self.to_rows = nn.Linear(2 * width, table.embedding_dim)
        self.bias = nn.Parameter(torch.zeros(table.num_embeddings))
        self.scale = nn.Parameter(torch.tensor(10.0))

    def forward(self, x: Tensor, mask: Tensor, hidden: Tensor, table: Tensor) -> Tensor:
        mean = (x * mask[:, :, None]).sum(1, keepdim=True) / mask.sum(1)[:, None, None].clamp(min=1)
        seen = torch.cat([x, mean.expand_as(x)], 2)[hidden]
        scores: Tensor = self.scale * (self.to_rows(self.norm(seen)) @ table.T) + self.bias
        return scores


def pretrain(network: TextNetwork, ids: Tensor, epochs: int, seed: int, device: torch.device) -> list[float]:
    """Train in place on texts `(n, t)`; the mean loss of each epoch, in nats a hidden token."""
    table = next(m for m in network.embed.modules() if isinstance(m, nn.Embedding))
    drawn = torch.Generator(device).manual_seed(seed)
    ids = ids.to(device)
    network.to(device).train()
    with torch.no_grad():
        width = states(network, ids[:2], (ids[:2] != PAD).float()).shape[2]
    guess = Guess(width, table).to(device)
    before = [p for name, p in network.named_parameters() if not name.startswith(("wide", "head"))]
    optimiser = torch.optim.AdamW([*before, *guess.parameters()], lr=RATE, weight_decay=DECAY)
    steps = epochs * (len(ids) // BATCH)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps + 1, pct_start=WARM_UP)
    losses = []
    for _ in range(epochs):
        total, count = 0.0, 0
        order = torch.randperm(len(ids), generator=drawn, device=device)
        for start in range(0, len(ids) - BATCH + 1, BATCH):
            real = ids[order[start : start + BATCH]]
            mask = (real != PAD).float()
            hidden = (torch.rand(real.shape, generator=drawn, device=device) < HIDDEN) & (real != PAD)
            if not hidden.any():
                continue
            x = states(network, real.masked_fill(hidden, PAD), mask)
            loss = cross_entropy(guess(x, mask, hidden, table.weight), real[hidden])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(before, 1.0)
            optimiser.step()
            rates.step()
            total, count = total + loss.item(), count + 1
        losses.append(total / max(1, count))
    network.cpu()
    return losses
