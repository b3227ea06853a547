"""`nmtalign lexicon`: a translation table of words, from sentence pairs or from their alignments."""

from pathlib import Path
from typing import Annotated

from nmtalign.cli.common import (
    QuietOption,
    notifier,
    open_output,
    own_argument,
    own_option,
    say,
    status_line,
    writes,
)
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import LexiconConfig
from nmtalign.text.lines import STDOUT

Source = Annotated[
    Path | None,
    own_argument("SRC|DATA|FILE.h5", "Source text, prepared corpus or alignments (default: the workspace's corpus)."),
]
Target = Annotated[Path | None, own_argument("TGT", "The translation of SRC.")]
Links = Annotated[
    Path | None, own_option("Links of SRC and TGT in Pharaoh's format; they are counted, not learned.", "FILE")
]
Output = Annotated[Path, own_option("The lexicon.", "FILE", "--output -o", callback=writes("a file", stdout=True))]
Model = Annotated[
    Path | None,
    own_option(
        "Tokenise as the text of this model or corpus [dim]\\[default: the workspace's][/dim].", "DIR", "--model -m"
    ),
]


@with_settings(LexiconConfig)
def lexicon(
    chosen: Chosen[LexiconConfig],
    source: Source = None,
    target: Target = None,
    links: Links = None,
    output: Output = STDOUT,
    model: Model = None,
    quiet: QuietOption = False,
) -> None:
    """Make a lexicon: which target words translate a source word, and how probably.

    From sentence pairs (two texts, or a prepared corpus) it is learned with
    IBM Model 1; from alignments (a file of `nmtalign align`, or --links) the
    links are counted. Each line is an entry: source, target, p(target | source).

    For `translate --lexicon FILE --candidates N` the entries must be words
    of the model's vocabularies: make it from the model's corpus, or from
    texts with -m. Then those of a subword model are pieces. For
    `--replace-unk` they are whole words: with a subword model make it from
    alignments or with --tokenized.

    Examples:

      nmtalign lexicon data/ -o lexicon.txt

      nmtalign lexicon train.en train.fr -m model/ -o lexicon.txt

      nmtalign lexicon train.en train.fr --tokenized --links links.txt --top 5

      nmtalign lexicon alignments.h5 --reverse | head
    """
    settings, workspace = chosen.settings, chosen.workspace
    if target is None and (model or chosen.typed.get("tokenized")):
        raise UsageError(f"{'--model' if model else '--tokenized'} is for two texts: give SRC TGT")
    if model and settings.tokenized:
        raise UsageError("--tokenized text needs no model: leave --model out, or --tokenized")
    from nmtalign.alignment.translation_table import make_lexicon
    from nmtalign.text.tokenizer import TOKENIZER_FILE

    here = (folder for folder in (workspace.model, workspace.data) if (folder / TOKENIZER_FILE).is_file())
    with status_line("reading", quiet) as show:
        made = make_lexicon(source or workspace.data, target, links, settings, model or next(here, None), show, say)
        show("choosing the entries")
        entries = made.entries(settings.top, settings.min_probability)
    with open_output(output) as stream:
        stream.writelines(entry.line() for entry in entries)
    left_out = f" ({made.left_out:,} more are empty or too long)" if made.left_out else ""
    links_counted = "" if made.links is None else f", {made.links:,} links"
    words, place = len({entry.source for entry in entries}), "" if output == STDOUT else f" in {output}"
    notifier(quiet)(
        f"{made.pairs:,} pairs{left_out}{links_counted}: {len(entries):,} entries for {words:,} words{place}"
    )
