"""How translations are written: lines of text, Moses n-best lists, JSON lines."""

import json
from typing import Any

from nmtalign.decoding.search import Hypothesis
from nmtalign.decoding.translator import Translation


def text_line(number: int, translation: Translation) -> str:
    """The best translation."""
    return translation.text


def moses_lines(number: int, translation: Translation) -> str:
    """The n-best list in Moses's format: `id ||| text ||| LogProb= -3.21 Length= 7 ||| score`, a line a hypothesis.

    The id is the number of the line, counted from 0; the length counts `</s>`. Three bars in a text are set apart.
    """
    lines = []
    for text, hypothesis in zip(translation.texts, translation.hypotheses, strict=True):
        features = f"LogProb= {hypothesis.log_prob:.6f} Length= {len(hypothesis.tokens) + 1}"
        lines.append(f"{number} ||| {text.replace('|||', '| | |')} ||| {features} ||| {hypothesis.score:.6f}")
    return "\n".join(lines)


def json_line(number: int, translation: Translation) -> str:
    """An object with id (from 0), source, translation, score, log_prob, tokens, and the same of each of n_best."""
    found = zip(translation.texts, translation.hypotheses, translation.target_tokens, strict=True)
    n_best = [_entry(text, hypothesis, tokens) for text, hypothesis, tokens in found]
    line = {"id": number, "source": translation.source_line, **n_best[0], "n_best": n_best}
    return json.dumps(line, ensure_ascii=False)


def _entry(text: str, hypothesis: Hypothesis, tokens: tuple[str, ...]) -> dict[str, Any]:
    score, log_prob = round(hypothesis.score, 6), round(hypothesis.log_prob, 6)
    return {"translation": text, "score": score, "log_prob": log_prob, "tokens": list(tokens)}
