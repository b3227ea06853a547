"""`nmtalign sample`: a sample corpus in English and French, made by a grammar."""

from pathlib import Path
from typing import Annotated

import typer

from nmtalign.cli.common import QuietOption, say
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.settings.reproduce_settings import SampleConfig


@with_settings(SampleConfig, section="sample")
def sample(
    chosen: Chosen[SampleConfig],
    folder: Annotated[Path, typer.Argument(help="Folder to write, made if missing.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Replace files that have other content.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Write a sample corpus: train, dev and test in English and French, gold word alignments, and an nmtalign.toml.

    A small grammar makes the text; nothing is downloaded. The same seed gives the same files. If a file with other
    content exists, nothing is written without --force.

    Examples:

      nmtalign sample demo/ --pairs 20000 && cd demo && nmtalign prep && nmtalign train
    """
    from nmtalign.sample.sample_corpus import write_sample

    with chosen.naming():
        summary = write_sample(folder, chosen.settings.pairs, chosen.settings.seed, force=force)
    if not quiet:
        say(f"{folder}: {summary.train:,} training, {summary.dev:,} dev and {summary.test:,} test pairs")
