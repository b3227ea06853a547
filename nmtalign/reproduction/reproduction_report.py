"""Writes report.md and report.html from the files that the commands of a reproduction have made."""

import importlib.metadata
import os
import platform
import shlex
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from nmtalign.files import atomic_text, read_json
from nmtalign.processor import cpu_facts
from nmtalign.report import document as doc
from nmtalign.report.html_page import to_page
from nmtalign.report.markdown import to_markdown
from nmtalign.reproduction.steps import FIRST_SEED, Reproduction
from nmtalign.settings.command_settings import ReproduceConfig
from nmtalign.settings.definition import FILE_NAME, toml
from nmtalign.version import __version__
from nmtalign.viewing.curves import read_curves

Scores = Mapping[str, Any]  # of a system, a subset or a length, as `nmtalign score --format json` prints them


# Table 1 of Bahdanau et al. (2015): tokenised BLEU of newstest2014, of all sentences and of those without an unknown
# word, where the model must not write <unk>.
PAPER: Mapping[str, tuple[float, float]] = {
    "RNNencdec-30": (13.93, 24.19),
    "RNNsearch-30": (21.50, 31.44),
    "RNNencdec-50": (17.82, 26.71),
    "RNNsearch-50": (26.75, 34.16),
}
OTHERS: Mapping[str, tuple[float, float]] = {"RNNsearch-50*": (28.45, 36.15), "Moses (more text)": (33.30, 35.63)}
_OF_PAPER = (
    "The paper's numbers are tokenised BLEU (multi-bleu) of another experiment: WMT14 English-French, 348M words "
    "chosen from 850M, 30,000 words per side, layers of 1,000 units, about 110 hours on a GPU for each model, tested "
    "on the 3,003 sentences of newstest2014. Compare the shape of the results, not the numbers. RNNsearch-50* was "
    "trained until it stopped improving on dev. Moses, the phrase-based system of the paper, had 418M words of "
    "monolingual text more than the neural models."
)


def write_report(made: Reproduction) -> Path:
    """Writes both files from the last run, and returns the path of the Markdown file."""
    title = "Systems of neural machine translation, compared"
    if made.is_of_paper:
        title = "Neural machine translation by jointly learning to align and translate, reproduced"
    blocks = [*_opening(made), *_tables(made), *_training(made), *_figures(made), *_commands(made)]
    document = doc.Document(title, blocks)
    for name, text in (("report.md", to_markdown(document)), ("report.html", to_page(document))):
        with atomic_text(made.folder / name) as stream:
            stream.write(text)
    return made.folder / "report.md"


def _opening(made: Reproduction) -> Iterator[doc.Block]:
    unit = "target words" if made.unit == "words" else made.unit
    yield (
        f"All models have the scale `{made.settings.scale}` ({made.scale.what}), the same training text, the same "
        f"budget ({made.amount:,.10g} {unit} for each model), the same optimiser and batches unless the table says "
        f"otherwise, and the same search. Seeds of the models: {', '.join(map(str, made.seeds))}. A model is tested "
        "with the weights that had the smallest loss on dev within the budget."
    )
    if made.failures:
        yield doc.Heading("What failed")
        rows = [(doc.Span(file), doc.Span(problem)) for file, problem in made.failures.items() if problem]
        yield doc.DataTable(("missing file", "reason"), rows, words=2)
    changed = [(one.name, [f"{key} = {toml(value)}" for key, value in one.changed.items()]) for one in made.experiments]
    if rows := [(doc.Span(name), doc.Span(", ".join(settings))) for name, settings in changed if settings]:
        yield doc.Heading("Systems")
        yield doc.DataTable(("system", "settings that differ from those of RNNsearch at this scale"), rows, words=2)


def _number(value: float | None, digits: int = 2) -> str:
    return doc.NOTHING if value is None else f"{value:,.{digits}f}"


def _score(scores: Scores | None, metric: str) -> str:
    """`26.75 [26.01, 27.44]`: a score and its 95% interval, if there is one."""
    if not scores:
        return doc.NOTHING
    one = scores["scores"][metric]
    interval = f" [{one['low']:.2f}, {one['high']:.2f}]" if one["low"] is not None else ""
    return _number(one["value"]) + interval


def _tables(made: Reproduction) -> Iterator[doc.Block]:
    """Table 1 for each test set, the scores of several seeds, and BLEU by length as a picture and as a table."""
    is_of_paper = made.is_of_paper
    yield doc.Heading("Table 1: BLEU" if is_of_paper else "BLEU")
    yield (
        "As in the paper, the models may write the word for unknown words (UNK, one wrong word), but not in the "
        "columns of the sentences that have none." + (f" {_OF_PAPER}" if is_of_paper else "")
    )
    for test in made.tests:
        if not (everything := _json(made, f"scores/{test}.json")):
            continue
        of_known = (_json(made, f"scores/{test}.known.json") or {"systems": []})["systems"]
        known = {one["name"]: one["no_unk"] for one in of_known}
        metrics = [metric for metric in everything["metrics"] if "bleu" in metric.lower()]
        systems, first = everything["systems"], everything["systems"][0]["name"]
        head = ["model", *(name for metric in metrics for name in (metric, f"{metric}, no unknown word"))]
        rows = []
        for one in systems:
            cells = [_score(part, metric) for metric in metrics for part in (one, known.get(one["name"]))]
            last, base = (part["scores"][metrics[-1]] for part in (one, systems[0]))
            # Of equal scores, such as 0 after few updates, sacreBLEU's p-value is the smallest that there is.
            p_value = None if last["value"] == base["value"] else last["p_values"].get("bs")
            paper = map(_number, PAPER.get(one["name"], (None, None)) if is_of_paper else ())
            rows.append([one["name"], *cells, _number(p_value, 3), *paper])
        for name, scores in OTHERS.items() if is_of_paper else ():
            rows.append([name, *[doc.NOTHING] * (2 * len(metrics) + 1), *map(_number, scores)])
        head += [f"p against {first}", *(["paper", "paper, no unknown word"] if is_of_paper else [])]
        count = next(filter(None, known.values()), {"sentences": 0})["sentences"]
        caption = (
            f"{test}: {everything['sentences']:,} sentences, {count:,} of them without an "
            "unknown word in source and reference; in brackets 95% intervals; p is that of a paired bootstrap test."
        )
        yield doc.DataTable(head, rows, caption)
        yield from _seeds(made, test, metrics[-1])
        title = f"{metrics[0]} {everything['titles']['length']}"
        yield doc.Heading(f"Figure 2: {metrics[0]} by length of the sentence, {test}", 3)
        yield _picture(made, f"figures/length-{test}.svg", f"{title}, {test}")
        columns = [[_score(part, metrics[0]) for part in one["by_length"]] for one in systems]
        labels = [part["label"] if part["sentences"] else "" for part in systems[0]["by_length"]]
        rows = [row for row in zip(labels, *columns, strict=True) if row[0]]
        head = ["words", *(one["name"] for one in systems)]
        yield doc.DataTable(head, rows, f"{test}: {title}")
        yield f"Signature: `{everything['signatures'][metrics[-1]]}`"


def _seeds(made: Reproduction, test: str, metric: str) -> Iterator[doc.Block]:
    """Mean and standard deviation over the seeds."""
    report = _json(made, f"scores/{test}.seeds.json") if len(made.seeds) > 1 else None
    if not report:
        return
    rows = []
    for experiment in made.experiments:
        systems = [one for one in report["systems"] if one["name"].rpartition(".seed-")[0] == experiment.name]
        if values := [one["scores"][metric]["value"] for one in systems]:
            spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            each = ", ".join(map(_number, values))
            rows.append((experiment.name, str(len(values)), f"{statistics.mean(values):.2f}{spread}", each))
    caption = f"{test}: mean and standard deviation of {metric} over seeds. All other tables are of the first seed."
    yield doc.DataTable(("model", "seeds", metric, "each"), rows, caption)


def _training(made: Reproduction) -> Iterator[doc.Block]:
    """Table 2: cost and dev loss of each training, and the alignment error rate."""
    rows = []
    for experiment in made.experiments:
        folder = made.folder / f"work/models/{experiment.name}.seed-{FIRST_SEED}"
        if not (folder / "train.jsonl").is_file():
            continue
        curves, rates = read_curves(folder), _json(made, f"scores/{experiment.name}.aer.json")
        speeds, best = [point.words_per_second for point in curves.progress], curves.best
        rows.append(
            [
                experiment.name,
                _number(curves.last.update, 0),
                _number(curves.last.epoch),
                f"{curves.last.hours:.3g}",
                _number(statistics.median(speeds) if speeds else None, 0),
                _number(curves.start.get("parameters"), 0),
                _number(best.loss_sentence if best else None, 1),
                _number(rates and 100 * rates["aer"], 1),
            ]
        )
    caption = (
        "Hours are of training with its validations, words/s are target words. The dev loss is nats per sentence. AER "
        "is the alignment error rate of the links of `test` in percent, with the largest weight of each target word."
    )
    yield doc.Heading("Training")
    head = ("model", "updates", "epochs", "hours", "words/s", "parameters", "dev loss", "AER")
    yield doc.DataTable(head, rows, caption)


def _figures(made: Reproduction) -> Iterator[doc.Block]:
    """Figure 3: soft alignments of some sentences with the model's own translations."""
    files = {line: f"figures/alignment-{line + 1}.svg" for line in made.lines}
    if drawn := {line: file for line, file in files.items() if (made.folder / file).is_file()}:
        yield doc.Heading("Figure 3: soft alignments")
        yield (
            "Sentences of the test set and their translations by the model with attention. The source is along x, the "
            "translation along y; white is a weight of 1. A weight shows which words the model read, not why it wrote "
            "a word."
        )
        for line, file in drawn.items():
            yield _picture(made, file, f"line {line + 1}")


def _picture(made: Reproduction, file: str, caption: str) -> doc.Figure:
    return doc.Figure(file, caption, (made.folder / file).read_text(encoding="utf-8"))


def _commands(made: Reproduction) -> Iterator[doc.Block]:
    """How to get the numbers again."""
    yield doc.Heading("How to get these figures again")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "numpy", "sacrebleu")]
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    facts = [
        ("nmtalign", __version__),
        ("versions", ", ".join([f"Python {platform.python_version()}", *versions])),
        ("machine", ", ".join([cpu_facts().get("model name") or platform.machine(), f"{os.cpu_count()} cores", *gpus])),
    ]
    yield doc.Definitions([(name, doc.Span(value)) for name, value in facts])
    yield (
        "The first command, in the folder of `nmtalign.toml`, does all of it. It runs the others in the folder of this "
        "report. Each file in `settings` is an `nmtalign.toml` with the settings of one model."
    )
    file, default = made.workspace.file, vars(ReproduceConfig())
    options = [f"--config {shlex.quote(file.name)}"] if file and file.name != FILE_NAME else []
    for name, value in vars(made.settings).items():
        if value != default[name]:
            options.append(f"--{name} {shlex.quote(f'{value:.15g}' if isinstance(value, float) else str(value))}")
    folder = os.path.relpath(made.folder, file.parent if file else Path())
    yield doc.Commands([" ".join(["nmtalign reproduce", *options, "-o", shlex.quote(folder)])])
    yield doc.Commands([step.command for step in made.steps])


def _json(made: Reproduction, name: str) -> Any:
    """The content of a file that a command of the last run made, or None."""
    path = made.folder / name
    return read_json(path) if path.is_file() and name not in made.failures else None
