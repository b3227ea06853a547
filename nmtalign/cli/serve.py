"""`nmtalign serve`: translation and alignment over HTTP."""

import sys
from pathlib import Path

from nmtalign.api import serve as serve_models
from nmtalign.cli import common
from nmtalign.cli.common import MODEL_DEFAULT, QUIET, own_option
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.settings.command_settings import AlignConfig, ServeConfig, TranslateConfig
from nmtalign.settings.definition import resolve


@with_settings(ServeConfig, TranslateConfig)
def serve(
    chosen: Chosen[tuple[ServeConfig, TranslateConfig]],
    model: list[Path] | None = own_option(
        f"Model directory, or folder of `nmtalign link`; repeat it for other directions {MODEL_DEFAULT}",
        "DIR",
        "--model -m",
    ),
    quiet: bool = QUIET,
) -> None:
    """Serve models over HTTP: for programs that use LibreTranslate, for JSON, and a page to try it.

    The address is printed on stdout when the server is ready. Only this machine reaches the server, unless you choose
    another --host. It has no passwords and no encryption: put a server such as nginx or Caddy in front of it.

    POST /translate and GET /languages work as those of LibreTranslate. POST /translate/json takes and gives the JSON
    of translate. POST /align aligns pairs, best with the aligner of `nmtalign link`. Lines of requests that wait are
    translated together; each translation is that of `nmtalign translate`. Its settings are those of section
    \\[translate] of nmtalign.toml, or --set beam=5.

    Examples:
      nmtalign serve -m model/
      nmtalign serve -m en-fr/ -m fr-en/ -m aligner/ --port 8080
      curl localhost:5000/translate -d q='The cat.' -d source=en -d target=fr
    """

    def ready(address: str, directions: str) -> None:
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        common.notifier(quiet)(f"serving {directions}; Ctrl-C ends it")

    common.sleep_beside_others()
    common.bound_caches()
    serve_models(
        model or chosen.workspace.model,
        config=chosen.settings[0],
        translate=chosen.settings[1],
        align=resolve(AlignConfig, chosen.workspace.section("align")),
        notify=common.say,
        ready=ready,
        stopping=common.signals.stopping,
    )
    common.signals.check()
