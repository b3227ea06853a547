"""A real model on real text: how much BLEU bf16, int8 and candidate words cost, and how fast each variant is."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.contestants import OURS, WITH_CANDIDATES, Job, read_text
from bench.machine import environment
from bench.report import say
from bench.watch import complaint_in
from nmtalign.errors import InputError, NmtalignError

NAIVE_LINES = 8  # lines for the naive decoder, spread over the text


def real_text(given: dict[str, Any], names: Sequence[str], folder: Path) -> dict[str, Any]:
    """Returns {"beams": {beam: figures}} of one round over the complete text, with BLEU if there is a reference.

    "cost" is the difference in BLEU to fp32. The text is not tokenised, and the sizes are those of the model.
    """
    from bench.translate import Contest, compare, rates

    text = read_text(given["text"])
    reference = read_text(given["reference"]) if given["reference"] else None
    if reference is not None and len(reference) != len(text):
        raise InputError(f"{given['reference']}: {len(reference)} lines, but {given['text']} has {len(text)}")
    lexicon, without = _lexicon(given, folder)
    names = [name for name in names if name not in WITH_CANDIDATES or lexicon]
    job = Job(
        *(str(given["model"].resolve()), str(given["text"].resolve()), str(lexicon or ""), given["candidates"] or 2000),
        tokenized=False,
        threads=given["threads"],
        device=given["device"],
    )
    step = max(1, len(text) // NAIVE_LINES)
    lines: dict[str, Sequence[int]] = {name: range(len(text)) for name in OURS}
    lines |= dict.fromkeys(("released", "naive", "naive-batch"), range(step // 2, len(text), step)[:NAIVE_LINES])
    contest = Contest(job, names, lines)
    say(f"{given['model']} on {given['text']}")
    outcomes = compare(contest, given["real_beam"], repeats=1)
    results: dict[str, Any] = {"model": str(given["model"]), "text": str(given["text"]), "sentences": len(text)}
    results |= {"without": without, "beams": {}}
    for beam, outcome in outcomes.items():
        found = results["beams"][beam] = rates(contest, outcome)
        texts = {name: [each[0] for each in outcome.found[name]] for name in names if name in OURS}
        for name in texts:
            found["variants"][name] |= _quality(texts, name, reference, results)
    return results


def _quality(
    texts: dict[str, list[str]], name: str, reference: Sequence[str] | None, results: dict[str, Any]
) -> dict[str, float]:
    """Returns BLEU, its difference to fp32, and the share of texts equal to fp32's; `results` gets the signature."""
    from nmtalign.scoring.metrics import bleu

    quality = {}
    exact = texts.get("ours-fp32")
    if exact is not None:
        quality["same_as_fp32"] = sum(map(str.__eq__, texts[name], exact)) / len(exact)
    if reference is not None:
        score = bleu(texts[name], reference)
        results["signature"] = score.signature
        quality["bleu"] = score.value
        if exact is not None and name != "ours-fp32":
            quality["cost"] = bleu(exact, reference).value - score.value
    return quality


def _lexicon(given: dict[str, Any], folder: Path) -> tuple[Path | None, str]:
    """Returns the lexicon that was given or is made from the corpus, or None and the reason."""
    if given["lexicon"]:
        return given["lexicon"].resolve(), ""
    if not given["lexicon_data"]:
        return None, "no candidate words: give --lexicon FILE, or --lexicon-data DIR with a prepared corpus"
    path = folder / "lexicon.tsv"
    say(f"nmtalign lexicon of {given['lexicon_data']}")
    command = [sys.executable, "-m", "nmtalign", "lexicon", str(given["lexicon_data"]), "-o", str(path), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    if done.returncode:
        raise NmtalignError(f"nmtalign lexicon {given['lexicon_data']}: {complaint_in(done.stderr.splitlines())}")
    return path, ""
