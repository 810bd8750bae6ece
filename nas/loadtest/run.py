"""`nas bench --serve` and `nas bench --url`: all trials of a load test, one server after the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from nas import __version__
from nas.errors import UserError
from nas.files.folders import check_writable
from nas.loadtest.config import LoadConfig
from nas.loadtest.document import SCHEMA, Made, scaling_document, server_text, subject_document
from nas.loadtest.endpoint import find_endpoint
from nas.loadtest.images import Pictures, read_pictures, sample_picture
from nas.loadtest.latencies import write_latencies
from nas.loadtest.messages import conversation_again, conversation_with
from nas.loadtest.outcome import Trial, hopeless_after
from nas.loadtest.plan import ClosedLoop, Load, OpenLoop, warm_up_s
from nas.loadtest.prices import break_evens, cost_document, read_prices
from nas.loadtest.rate_trials import RateFound, confirm_rate, search_rate
from nas.loadtest.subjects import Subject, subjects_of
from nas.loadtest.trial import Conversation, run_trial
from nas.measure.host import fingerprint
from nas.progress import Progress, Stage

if TYPE_CHECKING:
    from nas.bundles.predictor import Predictor

BRACKET_CLIENTS = 20
"""Of the closed loop that a search begins with, where no other was asked for."""
SEARCH_TRIALS = 8
"""Most trials of the search for a rate."""


@dataclass(slots=True)
class _Row:
    """One subject, and what was seen of it so far: kept also where its server ends too early."""

    subject: Subject
    speaks: str = ""
    conversation: Conversation | None = None
    """With the last server of this kind that was started."""
    made: list[Made] = field(default_factory=list)
    found: RateFound | None = None
    not_measured: str | None = None

    def closed_rate(self) -> float:
        return max((m.trial.images_per_s for m in self.made if isinstance(m.trial.load, ClosedLoop)), default=0.0)


def run_load_test(config: LoadConfig, progress: Progress) -> dict[str, Any]:
    """The document of a load test; see docs/load-tests.md.

    A server that cannot be started, or ends, is a row with the reason; the others are measured all the same.

    Raises:
        UserError: bad input, before any load is made.
    """
    prices = read_prices(config.prices) if config.prices is not None else []
    if config.latencies is not None:
        folder = config.latencies.absolute().parent
        if not folder.is_dir() or config.latencies.is_dir():
            raise UserError(
                f"'{config.latencies}' cannot be written: no such folder", "name a file: --latencies all.parquet"
            )
        check_writable(folder)
    subjects = subjects_of(config)
    pictures = [_pictures(config, subject) for subject in subjects]
    rows = [_Row(subject) for subject in subjects]
    for row, drawn in zip(rows, pictures, strict=True):
        with progress.stage(row.subject.text, total=_trials(config)) as bar:
            try:
                _measure(row, drawn, config, bar)
            except UserError as error:
                row.not_measured = str(error)
    if config.latencies is not None:
        write_latencies(config.latencies, [(row.subject.name, made) for row in rows for made in row.made])
    host = fingerprint()
    servers = [
        subject_document(row.subject, row.speaks, drawn, row.made, row.found, config.slo_ms, row.not_measured)
        for row, drawn in zip(rows, pictures, strict=True)
    ]
    for row, server in zip(rows, servers, strict=True):
        cores = row.subject.settings.cores if row.subject.settings is not None else None
        rate = server["images_per_s"]
        server["cost"] = [cost_document(p, rate, cores or p.cores) for p in prices] if rate else []
    costs = [
        (f"{server_text(s)} on {c['name']}", c["images_per_s"], c["price_per_hour"]) for s in servers for c in s["cost"]
    ]
    return {
        "schema": SCHEMA,
        "nas_version": __version__,
        "command": config.command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": host.cpu_model,
        "fingerprint": host.to_json(),
        "seconds_per_trial": config.seconds,
        "runs": config.runs,
        "seed": config.seed,
        "slo_ms": config.slo_ms,
        "servers": servers,
        "scaling": scaling_document(servers),
        "break_even": break_evens(costs),
    }


def _measure(row: _Row, pictures: Pictures, config: LoadConfig, bar: Stage) -> None:
    """Everything that is asked of one subject; what was made is in `row`, also where this raises."""
    predictor = _predictor(row.subject)
    clients = config.clients_asked or ((BRACKET_CLIENTS,) if config.slo_ms is not None else ())
    loads: list[tuple[str, Load]] = [
        ("clients", ClosedLoop(clients=n, seconds=config.seconds, warm_up_s=warm_up_s(config.seconds))) for n in clients
    ]
    loads += [
        ("rate", OpenLoop(rate_per_s=rate, seconds=config.seconds, warm_up_s=warm_up_s(config.seconds)))
        for rate in config.rates
    ]
    for run in range(config.runs):
        with _conversation(row, pictures, predictor, config) as conversation:
            for purpose, load in loads:
                _attempt(row, conversation, config, bar, purpose, run, load, config.seed + run)
            if run == 0 and config.slo_ms is not None:
                attempt = partial(_attempt, row, conversation, config, bar, "search", 0)
                row.found = search_rate(row.closed_rate(), config.seconds, attempt, SEARCH_TRIALS)
    if row.found is not None:

        def fresh(run: int, load: OpenLoop, seed: int) -> Trial:
            with _conversation(row, pictures, predictor, config) as conversation:
                return _attempt(row, conversation, config, bar, "confirm", run, load, seed)

        row.found = confirm_rate(row.found, config.seconds, [partial(fresh, run) for run in range(config.runs)])


def _attempt(
    row: _Row, conversation: Conversation, config: LoadConfig, bar: Stage, purpose: str, run: int, load: Load, seed: int
) -> Trial:
    most_late = hopeless_after(load) if purpose in ("search", "confirm") and isinstance(load, OpenLoop) else None
    trial = run_trial(conversation, load, slo_ms=config.slo_ms, most_late=most_late, seed=seed)
    row.made.append(Made(purpose=purpose, run=run, trial=trial))
    bar.advance(1, note=f"{trial.images_per_s:.0f} images/s")
    if trial.gone:
        raise UserError(f"the server '{row.subject.name}' was gone in the middle of a trial", "see what it says")
    return trial


@contextmanager
def _conversation(
    row: _Row, pictures: Pictures, predictor: "Predictor | None", config: LoadConfig
) -> Iterator[Conversation]:
    """A fresh server, and what is said to it."""
    with row.subject.start() as live:
        endpoint = find_endpoint(live.url, config.send)
        row.speaks = endpoint.speaks
        if row.conversation is None:
            row.conversation = conversation_with(endpoint, pictures.pictures, predictor, live.pid)
        else:
            row.conversation = conversation_again(row.conversation, endpoint, live.pid)
        yield row.conversation


def _predictor(subject: Subject) -> "Predictor | None":
    if subject.bundle is None:
        return None
    from nas.bundles.predictor import Predictor

    return Predictor.open(subject.bundle)


def _pictures(config: LoadConfig, subject: Subject) -> Pictures:
    if config.images is not None:
        return read_pictures(config.images)
    if subject.bundle is None:
        raise UserError(f"nothing says which images to send to {subject.name}", "give a folder: --images ./photos")
    return sample_picture(subject.bundle)


def _trials(config: LoadConfig) -> float | None:
    """Trials of one subject, where that is known beforehand."""
    if config.slo_ms is not None:
        return None
    return config.runs * (len(config.clients_asked) + len(config.rates))
