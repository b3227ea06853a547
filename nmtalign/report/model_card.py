"""The model card of a model directory: what its files record; everything else is "not stated"."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmtalign.errors import FormatError
from nmtalign.files import LOG, read_json, sha256_of
from nmtalign.model_directory import find_weights, read_settings
from nmtalign.report.document import Block, Commands, DataTable, Definitions, Document, Heading, Span
from nmtalign.report.markdown import to_markdown
from nmtalign.settings.definition import toml
from nmtalign.viewing.curves import Curves, read_curves

_SCORES = "scores.json"  # in the model directory: the JSON of `nmtalign score`
_HEADER = (
    "---\nlanguage: {}\n# license: not stated\n# datasets: not stated\nmetrics: {}\npipeline_tag: translation\n"
    "tags: [translation, word-alignment, nmtalign]\n---\n\n"
)


def model_card(folder: Path, facts: Mapping[str, Any]) -> str:
    """The card in Markdown, with the header in YAML that Hugging Face's Hub reads; raises FormatError.

    `facts` are those of `describe_model`.
    """
    settings = read_settings(folder)
    languages = [settings["source_language"], settings["target_language"]]
    log = read_curves(folder) if (folder / LOG).is_file() else Curves(folder)
    start, last, best, scores = log.start, log.last, log.best, _scores(folder / _SCORES)
    bleu = f"{best.bleu:.2f} ({best.signature})" if best and best.signature else None
    model = {"languages": " to ".join(languages), "licence": None, "preset": facts["preset"]}
    model |= {"parameters": f"{facts['parameters']:,}, stored as {facts['weights']}"}
    model |= {"SHA-256 of the weights": sha256_of(find_weights(folder))}
    data = {"texts": None, "licence of the texts": None, "training pairs": start.get("pairs")}
    data |= {"SHA-256 of the prepared corpus": settings["corpus"]}
    spent = {"updates": f"{last.update:,}", "epochs": f"{last.epoch:.2f}", "hours": f"{last.hours:.3f}"}
    training = (spent if last.update else dict.fromkeys(spent)) | {"nmtalign": facts["nmtalign_version"]}
    training |= {name: start.get(name) for name in ("device", "precision", "processes", "torch")}
    dev = {"BLEU on dev": bleu, "loss on dev, in nats per word": best and f"{best.loss:.4f}"}
    sections: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [
        ("Model", model, settings["model"]),
        ("Data", data, facts["prep"]),
        ("Training", training, settings["training"]),
        ("Scores", dev, {}),
        ("Limits", dict.fromkeys(("intended use", "domains", "biases")), {}),
    ]
    blocks: list[Block] = []
    for title, terms, chosen in sections:
        stated = [(term, "not stated" if value is None else Span(str(value))) for term, value in terms.items()]
        rows = [[Span(name, "code"), Span(toml(value), "code")] for name, value in chosen.items()]
        blocks += [Heading(title), Definitions(stated)]
        blocks += [DataTable(("setting", "value"), rows, words=2)] if rows else []
        if title == "Scores" and scores:
            blocks.append(DataTable(("translation", "metric", "score", "signature"), scores, words=2))
    blocks += [Heading("Use"), Commands(["nmtalign translate -m MODEL < in.txt > out.txt"])]
    metrics = dict.fromkeys([*["bleu"] * (bleu is not None), *(row[1].text.lower().rstrip("2+") for row in scores)])
    title = f"{folder.resolve().name}: {' to '.join(languages)}"
    return _HEADER.format(json.dumps(languages), json.dumps([*metrics])) + to_markdown(Document(title, blocks))


def _scores(path: Path) -> list[list[Span]]:
    """The rows of a table: translation, metric, score, signature."""
    try:
        report = read_json(path) if path.is_file() else {"systems": []}
        scores = [(one["name"], *score) for one in report["systems"] for score in one["scores"].items()]
        rows = [(name, metric, f"{score['value']:.2f}", report["signatures"][metric]) for name, metric, score in scores]
        return [[Span(str(text)) for text in row] for row in rows]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise FormatError(f"{path}: not what `nmtalign score --format json` prints; remove or replace it") from None
