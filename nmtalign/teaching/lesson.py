"""The numbers of the teaching page for one sentence: what RNNsearch and RNNencdec compute when they translate it.

All of them come from the models' own forward passes, on the CPU in float32. The page only chooses among them.
"""

import base64
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nmtalign.alignment.links import Link, argmax_links
from nmtalign.core.attention import Attention, LocalAttention
from nmtalign.core.decoder import DecoderOutput, RecurrentDecoder
from nmtalign.data.batches import make_batch
from nmtalign.errors import UsageError
from nmtalign.model_directory import LoadedModel, load_model
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.vocabulary import EOS, UNK_ID
from nmtalign.translating.translator import Translation

SHOWN_UNITS = 128  # of each direction; the page draws no more units of a large model
_TOP = 5  # most probable words of a step


class Lesson:
    """A model with attention and, if given, one without: what they compute for a sentence.

    Raises UsageError if a model is not of its kind, or if the models do not translate in the same direction.
    """

    def __init__(self, model: Path, fixed: Path | None = None) -> None:
        self.search, self.fixed = load_model(model, "cpu"), load_model(fixed, "cpu") if fixed else None
        config, of_fixed = self.search.model.config, self.fixed.model.config if self.fixed else None
        others = [loaded for loaded in self.models.values() if not _is_explained(loaded.model.config)]
        ways = {_direction(loaded) for loaded in self.models.values()}
        for wrong, folder, message in (
            (others, others and others[0].folder, "is another system; explain shows RNNsearch and RNNencdec"),
            (
                config.attention == "none",
                model,
                "has no attention; give an RNNsearch model with -m, this one with --fixed",
            ),
            (
                not config.bidirectional,
                model,
                "reads in one direction; give one that was trained with bidirectional = true",
            ),
            (of_fixed and of_fixed.attention != "none", fixed, "has attention; --fixed needs one without (RNNencdec)"),
            (len(ways) > 1, fixed, f"translates differently from {model}: {' and '.join(sorted(ways))}"),
        ):
            if wrong:
                raise UsageError(f"{folder}: this model {message}")

    @property
    def models(self) -> dict[str, LoadedModel]:
        """The models by the names that the page gives them."""
        return {"RNNsearch": self.search, **({"RNNencdec": self.fixed} if self.fixed else {})}

    def facts(self, name: str) -> dict[str, Any]:
        """What the page says about a model: its folder, direction, hash and sizes."""
        loaded = self.models[name]
        facts = {"folder": loaded.folder.resolve().name, "direction": _direction(loaded), "hash": loaded.hash[:12]}
        parameters = sum(weight.numel() for weight in loaded.model.parameters())
        return {"name": name, **facts, "hidden": loaded.model.config.hidden, "parameters": parameters}

    @torch.no_grad()
    def sentence(self, found: Translation, fixed: Translation | None, reference: str | None) -> dict[str, Any]:
        """The numbers of a sentence that both models have translated, as values of JSON.

        A matrix has a row per target token and a column per source token; `</s>` is the last of each. Without a
        reference, what compares with it is None.
        """
        numbers = {
            "source": [*found.source_tokens, EOS],
            "unknown": [number == UNK_ID for number in self._source_ids(found)],
            "target": [*found.tokens, EOS],
            "reference": reference,
            "phrase": reordered_phrase(links_of(found)),
            "most_entropy": rounded(torch.tensor(len(found.source_tokens) + 1.0).log()),
            "steps": self._steps(found),
            **self._annotations(found),
            "RNNsearch": self._result(self.search, found, reference),
        }
        numbers["RNNsearch"]["size"] = len(numbers["source"]) * self.search.model.encoder.output_size
        if fixed and self.fixed:
            numbers["RNNencdec"] = {
                **self._result(self.fixed, fixed, reference),
                **_fixed_vector(self.fixed, self.fixed.source_vocabulary.encode(fixed.source_tokens)),
            }
        return numbers

    def _source_ids(self, found: Translation) -> list[int]:
        return self.search.source_vocabulary.encode(found.source_tokens)

    def _steps(self, found: Translation) -> list[dict[str, Any]]:
        """Each step of the decoder along the translation: energies, softmax, weights, entropy, and the next word."""
        model, words = self.search.model, self.search.target_vocabulary.words
        target = self.search.target_vocabulary.encode(found.tokens)
        batch = make_batch([(self._source_ids(found), target)])
        memory = model.encode(batch.source, batch.source_mask)
        # At the first step there is no previous word: its vector is zero.
        previous = F.pad(model.target_embedding(batch.target.t()[:-1]), (0, 0, 0, 0, 1, 0))
        decoder = model.decoder
        run = decoder.unroll(memory, previous)
        if run.weights is None or not isinstance(decoder, RecurrentDecoder):
            raise ValueError("a recurrent model with attention has weights and energies")
        energies = energies_of(decoder, run)[:, 0]
        features = model.readout.features(run.states[:, 0], run.words[:, 0], run.contexts[:, 0])
        probabilities = F.linear(features, model.readout.output_weight, model.readout.output_bias).softmax(-1)
        shares = (energies - energies.amax(1, keepdim=True)).exp()
        best, places = probabilities.topk(min(_TOP, len(words)))
        return [
            {
                "energies": rounded(energies[step]),
                "exponentials": rounded(shares[step]),
                "sum": rounded(shares[step].sum()),
                "weights": rounded(run.weights[step, 0]),
                "entropy": rounded(-torch.xlogy(run.weights[step, 0], run.weights[step, 0]).sum()),
                "probability": rounded(probabilities[step, word]),
                "top": [[words[place], rounded(p)] for place, p in zip(places[step].tolist(), best[step], strict=True)],
            }
            for step, word in enumerate(batch.target[0].tolist())
        ]

    def _annotations(self, found: Translation) -> dict[str, Any]:
        """The annotations of both directions, and how each changes if `<unk>` replaces a source word.

        `forward` and `backward` are base64 of one signed byte (127 = 1) per source token and shown unit. A row of
        `changes` is a replaced word, a column an annotation.
        """
        values = _of_each_replacement(self.search, self._source_ids(found))
        parts = zip(("forward", "backward"), values.chunk(2, -1), strict=True)
        return {name: {"units": packed(part[0]), "changes": rounded(_changes(part))} for name, part in parts}

    def _result(self, loaded: LoadedModel, found: Translation, reference: str | None) -> dict[str, Any]:
        """The translation, the words of it that the reference has, and the log-probabilities of both."""
        result: dict[str, Any] = {"words": found.text.split(), "log_prob": rounded(torch.tensor(found.log_prob))}
        if reference is not None:
            words = loaded.tokenizers.target.tokenize(reference)
            pair = loaded.source_vocabulary.encode(found.source_tokens), loaded.target_vocabulary.encode(words)
            batch = make_batch([pair])
            forced = loaded.model.force(batch.source, batch.source_mask, batch.target, batch.target_mask)
            result["kept"] = kept_words(found.text, reference)
            result["reference_log_prob"] = rounded(forced.log_probs.sum())
            result["reference_tokens"] = len(words) + 1
        return result


def _fixed_vector(loaded: LoadedModel, source: Sequence[int]) -> dict[str, Any]:
    """The fixed context of a model without attention, and how it changes if `<unk>` replaces a source word."""
    values = _of_each_replacement(loaded, source)[:, None]
    changes, known = _changes(values)[:, 0], torch.tensor(source) != UNK_ID
    mean = rounded(changes[known].mean()) if bool(known.any()) else 0.0
    return {"vector": packed(values[0]), "size": values.shape[-1], "changes": rounded(changes), "mean_change": mean}


def _of_each_replacement(loaded: LoadedModel, source: Sequence[int]) -> Tensor:
    """What the decoder reads of the source, then of the source with `<unk>` in place of each word in turn."""
    lines = [[*source[:place], UNK_ID, *source[place + 1 :]] for place in range(len(source))]
    batch = make_batch([(line, []) for line in (source, *lines)])
    values: Tensor = loaded.model.encode(batch.source, batch.source_mask).values
    return values


def _changes(values: Tensor) -> Tensor:
    """|h' - h| / |h| for each replaced word (rows) and vector (columns), from values (1 + words, vectors, units).

    What is less than the rounding of float32 is 0: the vector does not depend on the word.
    """
    changes: Tensor = (values[1:] - values[0]).norm(dim=-1) / values[0].norm(dim=-1)
    return changes.where(changes > 1e-6, 0.0)


def packed(vectors: Tensor) -> str:
    """Returns base64 of the shown units of vectors whose numbers are between -1 and 1, one signed byte each."""
    return base64.b64encode((vectors[:, :SHOWN_UNITS] * 127).round().to(torch.int8).numpy().tobytes()).decode()


def rounded(numbers: Tensor) -> Any:
    """Returns the numbers as nested lists of six significant digits, for JSON."""

    def shorter(value: Any) -> Any:
        return [shorter(one) for one in value] if isinstance(value, list) else float(f"{value:.6g}")

    found: list[Any] | float = numbers.tolist()
    return shorter(found)


def links_of(found: Translation) -> list[Link]:
    """Returns the links from each target token to the source token with the largest weight, if that is a word."""
    links = [] if found.alignment is None else argmax_links(found.alignment)
    return [(place, step) for place, step in links if any(map(str.isalnum, found.source_tokens[place]))]


def reordered_phrase(links: Sequence[Link]) -> list[Link]:
    """Returns the links of the longest run of adjacent target words that read ever earlier source words."""
    best: list[Link] = []
    run = list(links[:1])
    for (source, target), link in pairwise(links):
        run = [*run, link] if link[1] == target + 1 and link[0] < source else [link]
        best = max(best, run, key=len)
    return best if len(best) > 1 else []


def kept_words(text: str, reference: str) -> list[bool]:
    """Returns for each word of a text whether it is in the longest common sequences of the text and the reference."""
    words = text.split()
    kept = [False] * len(words)
    for block in SequenceMatcher(None, words, reference.split(), autojunk=False).get_matching_blocks():
        kept[block.a : block.a + block.size] = [True] * block.size
    return kept


def _direction(loaded: LoadedModel) -> str:
    return f"{loaded.source_language}-{loaded.target_language}"


def _is_explained(config: ModelConfig) -> bool:
    """Whether a model is an RNNsearch or an RNNencdec: one layer of gated units per direction, in a paper's order."""
    recurrent = config.architecture == "recurrent" and config.cell in ("paper", "cudnn")
    attention = config.attention_kind == "soft" and config.attention_span == "global" and not config.copy
    fed = config.input_feeding == "context" and config.readout == "maxout"
    return recurrent and attention and fed and config.order != "update-look-generate"


def energies_of(decoder: RecurrentDecoder, run: DecoderOutput) -> Tensor:
    """The energies (Ty, B, Tx) whose softmax are the weights of a pass, those of padding included.

    Raises ValueError unless it is a decoder of the paper with global attention.
    """
    attention, keys = decoder.attention, run.memory.keys
    if (
        not isinstance(attention, Attention)
        or isinstance(attention, LocalAttention)
        or keys is None
        or not decoder.is_papers
    ):
        raise ValueError("only a decoder of the paper with global attention has these energies")
    states, coverage, energies = decoder.attending_states(run), None, list[Tensor]()
    for step, state in enumerate(states):
        covered = None if coverage is None else coverage[:, None]
        energies.append(attention.energies(state[:, None], keys, covered)[:, 0])
        coverage = attention.look(run.memory, state, coverage, step).coverage
    return torch.stack(energies)
