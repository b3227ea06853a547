"""`nmtalign serve`: translation and alignment over HTTP."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from nmtalign.cli.common import (
    QuietOption,
    Stopped,
    WhichOption,
    bound_caches,
    choose_wait_policy,
    end_threads,
    notifier,
    own_option,
    say,
    stopping,
)
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.model_files import Which
from nmtalign.serving import need_server
from nmtalign.settings.command_settings import AlignConfig, ServeConfig, TranslateConfig
from nmtalign.settings.definition import resolve

if TYPE_CHECKING:
    from nmtalign.serving.http_server import HttpServer
    from nmtalign.translating.translator import Translator

Settings = Chosen[tuple[ServeConfig, TranslateConfig]]
Models = Annotated[
    list[Path] | None,
    own_option(
        "Model directory; repeat it for other directions [dim]\\[default: the workspace's, or model/][/dim].",
        "DIR",
        "--model -m",
    ),
]


@with_settings(ServeConfig, TranslateConfig)
def serve(chosen: Settings, model: Models = None, which: WhichOption = "best", quiet: QuietOption = False) -> None:
    """Serve models over HTTP: for programs that use LibreTranslate, for JSON, and a page to try it.

    The address is printed on stdout when the server is ready. Only this machine reaches the server, unless you choose
    another --host. It has no passwords and no encryption: put a server such as nginx or Caddy before it.

    POST /translate and GET /languages work as those of LibreTranslate. POST /translate/json takes and gives the JSON
    of translate, POST /align aligns pairs. Lines of requests that wait are translated together; each translation is
    that of `nmtalign translate`. Its settings are those of section \\[translate] of nmtalign.toml, or --set beam=5.

    Examples:

      nmtalign serve -m model/

      nmtalign serve -m en-fr/ -m fr-en/ --port 8080

      curl localhost:5000/translate -d q='The cat.' -d source=en -d target=fr
    """
    need_server()
    config, folders = chosen.settings[0], list(model or (chosen.workspace.model,))
    from nmtalign.serving.http_server import HttpServer, bind

    with chosen.naming(), bind(config) as bound:  # before PyTorch and the models are loaded, which takes seconds
        choose_wait_policy()
        bound_caches()
        from nmtalign.serving.application import make_application
        from nmtalign.serving.served_models import ServedModels

        models = ServedModels(
            _translators(chosen, folders, which), resolve(AlignConfig, chosen.workspace.section("align"))
        )
        application = make_application(models, config, say)
        server = HttpServer(application, config, bound)
        pairs = ", ".join(f"{one.source}-{one.target}" for one in models)
        _run(server, pairs, quiet)


def _translators(chosen: Settings, folders: Sequence[Path], which: Which) -> "list[Translator]":
    config = chosen.settings[1]
    if (config.lexicon or config.glossary) and len(folders) > 1:
        raise UsageError("a lexicon or glossary is for one direction: serve only one model with it")
    from nmtalign.translating.translator import Translator, load_models

    given = "serve", {name: value for _, settings in chosen.layers for name, value in settings.items()}
    with chosen.naming():
        translators = [Translator(loaded, config, given=given) for loaded in load_models(folders, config, which)]
    say(*translators[0].notices())
    return translators


def _run(server: "HttpServer", pairs: str, quiet: bool) -> None:
    """Serves until a signal comes, and reports it."""
    tell = notifier(quiet)

    def ready() -> None:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        tell(f"serving {pairs}; Ctrl-C ends it")
        if not server.is_local:
            say("other machines can reach this server, and it has no password")

    try:
        with stopping(lambda reason: server.stop()) as came:
            server.serve_until_stopped(ready)
    except (KeyboardInterrupt, SystemExit):  # a second signal
        end_threads(128 + came[-1], "ended at once")
        raise
    if came:
        count = server.unanswered
        stopped = Stopped(came[0], f"; {count} requests were not answered in time" if count else "")
        end_threads(stopped.exit_code, f"error: {stopped}")
        raise stopped
