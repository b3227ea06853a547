"""Output formats of translations: lines of text, Moses n-best lists, JSON lines.

| format | used for                                                    | output for a line of input              |
|--------|-------------------------------------------------------------|-----------------------------------------|
| text   | everything else                                             | one line: the best translation          |
| Moses  | several translations, word scores or alignments, as text    | one line per translation, after its id  |
| JSON   | format json                                                 | one line: an object with all results    |

Log-probabilities and scores are rounded to six decimal places, weights to four. If a subword model writes raw text,
alignments are between words; the weights of a word's pieces are merged. In all other cases alignments are between
tokens.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from nmtalign.alignment.links import argmax_links, format_links, merge_pieces
from nmtalign.search.beam_search import Array
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.lines import escaped_breaks, finite
from nmtalign.text.tokenizer import Subwords, Tokenizers
from nmtalign.text.vocabulary import EOS
from nmtalign.translating.translation import Alternative, ScoredPair, Translation

# Keys that `json_line` writes only on request. In an object that was written here and is translated again, they would
# describe the earlier translation.
_OPTIONAL_KEYS = frozenset(("token_log_probs", "alignment", "words", "source_words", "pieces", "confidence"))
_SURROGATE = re.compile("[\ud800-\udfff]")


def writes_lists(config: TranslateConfig) -> bool:
    """Whether the output is a Moses n-best list, which has one line per translation."""
    return config.format == "text" and (config.n_best > 1 or config.word_scores or config.alignment != "none")


class OutputFormat:
    """The format that `config` requests; without the model's `tokenizers`, subword pieces count as words."""

    def __init__(self, config: TranslateConfig, tokenizers: Tokenizers | None = None) -> None:
        self._config = config
        pieces = tokenizers is not None and isinstance(tokenizers.target, Subwords)
        # Alignments are written between complete words, unless the output consists of pieces.
        self._merging = tokenizers if pieces and not config.tokenized else None

    def lines(self, number: int, translation: Translation) -> str:
        """The output for a line of input, given its number from 0; it ends with `\\n`."""
        if self._config.format == "json":
            return self.json_line(number, translation) + "\n"
        if writes_lists(self._config):
            return "".join(self._moses_line(number, translation, each) + "\n" for each in translation.n_best)
        return translation.text + "\n"

    def _moses_line(self, number: int, translation: Translation, alternative: Alternative) -> str:
        """A line `id ||| text ||| LogProb= -3.21 Length= 7 ||| score` of a Moses n-best list.

        The id is the number of the input line, from 0; the length includes `</s>`. Three bars in a text are written
        with spaces between them. With word scores there is a third feature, `WordScores= -0.1 -0.2`: the
        log-probability of each token and of `</s>`. With alignments there is a fifth field: hard alignments as
        `0-0 1-2` (source first, from 0), soft alignments as in `soft_text`.
        """
        features = f"LogProb= {_fixed(alternative.log_prob)} Length= {len(alternative.tokens) + 1}"
        if self._config.word_scores:
            features += " WordScores= " + " ".join(map(_fixed, alternative.token_log_probs))
        text = alternative.text.replace("|||", "| | |")
        line = f"{number} ||| {text} ||| {features} ||| {_fixed(alternative.score)}"
        if self._config.alignment == "none":
            return line
        weights = self._weights(translation, alternative)
        if weights is None:
            return f"{line} ||| "
        hard = self._config.alignment == "hard"
        return f"{line} ||| {format_links(argmax_links(weights)) if hard else soft_text(weights)}"

    def json_line(self, number: int, translation: Translation) -> str:
        """One line of valid JSON: NaN and infinity become null, and no character is a line break.

        | key                              | value                                                                 |
        |----------------------------------|-----------------------------------------------------------------------|
        | id                               | the id of the request; without one the number of the line, from 0     |
        | source                           | the line                                                              |
        | translation, score, log_prob     | those of the best translation                                         |
        | confidence                       | the expected chrF / 100 of the best one, if the model is calibrated   |
        | tokens                           | the tokens of the best translation, without `</s>`                    |
        | token_log_probs                  | with word scores: those of each token and of `</s>`                   |
        | alignment                        | hard: [[i, j], ...], source first, from 0; soft: one row per target   |
        |                                  | token and for `</s>`, one column per source token and for `</s>`      |
        | words, source_words              | the aligned words, if a subword model aligns words and not tokens     |
        | source_tokens, source_unknown    | the source tokens, and the number of unknown ones                     |
        | pieces                           | the number of pieces of a line that was split or cut                  |
        | n_best                           | translation, score, log_prob, tokens etc. of each, the best first     |

        All other keys of the request's `extra` come first, unchanged. If `extra` was written here, which its n_best
        shows, none of these keys is taken from it.
        """
        entries = [self._entry(translation, alternative) for alternative in translation.n_best]
        extra = translation.request.extra
        results = {"source": translation.source, **entries[0]}
        results |= {"source_tokens": list(translation.source_tokens), "source_unknown": translation.source_unknown}
        if translation.confidence is not None:
            results["confidence"] = round(translation.confidence, 4)
        if translation.pieces > 1:
            results["pieces"] = translation.pieces
        results["n_best"] = entries
        ours = {"id", *results, *(_OPTIONAL_KEYS if "n_best" in extra else ())}
        passed = {key: value for key, value in extra.items() if key not in ours}
        return one_line({"id": extra.get("id", number), **passed, **results})

    def _entry(self, translation: Translation, alternative: Alternative) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "translation": alternative.text,
            "score": round(alternative.score, 6),
            "log_prob": round(alternative.log_prob, 6),
            "tokens": list(alternative.tokens),
        }
        if self._config.word_scores:
            entry["token_log_probs"] = [round(float(value), 6) for value in alternative.token_log_probs]
        if self._config.alignment != "none":
            weights = self._weights(translation, alternative)
            hard = self._config.alignment == "hard"
            entry["alignment"] = None if weights is None else argmax_links(weights) if hard else _rounded(weights)
            if self._merging is not None:
                entry["words"] = self._merging.target.words(alternative.tokens)
                entry["source_words"] = self._merging.source.words(translation.source_tokens)
        return entry

    def _weights(self, translation: Translation, alternative: Alternative) -> Array | None:
        """The alignment (target words + 1, source words + 1), or None without attention."""
        if self._merging is None or alternative.alignment is None:
            return alternative.alignment
        source = self._merging.source.word_index(translation.source_tokens)
        return merge_pieces(alternative.alignment, source, self._merging.target.word_index(alternative.tokens))


def soft_text(weights: Array) -> str:
    """Weights (Ty+1, Tx+1) in Marian's format, such as `0.9,0.1,0 0.2,0.7,0.1`.

    There is one group per target word and one for `</s>`; each has one number per source word and one for `</s>`.
    """
    return " ".join(",".join(f"{weight:.4g}" for weight in row) for row in _rounded(weights))


def pair_line(pair: ScoredPair, as_score: bool = False, word_scores: bool = False) -> str:
    """The log-probability of a given pair, or its score.

    With word scores there are two more columns, separated by tabs: the log-probabilities of the tokens and `</s>`, and
    these tokens, both separated by spaces.
    """
    columns = [_fixed(pair.score if as_score else pair.log_prob)]
    if word_scores:
        columns += [" ".join(map(_fixed, pair.token_log_probs)), " ".join((*pair.target_tokens, EOS))]
    return "\t".join(columns)


def pair_json(pair: ScoredPair) -> str:
    """One line of JSON with all results for a given pair; keys as in `json_line`, with the given target as `target`."""
    return one_line(
        {
            "id": pair.number,
            "source": pair.source,
            "target": pair.target,
            "score": round(pair.score, 6),
            "log_prob": round(pair.log_prob, 6),
            "tokens": list(pair.target_tokens),
            "token_log_probs": [round(value, 6) for value in pair.token_log_probs],
            "source_tokens": list(pair.source_tokens),
            "source_unknown": pair.source_unknown,
            "target_unknown": pair.target_unknown,
        }
    )


def one_line(value: Mapping[str, Any]) -> str:
    """An object as one line of valid JSON in UTF-8; NaN and infinity become null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False)
    # Surrogates, which UTF-8 cannot encode, and characters that some readers take for line breaks, are escaped.
    if not text.isascii():
        text = escaped_breaks(_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
    return text


def _rounded(weights: Array) -> list[list[float]]:
    rows: list[list[float]] = np.round(weights.astype(np.float64), 4).tolist()
    return rows


def _fixed(value: float) -> str:
    return f"{value:.6f}"
