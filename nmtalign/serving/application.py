"""The ASGI application of a server: LibreTranslate's addresses, JSON lines, alignments, health and a page to try it.

`nmtalign docs formats` describes requests and responses. Settings are in the query, such as ?beam=5. The response to a
wrong request is {"error": "one sentence"}.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from nmtalign.errors import InputError, NmtalignError, UsageError
from nmtalign.serving.batch_queue import BatchQueue, QueueFullError, Work
from nmtalign.serving.request_bodies import BodyLimits, json_body, libre_query, pair_of
from nmtalign.serving.served_models import AUTO, LineTranslator, ServedModel, ServedModels, Settings
from nmtalign.settings.definition import seconds
from nmtalign.settings.serve_settings import ServeConfig, host_names
from nmtalign.translating.inputs import make_request
from nmtalign.translating.output_formats import one_line
from nmtalign.translating.translation import Request as Line
from nmtalign.translating.translation import Translation
from nmtalign.version import __version__

Endpoint = Callable[[Request], Awaitable[Response]]

_PAGE = {
    "": ("page.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store"}
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - names, and no address to listen on


def make_application(models: ServedModels, config: ServeConfig, notify: Callable[[str], None]) -> Starlette:
    """The application; `notify` gets one line of text for an error inside the server."""
    for model in models:
        model.prepare()
    service = _Service(models, config)

    async def report(request: Request, error: Exception) -> Response:
        notify(f"{request.method} {request.url.path}: {type(error).__name__}: {error}")
        return _json({"error": "an error inside the server, which reports it"}, 500)

    hosts = [*_LOOPBACK, *host_names("allowed_hosts", config.allowed_hosts)]
    hosts.append("*" if config.host in _ANY_ADDRESS else f"[{config.host}]" if ":" in config.host else config.host)
    application = Starlette(
        routes=service.routes(),
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)],
        exception_handlers={
            HTTPException: _refuse,
            NmtalignError: _refuse_input,
            QueueFullError: _refuse_for_now,
            ClientDisconnect: _leave,
            Exception: report,
        },
        lifespan=service.lifespan,
    )
    application.state.unanswered = 0  # requests that were dropped when the server ended
    return application


class _Service:
    """The endpoints: they check requests, and give the lines to the queue."""

    def __init__(self, models: ServedModels, config: ServeConfig) -> None:
        self._models = models
        self._queue, self._limits = BatchQueue(config.max_queue), BodyLimits(config)
        self._seconds = seconds("time_limit", config.time_limit)

    def routes(self) -> list[Route]:
        """The addresses."""
        posts = {
            "/translate": self.translate,
            "/translate/json": self.translate_json,
            "/detect": self.detect,
            "/align": self.align,
        }
        gets: dict[str, Endpoint] = {"/languages": self.languages, "/health": self.health}
        gets |= {f"/{name}": _file(*file) for name, file in _PAGE.items()}
        return [
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()),
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()),
        ]

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """At the end the queue drops what is left."""
        try:
            yield
        finally:
            self._queue.close()

    async def languages(self, request: Request) -> Response:
        """GET /languages."""
        return _json(self._models.languages())

    async def health(self, request: Request) -> Response:
        """GET /health."""
        requests, lines = self._queue.size()
        models = [model.describe() for model in self._models]
        return _json({"status": "ok", "version": __version__, "models": models, "requests": requests, "lines": lines})

    async def translate(self, request: Request) -> Response:
        """POST /translate: LibreTranslate's format; each line of a text is translated as a separate sentence."""
        query = libre_query(*await self._body(request))
        texts = [[Line(line.removesuffix("\r")) for line in text.split("\n")] for text in query.texts]
        lines = [line for text in texts for line in text]
        self._limits.check(lines)
        model, detected = await self._model(request, query.source, query.target, lines)
        settings = _settings(request)
        if query.alternatives:
            settings = model.alternatives(settings, query.alternatives)
        found = iter((await self._translations(request, model, settings, lines))[1])
        results = [[next(found) for _ in text] for text in texts]
        answer = {"translatedText": query.answer([_joined(text, 0) for text in results])}
        if query.alternatives:
            answer["alternatives"] = query.answer([_alternatives(text, query.alternatives) for text in results])
        if detected is not None:
            answer["detectedLanguage"] = query.answer([detected] * len(texts))
        return _json(answer)

    async def translate_json(self, request: Request) -> Response:
        """POST /translate/json: the objects of `nmtalign translate --input-format json --format json`."""
        _, body = await self._body(request)
        given = json_body(body)
        lines = [make_request(value, where) for where, value in given.values]
        self._limits.check(lines)
        model, _ = await self._model(request, *_direction(request), lines)
        translator, found = await self._translations(request, model, _settings(request), lines)
        return _json_text(given.answer(await run_in_threadpool(translator.json_lines, found)))

    async def align(self, request: Request) -> Response:
        """POST /align: the objects of `nmtalign export --format json` for the alignments of the pairs."""
        _, body = await self._body(request)
        given = json_body(body)
        pairs = [pair_of(value, where) for where, value in given.values]
        for side in zip(*pairs, strict=True):
            self._limits.check([Line(text) for text in side])
        self._limits.check_weights(sum(len(source) * len(target) for source, target in pairs))
        model = self._models.only(*_direction(request))
        aligner = await run_in_threadpool(model.pairs, _settings(request))
        found = await self._done(request, aligner.align, list(enumerate(pairs)), [len(a) + len(b) for a, b in pairs])
        return _json_text(given.answer(found))

    async def detect(self, request: Request) -> Response:
        """POST /detect: the languages that the models read, the most probable one of the text first."""
        query = libre_query(*await self._body(request), only_text=True)
        found = await self._detected(request, "\n".join(query.texts), list(self._models))
        return _json([detected for _, detected in found])

    async def _body(self, request: Request) -> tuple[str, bytes]:
        """The type and the bytes of the body; a client that sends it too slowly is refused."""
        try:
            async with asyncio.timeout(self._seconds):
                return request.headers.get("content-type", ""), await self._limits.read(request)
        except TimeoutError:
            raise HTTPException(408, f"the request did not arrive within {self._seconds:g} seconds") from None

    async def _model(
        self, request: Request, source: str | None, target: str | None, lines: Sequence[Line]
    ) -> tuple[ServedModel, Mapping[str, Any] | None]:
        """The model of a direction, and the language that was detected if the source is `auto`."""
        if source != AUTO:
            return self._models.only(source, target), None
        text = "\n".join(line.text for line in lines)
        return (await self._detected(request, text, self._models.matching(source, target)))[0]

    async def _detected(
        self, request: Request, text: str, models: Sequence[ServedModel]
    ) -> list[tuple[ServedModel, Mapping[str, Any]]]:
        """The models by how well their vocabularies cover a text, the best first; one per source language."""
        by_language = {model.source: model for model in reversed(models)}
        shares = {
            model: (await self._done(request, model.coverage, [text], [len(text)]))[0] for model in by_language.values()
        }
        ranked = sorted(shares, key=lambda model: shares[model], reverse=True)
        return [(one, {"confidence": round(100 * shares[one][0], 1), "language": one.source}) for one in ranked]

    async def _translations(
        self, request: Request, model: ServedModel, settings: Settings, lines: Sequence[Line]
    ) -> tuple[LineTranslator, list[Translation]]:
        translator = await run_in_threadpool(model.lines, settings)
        sizes = [len(line.text) for line in lines]
        self._limits.check_weights(translator.matrices * sum(size * size for size in sizes))
        return translator, await self._done(request, translator.translate, list(enumerate(lines)), sizes)

    async def _done(self, request: Request, work: Work, items: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
        """The results of the queue; nothing waits for a client that has gone, or longer than the time limit."""
        future = asyncio.wrap_future(self._queue.submit(work, items, sizes))
        gone: asyncio.Future[Any] = asyncio.ensure_future(_until_gone(request))
        try:
            await asyncio.wait({future, gone}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            if gone.done():
                raise ClientDisconnect
            raise HTTPException(504, f"no result within {self._seconds:g} seconds; send fewer lines, or try later")
        except asyncio.CancelledError:
            request.app.state.unanswered += 1
            raise HTTPException(503, "the server is shutting down") from None
        finally:
            future.cancel()
            gone.cancel()


async def _until_gone(request: Request) -> None:
    """Waits until the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _direction(request: Request) -> tuple[str | None, str | None]:
    """The languages in the query, which choose one of several models."""
    return request.query_params.get("source"), request.query_params.get("target")


def _settings(request: Request) -> Settings:
    """The settings in the query."""
    found = dict(request.query_params)
    return tuple(sorted((name, value) for name, value in found.items() if name not in ("source", "target")))


def _joined(lines: Sequence[Translation], rank: int) -> str:
    """A translation of a text; a line with fewer translations has its best one."""
    return "\n".join(line.n_best[rank if rank < len(line.n_best) else 0].text for line in lines)


def _alternatives(lines: Sequence[Translation], count: int) -> list[str]:
    """Other translations of a text, all different."""
    found = dict.fromkeys(_joined(lines, rank) for rank in range(count + 1))
    return list(found)[1:]


def _json(value: Any, status: int = 200, headers: Mapping[str, str] = {}) -> Response:
    return _json_text(one_line(value) + "\n", status, headers)


def _json_text(text: str, status: int = 200, headers: Mapping[str, str] = {}) -> Response:
    return Response(text, status, {**_HEADERS, **headers}, "application/json")


def _file(name: str, kind: str) -> Endpoint:
    """An endpoint that answers with a file of the page."""
    text = resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")

    async def answer(request: Request) -> Response:
        return Response(text, headers={**_HEADERS, "content-security-policy": _POLICY}, media_type=kind)

    return answer


async def _refuse(request: Request, error: Any) -> Response:
    """Answers with the status of an HTTPException."""
    return _json({"error": error.detail}, error.status_code, error.headers or {})


async def _refuse_input(request: Request, error: Exception) -> Response:
    """Answers that the request is wrong, or that the machine lacks something."""
    return _json({"error": str(error)}, 400 if isinstance(error, InputError | UsageError) else 503)


async def _refuse_for_now(request: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 503, {"retry-after": "1"})


async def _leave(request: Request, error: Exception) -> Response:
    """The client has gone: only a log could show this answer."""
    return Response(status_code=499)
