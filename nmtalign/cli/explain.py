"""`nmtalign explain`: a page that teaches how RNNsearch translates, from the passes of real models."""

from pathlib import Path
from typing import Annotated

from nmtalign.cli.common import (
    ConfigOption,
    ModelOption,
    QuietOption,
    check_inputs,
    notifier,
    own_argument,
    own_option,
    status_line,
    writes,
)
from nmtalign.errors import UsageError
from nmtalign.settings.workspace import load_workspace
from nmtalign.text.lines import STDOUT

Source = Annotated[Path | None, own_argument("SRC", "Source text of a test set (default: the workspace's).")]
Target = Annotated[Path | None, own_argument("TGT", "Its translation, line by line.")]
Fixed = Annotated[
    Path | None, own_option("Model without attention, whose fixed vector is compared (RNNencdec).", "DIR", "--fixed")
]
Output = Annotated[
    Path,
    own_option("The page; - writes it to stdout.", "FILE.html", "--output -o", callback=writes("a file", stdout=True)),
]
Sentences = Annotated[
    list[str] | None, own_option("Also show this source sentence; may be repeated.", "TEXT", "--sentence -s")
]
Limit = Annotated[int, own_option("Number of pairs of the test set that are translated.", "N", min=1, max=2**31 - 1)]


def explain(
    source: Source = None,
    target: Target = None,
    model: ModelOption = None,
    fixed: Fixed = None,
    output: Output = Path("explain.html"),
    sentence: Sentences = None,
    limit: Limit = 500,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write a page that shows, step by step, how a model attends to the words it translates.

    The page contains real numbers of your own models, computed when it is written: annotations, energies, weights and
    contexts of an RNNsearch model, the fixed vector of an RNNencdec model, and BLEU by length of both. Its sentences
    are those of the test set that show best what happens. Any browser shows it, without a server or a network, with
    mouse, keyboard or screen reader.

    Examples:

      nmtalign explain --fixed rnnencdec/

      nmtalign explain test.en test.fr -m model/ -o page.html --sentence "The European Economic Area is large."
    """
    workspace = load_workspace(config)
    if source and not target:
        raise UsageError(f"{source}: only one text is given; give the source and its translation: SRC TGT")
    test = (source, target) if source and target else workspace.test_files
    if test is None:
        raise UsageError(
            'no test set: give SRC TGT, or name one in nmtalign.toml ([corpus] test = ["test.en", "test.fr"])'
        )
    if output.is_dir():
        raise UsageError(f"{output}: is a folder; give the page a name such as explain.html")
    check_inputs(*workspace.own, *test)
    out, tell = Path("/dev/stdout") if output == STDOUT else output, notifier(quiet)
    with status_line("loading the models", quiet) as show:
        from nmtalign.teaching.lesson import Lesson
        from nmtalign.teaching.lesson_page import write_lesson

        lesson = Lesson(model or workspace.model, fixed)
        for line in write_lesson(lesson, test, out, sentence or (), limit, show):
            tell(line)
    if output != STDOUT:
        tell(f"wrote {output} ({output.stat().st_size / 1e6:.1f} MB): open it in a browser")
