"""The application: routes of the Open Inference Protocol (version 2, REST), `POST /predict`, health and metrics.

An ASGI application like any other: `nas.serving.worker` runs it in processes of this machine, `nas.serving.on_ray` on a
cluster, a test in its own process.
"""

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from nas import __version__
from nas.errors import UserError
from nas.serving import metrics
from nas.serving.answers import examples_of, metadata, plain_answer, tensors_of, unreadable
from nas.serving.body import read_body
from nas.serving.engine import Answered, Engine
from nas.serving.metrics import Metrics
from nas.serving.model import VERSION
from nas.serving.protocol import HEADER_LENGTH, compose_answer, encode, parse_request
from nas.serving.refusal import Refusal, busy, drop_frames, malformed

SERVER = {"name": "nas", "version": __version__, "extensions": ["binary_tensor_data"]}
CLOSING = (408, 413)
MOST_DIGITS = 18
"""Of a length in a header: Python refuses to read thousands of them."""
"""Answers after which the connection is closed, because a part of the request may still be on its way."""
_GONE = 499
"""Counted where the client has left before it had an answer (nginx's number)."""

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True)
class Health:
    """What a process says of itself. It is served only once its model is loaded, checked and warm."""

    draining: bool = False
    """It was told to end: whoever sends requests should look for another server."""


class _App(Starlette):
    """Requests that ask the model go straight to their handlers, instead of through the layers of starlette that do
    nothing for them. All others, and whoever misspells a path, go through these."""

    asked: Mapping[str, Handler] = {}
    """Path of a POST -> who answers it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self.asked.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if handler is None:
            return await super().__call__(scope, receive, send)
        request = Request(scope, receive)
        try:
            response = await handler(request)
        except Exception as error:
            response = await _failed(request, error)
            await response(scope, receive, send)
            raise  # to the server's log
        await response(scope, receive, send)


def create_app(
    engine: Engine, health: Health, numbers: Metrics, alone: Callable[[], bool] = lambda: False
) -> Starlette:
    """The application that serves an engine's model. `alone` says that one client is connected and no other: the
    network may then run in the event loop's thread."""
    service = _Service(engine, health, numbers, alone)
    predict, infer = service.counted("predict", service.predict), service.counted("infer", service.infer)
    model = "/v2/models/{name}"
    models = (model, f"{model}/versions/{{version}}")
    routes = [  # tried in this order
        *(Route(f"{path}/infer", infer, methods=["POST"]) for path in models),
        Route("/predict", predict, methods=["POST"]),
        *(Route(path, service.server) for path in ("/v2", "/v2/")),
        Route("/v2/health/live", service.live),
        Route("/v2/health/ready", service.ready),
        *(Route(path, service.model) for path in models),
        *(Route(f"{path}/ready", service.model_ready) for path in models),
        Route("/metrics", service.metrics),
    ]
    app = _App(routes=routes, exception_handlers={HTTPException: _no_such, Exception: _failed})
    app.asked = {"/predict": predict} | {f"{path}/infer": infer for path in service.paths}
    return app


class _Service:
    def __init__(self, engine: Engine, health: Health, numbers: Metrics, alone: Callable[[], bool]) -> None:
        self._engine, self._health, self._numbers, self._alone = engine, health, numbers, alone
        self._settings = engine.settings
        self._in_hand = 0

    @property
    def paths(self) -> tuple[str, str]:
        """Of the model that is served, without and with its version."""
        path = f"/v2/models/{self._engine.model.name}"
        return path, f"{path}/versions/{VERSION}"

    async def server(self, request: Request) -> Response:
        return JSONResponse(SERVER)

    async def live(self, request: Request) -> Response:
        if self._engine.stuck:
            return _error(503, "the network or a decoder does not return")
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        if self._health.draining:
            return _error(503, "ending")
        return JSONResponse({"ready": True}, status_code=503 if self._engine.stuck else 200)

    async def model(self, request: Request) -> Response:
        self._check_name(request)
        return JSONResponse(metadata(self._engine.model))

    async def model_ready(self, request: Request) -> Response:
        self._check_name(request)
        return await self.ready(request)

    async def metrics(self, request: Request) -> Response:
        self._numbers.waiting.set(self._engine.waiting)
        return Response(self._numbers.text(), headers={"content-type": metrics.TYPE})

    async def predict(self, request: Request) -> Response:
        draw = request.query_params.get("draw", "0")
        if draw not in ("0", "1") or (draw == "1" and not self._engine.model.locates):
            raise malformed(f"draw={draw!r}: 0 or 1, and 1 only of models that find objects")
        body = await self._body(request)
        if not body:
            raise malformed("the body is empty; send the bytes of one image file")
        (answered,) = await self._answers(self._engine.answer_files([body]))
        if draw == "1":
            picture = await asyncio.wrap_future(self._engine.draw(body, answered.answer))
            return Response(picture, media_type="image/png")
        return Response(encode(plain_answer(self._engine.model, answered)), media_type="application/json")

    async def infer(self, request: Request) -> Response:
        self._check_name(request)
        length = request.headers.get(HEADER_LENGTH)
        if length is not None and not (length.isascii() and length.isdigit() and len(length) <= MOST_DIGITS):
            raise malformed(f"{HEADER_LENGTH} is {length[:40]!r}, not a number of bytes")
        body = await self._body(request)
        asked = parse_request(body, None if length is None else int(length))
        answers = await self._answers_of(examples_of(self._engine.model, asked, self._settings.images))
        tensors = tensors_of(self._engine.model, answers)
        answer, json_bytes = compose_answer(self._engine.model.name, VERSION, tensors, asked)
        if json_bytes is None:
            return Response(answer, media_type="application/json")
        return Response(answer, headers={HEADER_LENGTH: str(json_bytes)}, media_type="application/octet-stream")

    def counted(self, route: str, handle: Handler) -> Handler:
        """`handle` with its refusals as answers, and all of them counted."""

        async def counting(request: Request) -> Response:
            start, code = time.perf_counter(), 500
            try:
                response = await self._limited(handle, request)
                code = response.status_code
            except ClientDisconnect:
                code = _GONE
                return Response(status_code=400)  # to nobody
            finally:
                self._numbers.request(route, code, time.perf_counter() - start)
            return response

        return counting

    async def _limited(self, handle: Handler, request: Request) -> Response:
        if self._in_hand >= self._settings.requests:
            return refused(busy(f"busy: {self._in_hand} requests are in hand", self._settings.deadline_ms / 1e3))
        self._in_hand += 1
        try:
            return await handle(request)
        except Refusal as refusal:
            drop_frames(refusal)
            return refused(refusal)
        finally:
            self._in_hand -= 1

    async def _body(self, request: Request) -> bytes:
        return await read_body(request, self._settings.body_bytes, self._settings.body_s)

    async def _answers_of(self, examples: list[Any] | NDArray[Any]) -> list[Answered]:
        if isinstance(examples, list):
            return await self._answers(self._engine.answer_files(examples))
        answered = self._engine.answer_here(examples) if self._alone() else None
        if answered is None:
            return await self._answers(self._engine.answer_inputs(examples))
        self._count(answered)
        return [answered]

    async def _answers(self, futures: "Sequence[Future[Answered]]") -> list[Answered]:
        """Of all examples, or the refusal of the first that has none."""
        outcomes = await _outcomes(futures)
        answers: list[Answered] = []
        for at, outcome in enumerate(outcomes):
            if isinstance(outcome, UserError):
                raise unreadable(outcome, at if len(outcomes) > 1 else None) from outcome
            if isinstance(outcome, BaseException):
                raise outcome
            self._count(outcome)
            answers.append(outcome)
        return answers

    def _count(self, answered: Answered) -> None:
        self._numbers.image(answered.decode_s, answered.queue_s, answered.infer_s, answered.images)

    def _check_name(self, request: Request) -> None:
        name, known = request.path_params.get("name"), self._engine.model.name
        if name is None:  # it came by the path of the model that is served
            return
        if name != known:
            raise HTTPException(404, f"there is no model {name!r}, only {known!r}")
        version = request.path_params.get("version", VERSION)
        if version != VERSION:
            raise HTTPException(404, f"{known!r} has no version {version!r}, only {VERSION!r}")


async def _outcomes(futures: "Sequence[Future[Answered]]") -> "Sequence[Answered | BaseException]":
    """Answers and what went wrong, in order, when all are settled."""
    waiting = [asyncio.wrap_future(future) for future in futures]
    if len(waiting) > 1:
        return await asyncio.gather(*waiting, return_exceptions=True)
    try:  # the usual case, without the cost of gathering
        return [await waiting[0]]
    except (UserError, Refusal) as error:
        return [error]


def refused(refusal: Refusal) -> Response:
    """The answer that says so."""
    headers = {}
    if refusal.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(refusal.retry_after_s)))  # whole seconds
    if refusal.status in CLOSING:
        headers["connection"] = "close"
    return _error(refusal.status, str(refusal), headers)


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    content = json.dumps({"error": message}).encode()
    return Response(content, status, headers, media_type="application/json")


async def _no_such(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, str(error.detail), dict(error.headers or {}))


async def _failed(request: Request, error: Exception) -> Response:
    """A defect: the traceback goes to the log, and no detail to the client."""
    return _error(500, "the server failed")
