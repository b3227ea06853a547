"""The server: LibreTranslate's addresses, JSON lines, alignments, health and a page to try it, on uvicorn.

docs/formats.md describes requests and responses. Settings are in the query, such as ?beam=5. The response to a
wrong request is {"error": "one sentence"}. Nothing in a request is trusted: its lines are counted before an object is
made of each.
"""

import asyncio
import contextlib
import math
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from urllib.parse import parse_qs

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from nmtalign.alignment.export_formats import json_line
from nmtalign.errors import InputError, NmtalignError, ResourceError, UsageError
from nmtalign.serving.batch_queue import BatchQueue, QueueFullError, Work
from nmtalign.serving.served_models import AUTO, Detected, LineTranslator, Query, ServedModel, ServedModels
from nmtalign.settings.command_settings import Markup, ServeConfig, host_names
from nmtalign.settings.definition import SettingError, byte_count, seconds
from nmtalign.text.lines import as_json, counted
from nmtalign.text.markup import first_texts, read_markup
from nmtalign.translating.documents import DocumentTexts
from nmtalign.translating.file_translation import checked_text, make_request, parse_line
from nmtalign.translating.requests import Request as Line
from nmtalign.translating.translator import Translation
from nmtalign.version import __version__
from nmtalign.viewing.page import page, part

_HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store"}
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - names, and no address to listen on
_CONNECTIONS = 1000  # more are refused
_DISCARDED = 16 << 20  # bytes beyond the limit that are read nevertheless: some clients read no answer while they send
_FORM = "application/x-www-form-urlencoded"
_LIBRE = 'write {"q": "...", "source": "en", "target": "fr"}'
_DIRECTION = "source", "target"  # in the query; the rest are settings
_CLEAR = 3.0  # a text is not translated if its log-odds for the target language are larger by this
_MOST_FIELDS = 10_000  # of a form
_MOST_TAGS = 50  # of HTML for each line, on average; reading a tag takes some 50 microseconds
_MOST_CELLS = 50_000_000  # weights if each character is a word: 1,000 lines of 220 characters
_TOO_LARGE = "the alignments would be too large; send fewer or shorter lines"
_MOST_WEIGHTS = 2_000_000  # weights in a response; they make its JSON 20 MB larger
_LONG_LINE = 1000  # characters, fewer with a wide beam; short lines do not wait for a longer one
_MOST_REQUIRED = 1000  # characters of the prefix and the phrases of a line, and 20 for each phrase


def bind(config: ServeConfig) -> socket.socket:
    """A socket that listens at the address of the settings; its connections wait until a server answers them.

    Raises ResourceError if this machine cannot listen there, such as on a taken port, SettingError for an unknown host.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            config.host or None, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address, family=family)
    except (socket.gaierror, UnicodeError):
        raise SettingError("there is no such address; give one of this machine", host=config.host) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower().partition(" (while")[0]
        fix = "give another --port (0 chooses a free one) or --host"
        raise ResourceError(f"cannot listen on {config.host}, port {config.port}: {reason}; {fix}") from None


def url_of(bound: socket.socket) -> str:
    """The address of the page; a server that listens on all addresses is named by that of this machine."""
    address, port = bound.getsockname()[:2]
    return f"http://{_in_url(_ANY_ADDRESS.get(address, address))}:{port}/"


def _in_url(host: str) -> str:
    """A name or an address as the addresses of pages contain it."""
    return f"[{host}]" if ":" in host else host


class _TimedProtocol(H11Protocol):
    """HTTP that closes a connection without a complete request header, or with an unread response, after a time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # A response is written in two parts. Without this the second one waits for the client, up to 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._begin_to_wait()

    def on_response_complete(self) -> None:
        self._begin_to_wait()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        if self.cycle is not None:
            self.cycle.disconnected = True  # this is the only response to a request whose body is not HTTP

    def _begin_to_wait(self) -> None:
        self.loop.call_later(self.config.timeout_keep_alive, self._expire, self.cycle)

    def _expire(self, cycle: object) -> None:
        if self.cycle is cycle and self in self.connections:  # no further request has begun, and it is not closed
            self.transport.abort()


async def answer(server: Server, bound: socket.socket, notify: Callable[[str], None]) -> None:
    """Answers requests until the server ends; reports errors of connections once, which could fill a log otherwise."""
    once = lru_cache(notify)
    asyncio.get_running_loop().set_exception_handler(lambda _, one: once(f"{one['message']}: {one.get('exception')}"))
    await server.serve([bound])


def make_server(application: Starlette, config: ServeConfig) -> Server:
    """uvicorn with the settings of section [serve]."""
    return Server(
        Config(
            application,
            http=_TimedProtocol,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,  # the application reports its errors itself
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=max(1, round(seconds("time_limit", config.time_limit))),
            timeout_graceful_shutdown=max(1, round(seconds("shutdown_time", config.shutdown_time))),
        )
    )


def make_application(
    models: ServedModels, config: ServeConfig, notify: Callable[[str], None], *hosts: str
) -> Starlette:
    """The ASGI application; `notify` gets one line of text for an error inside the server.

    `hosts` are other names of the host of the settings: 127.2 is 127.0.0.2.
    """
    service = _Service(models, config, hosts)
    cors = Middleware(CORSMiddleware, allow_origin_regex=service.sites, allow_methods=["POST"], allow_headers=["*"])

    async def refuse(request: Request, error: Any) -> Response:
        if isinstance(error, HTTPException):
            return _json({"error": error.detail}, error.status_code, error.headers or {})
        if not isinstance(error, NmtalignError | ClientDisconnect):
            notify(f"{request.method} {request.url.path}: {type(error).__name__}: {error}")
            return _json({"error": "an error inside the server, which reports it"}, 500)
        # No client reads 499, which only a log could show. With 503 the machine lacks something.
        gone, wrong = isinstance(error, ClientDisconnect), isinstance(error, InputError | UsageError)
        later = {"retry-after": "1"} if isinstance(error, QueueFullError) else {}
        return _json({"error": str(error)}, 499 if gone else 400 if wrong else 503, later)

    return Starlette(
        routes=list(service.routes()),
        middleware=[cors],
        exception_handlers=dict.fromkeys((HTTPException, NmtalignError, ClientDisconnect, Exception), refuse),
        lifespan=service.lifespan,
    )


class _Service:
    """The endpoints: they check requests, and give the lines to a queue."""

    def __init__(self, models: ServedModels, config: ServeConfig, hosts: Sequence[str]) -> None:
        self._models, self._config = models, config
        self._queue, self._long_lines = BatchQueue(config.max_queue), BatchQueue(config.max_queue)
        self._most_bytes, self._seconds = byte_count("max_body", config.max_body), seconds("", config.time_limit)
        names = host_names("allowed_hosts", config.allowed_hosts)
        own = ["*"] if config.host in _ANY_ADDRESS else map(_in_url, (config.host, *hosts))
        self._hosts = _pattern([*_LOOPBACK, *names, *own])
        self.sites = rf"[\w+.-]+://{_pattern([name for name in names if name != '*'])}"  # their pages may ask
        self._page = "".join(page("nmtalign", part("translate.html"), ["translate.js"], connect="'self'"))

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """At the end the queues drop what is left."""
        try:
            yield
        finally:
            self._queue.close()
            self._long_lines.close()

    def routes(self) -> Iterator[Route]:
        """The addresses, each with and without a slash at its end: clients of LibreTranslate write both."""
        posts = {"translate": self.translate, "translate/json": self.translate_json}
        posts |= {"detect": self.detect, "align": self.align}
        gets = {"languages": self.languages, "health": self.health}
        yield Route("/", partial(self._answer, self.page))
        for method, endpoints in (("POST", posts), ("GET", gets)):
            for path, endpoint in endpoints.items():
                answer = partial(self._answer, endpoint)
                yield from (Route(address, answer, methods=[method]) for address in (f"/{path}", f"/{path}/"))

    async def _answer(self, endpoint: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        host = request.headers.get("host", _LOOPBACK[0])  # each browser sends it; HTTP/1.0 of a proxy may not
        if not re.fullmatch(self._hosts, host):
            raise HTTPException(400, f"{host!r} is no name of this server; allow it with --set allowed_hosts=NAME")
        return await endpoint(request)

    async def page(self, request: Request) -> Response:
        """GET /: the page, whose own policy runs only its script; no other site may frame it."""
        headers = {**_HEADERS, "content-security-policy": "frame-ancestors 'none'"}
        return Response(self._page, headers=headers, media_type="text/html")

    async def languages(self, request: Request) -> Response:
        return _json(self._models.languages())

    async def health(self, request: Request) -> Response:
        requests, lines = map(sum, zip(self._queue.size(), self._long_lines.size(), strict=True))
        models = [one.describe() for one in (*self._models.models, *self._models.aligners)]
        return _json({"status": "ok", "version": __version__, "models": models, "requests": requests, "lines": lines})

    async def translate(self, request: Request) -> Response:
        """POST /translate: LibreTranslate's format; each line of a text is translated as a separate sentence."""
        texts, is_list, fields = await self._libre(request)
        languages = [checked_text(fields.get(name, ""), f'"{name}"') for name in ("source", "target")]
        if "" in languages:
            raise InputError('"source" and "target" must be languages, such as "en" and "fr"')
        (source, target), count = languages, _count(fields.get("alternatives"))
        is_html = fields.get("format") == "html"
        if count and is_html:
            raise InputError('"alternatives" are for "format": "text"')
        tags, most = sum(text.count("<") for text in texts) if is_html else 0, _MOST_TAGS * self._config.max_lines
        _limit(tags, most, f"{tags:,} tags: send at most {most:,} in one request")
        words = await run_in_threadpool(list, map(first_texts, texts)) if is_html and source == AUTO else texts
        models, detected = await self._models_of(request, source, target, words)
        if is_html:
            texts, models = await self._documents(request, models, texts), [None] * len(texts)
        own = [
            [(model, Line(line.removesuffix("\r"))) for line in text.split("\n")] if model is not None else []
            for model, text in zip(models, texts, strict=True)
        ]
        done = await self._translations(request, [line for text in own for line in text], count)
        found = (one for _, one in done)
        results = [[next(found) for _ in lines] for lines in own]
        best = [_joined(lines, 0) if lines else text for lines, text in zip(results, texts, strict=True)]
        answer: dict[str, Sequence[Any]] = {"translatedText": best}
        if count:
            others = [dict.fromkeys(_joined(lines, rank) for rank in range(count + 1)) for lines in results]
            answer["alternatives"] = [list(one)[1:] for one in others]
        if source == AUTO:
            answer["detectedLanguage"] = detected
        return _json(answer if is_list else {name: values[0] for name, values in answer.items()})

    async def translate_json(self, request: Request) -> Response:
        """POST /translate/json: the objects of `nmtalign translate --set input_format=json --format json`."""
        given, is_list = await self._json_values(request, make_request)
        source, target = _direction(request)
        if source == AUTO:
            models = [model for model, _ in await self._detected(request, [line.text for line in given], target)]
        else:
            models = [self._models.only(source, target)] * len(given)
        found = await self._translations(request, list(zip(models, given, strict=True)))
        _limit(sum(translator.weights(one) for translator, one in found), _MOST_WEIGHTS, _TOO_LARGE)
        lines = (translator.json_line(number, one) for number, (translator, one) in enumerate(found))
        return await run_in_threadpool(_json_lines, lines, is_list)

    async def align(self, request: Request) -> Response:
        """POST /align: the objects of `nmtalign export --format json` for the alignments of the pairs."""
        pairs, is_list = await self._json_values(request, _pair_of)
        for side in zip(*pairs, strict=True):
            self._check(enumerate(map(Line, side)))
        sizes = [max(map(len, pair)) for pair in pairs]
        _limit(sum(size * size for size in sizes), _MOST_CELLS, _TOO_LARGE)
        model = self._models.aligner(*_direction(request))
        work, config = await run_in_threadpool(model.pairs, _settings(request))
        found = await self._done(request, self._queue, work, list(enumerate(pairs)), [2 * size for size in sizes])
        _limit(sum(record.weights.size for record in found), _MOST_WEIGHTS, _TOO_LARGE)
        lines = (json_line(record, config.alignment_type) for record in found)
        return await run_in_threadpool(_json_lines, lines, is_list)

    async def detect(self, request: Request) -> Response:
        """POST /detect: the languages of the models, the most probable one of the text first."""
        texts, _, _ = await self._libre(request)
        ((_, odds),) = await self._detected(request, ["\n".join(texts)], None)
        return _json([_detection(language, odds) for language in odds])

    # Bodies: read within limits, and parsed.

    async def _body(self, request: Request) -> str:
        """The body as text; refuses a client that sends it too slowly, a large body, and pages of other sites."""
        if _is_foreign(request, self.sites):
            fix = "name its host with --set allowed_hosts=NAME to let it in"
            raise HTTPException(403, f"this is a page of another site; {fix}")
        if request.headers.get("content-encoding", "identity") != "identity":
            raise HTTPException(415, "compressed bodies are not read: send the body as it is")
        body, size, most = bytearray(), 0, self._most_bytes
        length, fault = request.headers.get("content-length", "")[:18], f"the body is larger than {most} bytes"
        _limit(int(length) if length.isdecimal() else 0, most + _DISCARDED, fault)
        try:
            async with asyncio.timeout(self._seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size <= most:
                        body += chunk
                    elif size > most + _DISCARDED:
                        break
        except TimeoutError:
            raise HTTPException(408, f"the request did not arrive within {self._seconds:g} seconds") from None
        _limit(size, most, fault)
        try:
            return body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            at = f"byte 0x{body[error.start]:02x} at position {error.start}"
            raise InputError(f"the body is not UTF-8: {at}") from None

    async def _libre(self, request: Request) -> tuple[list[str], bool, Mapping[str, Any]]:
        """The texts of a body of LibreTranslate, JSON or a form; whether they are a list; and all fields."""
        text, kind = await self._body(request), request.headers.get("content-type", "").lower()
        if kind.startswith("multipart/"):
            raise HTTPException(415, f"multipart forms are not read: send application/json or {_FORM}")
        if kind.startswith(_FORM) and not text.lstrip().startswith("{"):  # curl -d names JSON a form
            self._check_count(text.lower().count("%0a"))  # line breaks, without which a form has at least one line
            try:
                found = parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
            except ValueError as error:
                raise InputError(f"the form is not readable: {error}") from None
            fields = {name: values if name == "q" and len(values) > 1 else values[-1] for name, values in found.items()}
        else:
            fields = await run_in_threadpool(parse_line, text, "the body", _LIBRE)
        if not isinstance(fields, dict):
            raise InputError(f"the body: not an object; {_LIBRE}")
        if "q" not in fields:
            raise InputError('"q" is missing: give the text, or a list of texts (/translate/json reads "text")')
        if fields.get("format") not in (None, "", "text", "html"):
            raise InputError('"format" must be "text" or "html"')
        is_list = isinstance(fields["q"], list)
        given = fields["q"] if is_list else [fields["q"]]
        self._check_count(len(given))
        texts = [checked_text(text, '"q"') for text in given]
        if fields.get("format") != "html":  # the texts of HTML are counted when they are found
            self._check_count(sum(text.count("\n") + 1 for text in texts))
        return texts, is_list, fields

    async def _json_values(self, request: Request, make: Callable[[Any, str], Any]) -> tuple[list[Any], bool]:
        """The values of a list in JSON, or of one value per line, and whether they are a list.

        `make` turns a value into what the caller needs; it gets the place for messages, too. A blank line is a blank
        text. One value may extend over several lines.
        """
        text = (await self._body(request)).removesuffix("\n")
        lines, is_list = text.split("\n"), text.lstrip().startswith("[")
        if not text.strip():
            raise InputError("the body is empty: send JSON objects, one per line or in a list")
        try:
            if not (is_list or (lines[0].strip() and lines[-1].strip())):  # a blank line at an end is a line
                raise InputError("several lines")
            value = await run_in_threadpool(parse_line, text, "the body" if len(lines) > 1 else "line 1")
        except InputError:
            if len(lines) == 1 or is_list:
                raise
            self._check_count(len(lines))
            places = [(f"line {number}", line) for number, line in enumerate(lines, 1)]
            values = [(place, parse_line(line, place) if line.strip() else {"text": ""}) for place, line in places]
        else:
            self._check_count(len(value) if is_list else 1)
            values = [(f"entry {n}", one) for n, one in enumerate(value, 1)] if is_list else [("line 1", value)]
        return [make(one, place) for place, one in values], is_list

    def _check_count(self, lines: int) -> None:
        most = self._config.max_lines
        _limit(lines, most, f"{counted(lines, 'line')}: send at most {most:,} in one request")

    def _check(self, lines: Any, work: float = 1.0) -> list[int]:
        """Refuses a numbered line that is too long, or requires too many words; returns the sizes of the lines.

        With a search that does `work` times as much as usual, a line may have fewer characters by this factor. The time
        of a step grows with the square of the number of phrases.
        """
        most, sizes = int(self._config.max_characters / work), list[int]()
        for number, line in lines:
            cause = ", the most with so wide a search" if work > 1 else ""
            _limit(len(line.text), most, f"line {number + 1}: longer than {most} characters{cause}")
            required = len(line.prefix) + sum(len(phrase) + 20 for phrase in line.phrases)
            rule = f"the prefix and the phrases have more than {_MOST_REQUIRED} characters; each phrase counts 20 more"
            _limit(required, _MOST_REQUIRED, f"line {number + 1}: {rule}")
            sizes.append(round((len(line.text) + required**2 // 50) * work))
        return sizes

    # Lines and models: what the queues do.

    async def _models_of(
        self, request: Request, source: str, target: str, texts: Sequence[str]
    ) -> tuple[Sequence[ServedModel | None], Sequence[Mapping[str, Any]]]:
        """The model of each text, None if it is in the target language already; with `auto` also what was detected."""
        if source != AUTO:
            one = None if self._models.same(source, target) else self._models.only(source, target)
            return [one] * len(texts), []
        chosen, detected = list[ServedModel | None](), list[Mapping[str, Any]]()
        for model, odds in await self._detected(request, texts, target):
            is_target = odds[model.target] > odds[model.source] + _CLEAR
            chosen.append(None if is_target else model)
            detected.append(_detection(model.target if is_target else model.source, odds))
        return chosen, detected

    async def _detected(self, request: Request, texts: Sequence[str], target: str | None) -> list[Detected]:
        asked, sizes = [(one, target) for one in texts], list(map(len, texts))
        return await self._done(request, self._queue, self._models.detected, asked, sizes)

    async def _documents(
        self, request: Request, models: Sequence[ServedModel | None], pages: Sequence[str]
    ) -> list[str]:
        """The translations of pages of HTML by the models; a page without a model stays as it is."""
        parts = (
            read_markup(text.encode(), "html", (model.source, model.target)) if model else [text]
            for model, text in zip(models, pages, strict=True)
        )
        work = await run_in_threadpool(DocumentTexts, parts, next((one.aligner for one in models if one), ""))
        while lines := work.lines():
            self._check_count(len(lines))
            own = [(model, Line(text)) for (number, _), text in lines if (model := models[number])]
            _, found = zip(*await self._translations(request, own, markup="html"), strict=True)
            await run_in_threadpool(list, map(work.add, dict(lines), found))
        return await run_in_threadpool(work.documents)

    async def _translations(
        self,
        request: Request,
        lines: Sequence[tuple[ServedModel, Line]],
        alternatives: int = 0,
        markup: Markup | None = None,
    ) -> list[tuple[LineTranslator, Translation]]:
        """The translations of lines by their models."""
        found = dict[int, tuple[LineTranslator, Translation]]()
        for model in dict.fromkeys(model for model, _ in lines):
            own = [(number, line) for number, (other, line) in enumerate(lines) if other is model]
            translator = await run_in_threadpool(model.lines, _settings(request), markup, alternatives)
            sizes = self._check(own, translator.work)
            _limit(round(translator.matrices * sum(len(line.text) ** 2 for _, line in own)), _MOST_CELLS, _TOO_LARGE)
            queue = self._long_lines if max(sizes) > _LONG_LINE else self._queue
            done = await self._done(request, queue, translator.translate, own, sizes)
            found |= {number: (translator, one) for (number, _), one in zip(own, done, strict=True)}
        return [found[number] for number in range(len(lines))]

    async def _done(
        self, request: Request, queue: BatchQueue, work: Work, items: Sequence[Any], sizes: Sequence[int]
    ) -> list[Any]:
        """The results of a queue; nothing waits for a client that has gone, or longer than the time limit."""
        future = asyncio.wrap_future(queue.submit(work, items, sizes))
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


def _is_foreign(request: Request, sites: str) -> bool:
    """Whether a browser sends the request for a page of another site than the server, and of none of these sites.

    Other programs send neither header. Browsers send Sec-Fetch-Site only over HTTPS and on this machine, and Origin
    with each POST. Behind a proxy the host of the request may be another one than that of the page.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site in ("same-origin", "none") or site is None is origin:
        return False
    page = (origin or "").lower().partition("://")[2]
    return page != request.headers.get("host", "").lower() and not re.fullmatch(sites, origin or "")


def _pattern(names: Iterable[str]) -> str:
    """A regular expression for hosts with these names, with or without a port; `*` is any name or its beginning."""
    any_of = "|".join(re.escape(name).replace(r"\*", "[^/]*") for name in names)
    return rf"(?i:{any_of})(?::\d+)?"


async def _until_gone(request: Request) -> None:
    """Waits until the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _limit(count: int, most: int, fault: str) -> None:
    """Refuses a request with more of something than it may have."""
    if count > most:
        raise HTTPException(413, fault)


def _pair_of(value: Any, where: str) -> tuple[str, str]:
    """The lines of a pair to align; raises InputError, which begins with `where`."""
    if not isinstance(value, dict) or "source" not in value or "target" not in value:
        raise InputError(f'{where}: not a pair; write {{"source": "...", "target": "..."}}')
    return checked_text(value["source"], f'{where}: "source"'), checked_text(value["target"], f'{where}: "target"')


def _count(value: Any) -> int:
    """The number of alternatives, which is a text in a form."""
    text = "" if value is None else str(value)
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InputError('"alternatives" must be a number such as 3')
    return int(text or 0)


def _detection(language: str, odds: Mapping[str, float]) -> Mapping[str, Any]:
    """One of the languages of a text, given their log-odds against one that no model knows, as LibreTranslate."""
    share = math.exp(odds[language] - np.logaddexp.reduce([0.0, *odds.values()]))
    return {"confidence": round(100 * share, 1), "language": language}


def _direction(request: Request) -> Iterator[str | None]:
    """The languages in the query, which choose one of several models."""
    return (request.query_params.get(name) for name in _DIRECTION)


def _settings(request: Request) -> Query:
    """The settings in the query, sorted."""
    return tuple(sorted(one for one in request.query_params.items() if one[0] not in _DIRECTION))


def _joined(lines: Sequence[Translation], rank: int) -> str:
    """A translation of a text; a line with fewer translations has its best one."""
    return "\n".join(line.n_best[rank if rank < len(line.n_best) else 0].text for line in lines)


def _json(value: Any, status: int = 200, headers: Mapping[str, str] = {}) -> Response:
    return Response(as_json(value) + "\n", status, {**_HEADERS, **headers}, "application/json")


def _json_lines(lines: Iterable[str], is_list: bool) -> Response:
    """Values as a list, or one per line, as the client gave them."""
    text = f"[{', '.join(lines)}]\n" if is_list else "".join(f"{line}\n" for line in lines)
    return Response(text, 200, _HEADERS, "application/json")
