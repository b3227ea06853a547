"""`nmtalign translate`: raw text in, raw text out, one line for one line; or scores of given translations."""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from nmtalign.api import translate_files
from nmtalign.cli import common
from nmtalign.cli.common import QUIET, output_option, own_argument, own_flag, own_option, writes
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.lines import STDIN

if TYPE_CHECKING:
    from nmtalign.translating.file_translation import FileTranslation
    from nmtalign.translating.rescoring import FileScores


@with_settings(TranslateConfig)
def translate(
    chosen: Chosen[TranslateConfig],
    inputs: list[Path] | None = own_argument("INPUT", "Text or .gz files; - is stdin, the default."),
    model: list[Path] | None = common.MODELS,
    output: Path | None = output_option("Write to FILE, which is FILE.partial until it is complete.", stdout=True),
    resume: bool = own_flag("Continue an interrupted -o FILE after its last complete line.", "--resume"),
    save_alignments: Path | None = own_option(
        "Also save the attention weights of each translation (HDF5).", "FILE.h5", callback=writes("a file")
    ),
    target: Path | None = own_option("Score the lines of FILE as translations of INPUT instead of searching.", "FILE"),
    n_best_list: Path | None = own_option("Score a Moses n-best list of translations of INPUT.", "FILE"),
    rescore: bool = own_flag("Replace the scores of the n-best list and sort it, the best first.", "--rescore"),
    shard: str | None = common.SHARD,
    quiet: bool = QUIET,
) -> None:
    """Translate text: one line out for each line in, as soon as it is translated.

    A blank line stays blank. Bytes that are not UTF-8 become U+FFFD.

    With --target, print the log-probability of each given translation, or its score if a penalty differs from its
    default, as with --set length_penalty=0.6. The numbers are those that translate printed, if the tokens are the same
    (--tokenized). An n-best list gets the feature nmtalign= -3.21.

    Examples:
      nmtalign translate -m model/ < in.en > out.fr
      nmtalign translate in.en.gz -o out.fr.gz --resume --replace-unk
      nmtalign translate --n-best 5 --format json < in.en | jq .n_best
      nmtalign translate --save-alignments alignments.h5 < in.en > out.fr
      nmtalign translate --split-sentences --glossary terms.tsv < paragraphs.en > out.fr
      nmtalign translate --markup html < page.en.html > page.fr.html
      nmtalign translate in.en --target out.fr > scores.txt
      nmtalign translate -m model/ --n-best 12 < in.en > list.txt
      nmtalign translate -m other/ in.en --n-best-list list.txt --rescore > best-first.txt
    """
    paths = inputs or [Path(STDIN)]
    for path in paths if chosen.settings.markup is None else ():
        if path.suffix.lower() in (".html", ".htm", ".xlf", ".xliff", ".srt", ".vtt"):
            common.say(f"warning: {path}: is translated as lines of text; give --markup html, xliff, srt or vtt")
    lists = map(Path, filter(None, (chosen.settings.glossary, chosen.settings.lexicon)))
    common.check_inputs(*paths, target, n_best_list, *lists)
    common.sleep_beside_others()
    common.bound_caches()
    if not quiet and STDIN in paths and sys.stdin.isatty():
        common.say("reading from the terminal, one sentence per line; Ctrl-D ends the input")
    to_stdout = output in (None, STDIN)
    shown = not (quiet or (to_stdout and sys.stdout.isatty()))
    with ExitStack() as line:
        line.enter_context(common.live_line("loading the model", quiet))
        update: Callable[..., None] | None = None
        began = 0.0

        def progress(run: "FileTranslation | FileScores") -> None:
            nonlocal update, began
            common.signals.detail = run.left
            if update is None:
                line.close()  # the model is loaded
                began = time.monotonic()
                update = line.enter_context(common.live_line("translating", not shown, run.size))
            rate = run.tokens / max(time.monotonic() - began, 0.1)
            update(f"translating: {run.lines:,} lines, {rate:,.0f} words/s", run.end)

        run = translate_files(
            model or chosen.workspace.model,
            paths,
            sys.stdout.buffer if to_stdout or output is None else output,
            target=target,
            n_best_list=n_best_list,
            rescore=rescore,
            resume=resume,
            save_alignments=save_alignments,
            shard=shard,
            config=chosen.settings,
            notify=common.say,
            progress=progress,
            guard=common.signals.whole,
        )
    if not quiet:
        common.say(str(run))
