"""A server of nmtalign in a thread of the test, and a client that asks it over a real connection."""

import asyncio
import contextlib
import json
import math
import threading
import urllib.error
import urllib.request
from urllib.parse import urlencode, urlsplit

from nmtalign.alignment.word_aligner import load_aligner
from nmtalign.files import is_aligner
from nmtalign.serving.application import answer, bind, make_application, make_server, url_of
from nmtalign.serving.served_models import ServedModels
from nmtalign.settings.command_settings import AlignConfig, ServeConfig
from nmtalign.translating.translator import Translator

PATIENCE = 120  # seconds: a busy machine is slow, and a server that hangs is found nevertheless
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def assert_same(found, expected):
    """Requires equal JSON; numbers may differ by the rounding of other batches."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_same(list(found.values()), list(expected.values()))
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float):
        assert math.isclose(found, expected, abs_tol=1e-3, rel_tol=1e-4)
    else:
        assert found == expected


class Client:
    """Asks a server; `ask` returns (status, value of the JSON, headers)."""

    def __init__(self, url):
        self.url = url
        self.host, self.port = str(urlsplit(url).hostname), int(urlsplit(url).port or 0)

    def raw(self, path, body=None, kind="", method=None, **headers):
        """(status, bytes, headers) of an address."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if kind:
            headers["Content-Type"] = kind
        request = urllib.request.Request(self.url + path, body, headers, method=method)  # noqa: S310
        try:
            with _DIRECT.open(request, timeout=PATIENCE) as reply:
                return reply.status, reply.read(), reply.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), error.headers

    def ask(self, path, value=None, **query):
        """Posts a value as JSON, or gets an address without one."""
        body = None if value is None else json.dumps(value).encode()
        status, found, headers = self.raw(path + (f"?{urlencode(query)}" if query else ""), body, "application/json")
        return status, json.loads(found), headers

    def lines(self, objects, **query):
        """The results of /translate/json for one object per line."""
        body = "".join(json.dumps(one) + "\n" for one in objects).encode()
        status, found, _ = self.raw(f"translate/json?{urlencode(query)}", body, "application/x-ndjson")
        assert status == 200, found
        return [json.loads(line) for line in found.decode().splitlines()]


@contextlib.contextmanager
def serving(*folders, translators=(), notes=None, **settings):
    """Serves models and word aligners on a free port of this machine until the end of the block."""
    loaded = [*translators, *(Translator.load(folder, device="cpu") for folder in folders if not is_aligner(folder))]
    aligners = list(map(load_aligner, filter(is_aligner, folders)))
    config = ServeConfig(port=0, **settings)
    with bind(config) as bound:
        note, models = (notes if notes is not None else []).append, ServedModels(loaded, AlignConfig(), aligners)
        server = make_server(make_application(models, config, note), config)
        thread = threading.Thread(target=lambda: asyncio.run(answer(server, bound, note)))
        thread.start()
        try:
            yield Client(url_of(bound))
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()
