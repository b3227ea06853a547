"""The HTTP server: uvicorn on an address, with limits of time for slow clients."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from nmtalign.errors import ResourceError, UsageError
from nmtalign.serving.application import make_application
from nmtalign.serving.served_models import ServedModels
from nmtalign.settings.command_settings import AlignConfig, ServeConfig, TranslateConfig
from nmtalign.settings.definition import SettingError, seconds
from nmtalign.translating.translator import Translator, load_models

_CONNECTIONS = 1000  # more are refused


def run_server(
    models: Sequence[str | Path],
    config: ServeConfig,
    translate: TranslateConfig,
    align: AlignConfig,
    notify: Callable[[str], None],
    ready: Callable[[str, str], None],
) -> None:
    """Serves models, one per direction, until SIGINT or SIGTERM; `ready` gets the address and the directions.

    The address is taken before the models are loaded, which takes seconds. Requests that come meanwhile wait.
    """
    if (translate.lexicon or translate.glossary) and len(models) > 1:
        raise UsageError("a lexicon or glossary is for one direction: serve only one model with it")
    with bind(config) as bound:
        served = ServedModels([Translator(loaded, translate) for loaded in load_models(models, translate)], align)
        for notice in served.notices():
            notify(notice)
        directions = ", ".join(f"{one.source}-{one.target}" for one in served)

        def started() -> None:
            ready(server.url, directions)
            host = str(bound.getsockname()[0])
            if not (host.startswith("127.") or host == "::1"):
                notify("other machines can reach this server, and it has no password")

        server = HttpServer(make_application(served, config, notify), config, bound, started)
        server.run([bound])


def bind(config: ServeConfig) -> socket.socket:
    """A socket that listens at the address of the settings; its connections wait until a server answers them.

    Raises ResourceError if the port is taken or needs other rights, SettingError for a host that this machine has not.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            config.host or None, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family)
    except (socket.gaierror, UnicodeError):
        raise SettingError("there is no such address; give one of this machine", host=config.host) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower().partition(" (while")[0]
        raise ResourceError(
            f"cannot listen on {config.host}, port {config.port}: {reason}; give another --port (0 chooses a free one) "
            "or --host"
        ) from None


def _protocol(limit: float) -> type[H11Protocol]:
    """HTTP that closes a connection without a complete request header, or with an unread response, after a time."""

    class TimedProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._restart()

        def on_response_complete(self) -> None:
            self._restart()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

        def _restart(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(limit, self._expire, self.cycle)

        def _expire(self, cycle: object) -> None:
            if self.cycle is cycle:  # no further request has begun
                self.transport.abort()

    return TimedProtocol


class HttpServer(Server):
    """uvicorn with the settings of section [serve]; `ready` is called as soon as it answers."""

    def __init__(
        self, application: Starlette, config: ServeConfig, bound: socket.socket, ready: Callable[[], None]
    ) -> None:
        super().__init__(
            Config(
                application,
                http=_protocol(seconds("time_limit", config.time_limit)),
                ws="none",
                loop="asyncio",
                lifespan="on",
                log_config=None,  # the application reports its errors itself
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_CONNECTIONS,
                timeout_graceful_shutdown=max(1, round(seconds("shutdown_time", config.shutdown_time))),
            )
        )
        self._bound, self._host, self._ready = bound, config.host, ready

    @property
    def url(self) -> str:
        """The address of the page; a server that listens on all addresses is named by that of this machine."""
        address, port = self._bound.getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, self._host)  # noqa: S104
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    async def startup(self, sockets: Any = None) -> None:
        """Begins to answer."""
        await super().startup(sockets)
        self._ready()
