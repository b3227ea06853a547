"""The HTTP server: an address, uvicorn with limits of time, and an orderly end."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

from starlette.applications import Starlette
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from nmtalign.errors import ResourceError
from nmtalign.settings.command_settings import ServeConfig
from nmtalign.settings.definition import SettingError, seconds

_CONNECTIONS = 1000  # more are refused
_SILENT: dict[str, Any] = {  # the application reports its errors itself
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"none": {"class": "logging.NullHandler"}},
    "loggers": {"uvicorn": {"handlers": ["none"], "propagate": False}},
}


def bind(config: ServeConfig) -> socket.socket:
    """A socket that listens at the address of the settings; its connections wait until a server answers them.

    Raises ResourceError if the port is taken or needs other rights, SettingError for a host that this machine has not.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            config.host or None, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise SettingError("there is no such address; give one of this machine", host=config.host) from None
    found = socket.socket(family, kind)
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # Windows, where the other option lets two servers share a port
            found.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen()  # until then, another process can bind to the same port
    except OSError as error:
        found.close()
        reason = (error.strerror or str(error)).lower()
        raise ResourceError(
            f"cannot listen on {config.host}, port {config.port}: {reason}; give another --port (0 chooses a free one) "
            "or --host"
        ) from None
    return found


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
    """Serves an application on a socket until `stop`."""

    def __init__(self, application: Starlette, config: ServeConfig, bound: socket.socket) -> None:
        limit = seconds("time_limit", config.time_limit)
        super().__init__(
            Config(
                application,
                http=_protocol(limit),
                ws="none",
                loop="asyncio",
                lifespan="on",
                log_config=_SILENT,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_CONNECTIONS,
                timeout_graceful_shutdown=max(1, round(seconds("shutdown_time", config.shutdown_time))),
            )
        )
        self._application, self._bound, self._host = application, bound, config.host
        self._ready: Callable[[], None] = lambda: None

    @property
    def url(self) -> str:
        """The address of the page; a server that listens on all addresses is named by that of this machine."""
        address, port = self._bound.getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, self._host)  # noqa: S104
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    @property
    def unanswered(self) -> int:
        """The number of requests that were dropped at the end."""
        return int(self._application.state.unanswered)

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        host = str(self._bound.getsockname()[0])
        return host.startswith("127.") or host == "::1"

    def serve_until_stopped(self, ready: Callable[[], None]) -> None:
        """Serves; calls `ready` as soon as requests are answered."""
        self._ready = ready
        with self._bound:
            self.run(sockets=[self._bound])

    def stop(self) -> None:
        """Accepts no more connections, answers what waits, and ends; another thread or a signal may call this."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen."""
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the caller."""
        yield
