"""The ASGI application of a server: LibreTranslate's addresses, JSON lines, alignments, health and a page to try it.

docs/formats.md describes requests and responses. Settings are in the query, such as ?beam=5. The response to a
wrong request is {"error": "one sentence"}.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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
from nmtalign.serving.served_models import AUTO, LanguageFit, LineTranslator, ServedModel, ServedModels, Settings
from nmtalign.settings.command_settings import ServeConfig, host_names
from nmtalign.settings.definition import seconds
from nmtalign.translating.file_translation import make_request, one_line
from nmtalign.translating.requests import Request as Line
from nmtalign.translating.translator import Translation
from nmtalign.version import __version__
from nmtalign.viewing.page import page, part

Endpoint = Callable[[Request], Awaitable[Response]]

_HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store"}
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - names, and no address to listen on


def make_application(models: ServedModels, config: ServeConfig, notify: Callable[[str], None]) -> Starlette:
    """The application; `notify` gets one line of text for an error inside the server."""
    for model in models:
        model.prepare()
    service = _Service(models, config)

    async def refuse(request: Request, error: Any) -> Response:
        status, text, headers = 503, str(error), dict[str, str]()
        match error:
            case HTTPException():
                status, text, headers = error.status_code, error.detail, dict(error.headers or {})
            case QueueFullError():
                headers = {"retry-after": "1"}
            case InputError() | UsageError():
                status = 400
            case ClientDisconnect():  # only a log could show this answer
                status = 499
            case NmtalignError():  # the machine lacks something
                pass
            case _:
                notify(f"{request.method} {request.url.path}: {type(error).__name__}: {error}")
                status, text = 500, "an error inside the server, which reports it"
        return _json({"error": text}, status, headers)

    hosts = [*_LOOPBACK, *host_names("allowed_hosts", config.allowed_hosts)]
    hosts.append("*" if config.host in _ANY_ADDRESS else f"[{config.host}]" if ":" in config.host else config.host)
    return Starlette(
        routes=service.routes(),
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)],
        exception_handlers=dict.fromkeys((HTTPException, NmtalignError, ClientDisconnect, Exception), refuse),
        lifespan=service.lifespan,
    )


class _Service:
    """The endpoints: they check requests, and give the lines to the queue."""

    def __init__(self, models: ServedModels, config: ServeConfig) -> None:
        self._models = models
        self._queue, self._limits = BatchQueue(config.max_queue), BodyLimits(config)
        self._seconds = seconds("time_limit", config.time_limit)
        self._names = host_names("allowed_hosts", config.allowed_hosts)

    def routes(self) -> list[Route]:
        """The addresses."""
        posts = {
            "/translate": self.translate,
            "/translate/json": self.translate_json,
            "/detect": self.detect,
            "/align": self.align,
        }
        gets: dict[str, Endpoint] = {"/languages": self.languages, "/health": self.health}
        gets["/"] = _page()
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
        query = await run_in_threadpool(libre_query, *await self._body(request), self._limits)
        models, detected = await self._models_of(request, query.source, query.target, query.texts)
        texts = [
            [(model, Line(line.removesuffix("\r"))) for line in text.split("\n")] if model is not None else []
            for model, text in zip(models, query.texts, strict=True)
        ]
        lines = [line for text in texts for line in text]
        found = iter([one for _, one in await self._translations(request, lines, query.alternatives)])
        results = [[next(found) for _ in text] for text in texts]
        best = [_joined(own, 0) if own else text for own, text in zip(results, query.texts, strict=True)]
        answer = {"translatedText": query.answer(best)}
        if query.alternatives:
            answer["alternatives"] = query.answer([_alternatives(text, query.alternatives) for text in results])
        if query.source == AUTO:
            answer["detectedLanguage"] = query.answer(detected)
        return _json(answer)

    async def translate_json(self, request: Request) -> Response:
        """POST /translate/json: the objects of `nmtalign translate --set input_format=json --format json`."""
        _, body = await self._body(request)
        given = await run_in_threadpool(json_body, body, self._limits, make_request)
        source, target = _direction(request)
        if source == AUTO:
            texts = [line.text for line in given.values]
            models = [model for model, _ in await self._detected(request, texts, target)]
        else:
            models = [self._models.only(source, target)] * len(given.values)
        found = await self._translations(request, list(zip(models, given.values, strict=True)))
        self._limits.check_weights(sum(translator.weights(one) for translator, one in found))
        lines = await run_in_threadpool(
            lambda: [translator.json_line(number, one) for number, (translator, one) in enumerate(found)]
        )
        return _json_text(given.answer(lines))

    async def align(self, request: Request) -> Response:
        """POST /align: the objects of `nmtalign export --format json` for the alignments of the pairs."""
        _, body = await self._body(request)
        given = await run_in_threadpool(json_body, body, self._limits, pair_of)
        pairs = given.values
        for side in zip(*pairs, strict=True):
            self._limits.check(enumerate(map(Line, side)))
        sizes = [max(map(len, pair)) for pair in pairs]
        self._limits.check_cells(sum(size * size for size in sizes))
        model = self._models.only(*_direction(request))
        aligner = await run_in_threadpool(model.pairs, _settings(request))
        found = await self._done(request, aligner.align, list(enumerate(pairs)), [2 * size for size in sizes])
        self._limits.check_weights(sum(record.weights.size for record in found))
        return _json_text(given.answer(await run_in_threadpool(aligner.json_lines, found)))

    async def detect(self, request: Request) -> Response:
        """POST /detect: the languages of the models, the most probable one of the text first."""
        query = await run_in_threadpool(libre_query, *await self._body(request), self._limits, only_text=True)
        text, known = "\n".join(query.texts), dict[str, tuple[float, int]]()
        found = [(model, (await self._fits(request, model, [text]))[0]) for model in self._models]
        of_sources = [(model.source, fit.source) for model, fit in found]
        for language, share in of_sources + [(model.target, fit.target) for model, fit in found]:
            known[language] = max(share, known.get(language, share))
        return _json([_detection(one, known[one]) for one in sorted(known, key=lambda one: known[one], reverse=True)])

    async def _body(self, request: Request) -> tuple[str, bytes]:
        """The type and the bytes of the body; refuses a client that sends it too slowly, and pages of other sites."""
        if _is_foreign(request, self._names):
            raise HTTPException(
                403, "this is a page of another site; name its host with --set allowed_hosts=NAME to let it in"
            )
        try:
            async with asyncio.timeout(self._seconds):
                return request.headers.get("content-type", ""), await self._limits.read(request)
        except TimeoutError:
            raise HTTPException(408, f"the request did not arrive within {self._seconds:g} seconds") from None

    async def _models_of(
        self, request: Request, source: str, target: str, texts: Sequence[str]
    ) -> tuple[Sequence[ServedModel | None], Sequence[Mapping[str, Any]]]:
        """The model of each text, None if it is in the target language already; with `auto` also what was detected."""
        if source != AUTO:
            one = None if self._models.same(source, target) else self._models.only(source, target)
            return [one] * len(texts), []
        found = await self._detected(request, texts, target)
        detected = [
            _detection(model.target, fit.target) if fit.is_target else _detection(model.source, fit.source)
            for model, fit in found
        ]
        return [None if fit.is_target else model for model, fit in found], detected

    async def _detected(
        self, request: Request, texts: Sequence[str], target: str | None
    ) -> list[tuple[ServedModel, LanguageFit]]:
        """For each text the model into the target language that knows it best."""
        models = self._models.matching(AUTO, target)
        each = [await self._fits(request, model, texts) for model in models]
        return [max(zip(models, own, strict=True), key=lambda one: one[1].source) for own in zip(*each, strict=True)]

    async def _fits(self, request: Request, model: ServedModel, texts: Sequence[str]) -> list[LanguageFit]:
        return await self._done(request, model.fits, texts, list(map(len, texts)))

    async def _translations(
        self, request: Request, lines: Sequence[tuple[ServedModel, Line]], alternatives: int = 0
    ) -> list[tuple[LineTranslator, Translation]]:
        """The translations of lines by their models."""
        found = dict[int, tuple[LineTranslator, Translation]]()
        for model in dict.fromkeys(model for model, _ in lines):
            own = [(number, line) for number, (other, line) in enumerate(lines) if other is model]
            settings = _settings(request)
            settings = model.alternatives(settings, alternatives) if alternatives else settings
            translator = await run_in_threadpool(model.lines, settings)
            self._limits.check(own, translator.work)
            sizes = [len(line.text) for _, line in own]
            self._limits.check_cells(translator.matrices * sum(size * size for size in sizes))
            work = [round(size * translator.work) for size in sizes]
            done = await self._done(request, translator.translate, own, work)
            found |= {number: (translator, one) for (number, _), one in zip(own, done, strict=True)}
        return [found[number] for number in range(len(lines))]

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
            raise HTTPException(503, "the server is shutting down") from None
        finally:
            future.cancel()
            gone.cancel()


def _is_foreign(request: Request, names: Sequence[str]) -> bool:
    """Whether a browser sends the request for a page of another site than the server, and not of one with these names.

    Other programs send neither header. Browsers send Sec-Fetch-Site only over HTTPS and on this machine, and Origin
    with each POST. Behind a proxy the host of the request may be another one than that of the page.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site in ("same-origin", "none") or site is None is origin:
        return False
    page = (origin or "").lower().partition("://")[2]
    host = page if page.endswith("]") else page.rpartition(":")[0] or page
    named = (host == name or (name.startswith("*.") and host.endswith(name[1:])) for name in map(str.lower, names))
    return page != request.headers.get("host", "").lower() and not any(named)


async def _until_gone(request: Request) -> None:
    """Waits until the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _detection(language: str, known: tuple[float, int]) -> Mapping[str, Any]:
    """A detected language in the format of LibreTranslate."""
    return {"confidence": round(100 * known[0], 1), "language": language}


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


def _page() -> Endpoint:
    """An endpoint that answers with the page, whose own policy runs only its script; no other site may frame it."""
    text = "".join(page("nmtalign", part("translate.html"), ["translate.js"], connect="'self'"))

    async def answer(request: Request) -> Response:
        headers = {**_HEADERS, "content-security-policy": "frame-ancestors 'none'"}
        return Response(text, headers=headers, media_type="text/html")

    return answer
