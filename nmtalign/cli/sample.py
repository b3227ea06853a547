"""`nmtalign sample`: our own English-French corpus, made by a grammar."""

from pathlib import Path
from typing import Annotated

import typer

from nmtalign.cli.common import QuietOption, say


def sample(
    folder: Annotated[Path, typer.Argument(help="Folder to write to; made where it is missing.", show_default=False)],
    pairs: Annotated[int, typer.Option(help="Training pairs.", min=1)] = 20_000,
    seed: Annotated[int, typer.Option(help="Another seed gives other sentences.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Replace files that have other content.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Write a sample corpus: train, dev and test in English and French, gold word alignments, and an nmtalign.toml.

    The text is made by a small grammar of nmtalign's own. Nothing is downloaded. The same seed gives the same files.
    Files of other content stay, and none is written, unless --force is given.

    Examples:

      nmtalign sample demo/ --pairs 20000 && cd demo && nmtalign prep && nmtalign train
    """
    from nmtalign.sample.sample_corpus import write_sample

    summary = write_sample(folder, pairs, seed, force=force)
    if not quiet:
        say(f"{folder}: {summary.train:,} training, {summary.dev:,} dev and {summary.test:,} test pairs")
