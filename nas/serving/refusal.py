"""Requests that are not answered: what an HTTP client is told instead."""


class Refusal(Exception):
    """A request is refused with an HTTP status; the message is a sentence for the client."""

    def __init__(self, status: int, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        """When it is worth asking again; None: the same request will be refused again."""


def malformed(message: str) -> Refusal:
    """A request that breaks the protocol."""
    return Refusal(400, message)


def busy(message: str, retry_after_s: float) -> Refusal:
    """A request that comes at a bad time."""
    return Refusal(503, message, retry_after_s=retry_after_s)


def drop_frames(error: BaseException) -> None:
    """Take the tracebacks out of `error` and of what it came of.

    They hold the frames that were left, with the request's body and what was decoded of it, and one of these frames
    holds the future that has the error: a cycle of megabytes that stays until Python happens to look for cycles.
    """
    step: BaseException | None = error
    while step is not None:
        step.__traceback__ = None
        step = step.__cause__ or step.__context__
