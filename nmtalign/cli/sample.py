"""`nmtalign sample`: a sample corpus in English and French, made by a grammar."""

from pathlib import Path

from nmtalign.cli.common import QUIET, live_line, notifier, own_argument, own_flag, writes
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.settings.command_settings import SampleConfig


@with_settings(SampleConfig)
def sample(
    chosen: Chosen[SampleConfig],
    folder: Path = own_argument(
        "FOLDER", "Folder to write, made if missing.", callback=writes("a folder"), default=...
    ),
    force: bool = own_flag("Replace files that have other content.", "--force"),
    quiet: bool = QUIET,
) -> None:
    """Write a sample corpus: train, dev and test in English and French, with gold word alignments and an nmtalign.toml.

    A small grammar makes the text; nothing is downloaded. The same seed gives the same files. Links count the words of
    tokenised texts, such as train.tok.en. If a file with other content exists, nothing is written without --force.

    Examples:
      nmtalign sample demo/ --pairs 20000 && cd demo && nmtalign prep && nmtalign train
    """
    from nmtalign.sample.sample_corpus import write_sample

    with live_line("writing the corpus", quiet):
        held_out = write_sample(folder, chosen.settings.pairs, chosen.settings.seed, force=force)
    notifier(quiet)(f"{folder}: {chosen.settings.pairs:,} training, {held_out:,} dev and {held_out:,} test pairs")
