"""The translator: order, blank lines, pieces, unknown words, memory that runs out; and the formats of its output."""

import copy
import io
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch

from nmtalign.config import ModelConfig, TranslateConfig
from nmtalign.core.model import TranslationModel
from nmtalign.decoding import translator as translator_module
from nmtalign.decoding.output import json_line, moses_lines, text_line
from nmtalign.decoding.search import Hypothesis
from nmtalign.decoding.translator import Translation, Translator
from nmtalign.errors import ResourceError, UsageError
from nmtalign.model_directory import LoadedModel
from nmtalign.text.tokenizer import SentencePieces, Tokenizers
from nmtalign.text.vocabulary import Vocabulary

WORDS = ["the", "fox", "sees", "a", "red", "boat", "."]
LINES = ["the fox .", "", "a red boat", "\t ", "sees", "hedgehogs see the fox", "a red boat", "the the the a ."]


def make_loaded(tokenizers: Tokenizers, words: list[str], attention: str = "additive") -> LoadedModel:
    vocabulary = Vocabulary(["</s>", "<unk>", *words])
    torch.manual_seed(5)
    config = ModelConfig(
        source_vocabulary_size=len(vocabulary),
        target_vocabulary_size=len(vocabulary),
        embedding=6,
        hidden=8,
        attention_hidden=5,
        maxout=6,
        output_rank=0,
        attention=attention,
        initialisation="xavier",
    )
    model = TranslationModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2).add_(torch.randn_like(parameter) * 0.3)
        model.readout.output_bias[0] -= 5
    settings = {"source_language": "en", "target_language": "fr"}
    return LoadedModel(Path(), Path(), model, vocabulary, vocabulary, tokenizers, settings, torch.device("cpu"))


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return make_loaded(Tokenizers.spaced("en", "fr"), WORDS)


@pytest.fixture(scope="module")
def subwords() -> LoadedModel:
    model = io.BytesIO()
    lines = [" ".join(pair) for pair in itertools.permutations([*WORDS, "foxes", "seen"], 3)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=30,
        model_type="bpe",
        minloglevel=9,
        hard_vocab_limit=False,
    )
    pieces = SentencePieces(model.getvalue())
    vocabulary = [piece for piece in pieces.pieces() if piece not in ("<s>", "</s>", "<unk>")]
    return make_loaded(Tokenizers(pieces, pieces, "en", "fr"), vocabulary)


def config(**settings: object) -> TranslateConfig:
    return TranslateConfig(**{"beam": 3, "batch_size": 4, **settings})


def found_by(loaded: LoadedModel, lines: list[str], **settings: object) -> list[Translation]:
    return list(Translator(loaded, config(**settings)).translate(lines))


def made_doubtful(loaded: LoadedModel) -> LoadedModel:
    """The same model, but it says <unk> wherever it may."""
    model = copy.deepcopy(loaded.model)
    with torch.no_grad():
        model.readout.output_bias[1] += 50
    return replace(loaded, model=model)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 100])
def test_one_translation_a_line_in_order(loaded: LoadedModel, batch_size: int) -> None:
    together = found_by(loaded, LINES * 3, batch_size=batch_size)
    assert [translation.source_line for translation in together] == LINES * 3
    for line, translation in zip(LINES * 3, together, strict=True):
        alone = found_by(loaded, [line])[0]
        assert translation.text == alone.text
        assert translation.hypotheses[0].score == pytest.approx(alone.hypotheses[0].score, abs=1e-5)
    assert [bool(translation.text) for translation in together[:8]] == [bool(line.strip()) for line in LINES]


def test_windows_are_read_no_further_than_needed(loaded: LoadedModel) -> None:
    taken = []

    def endless() -> Iterator[str]:
        for number in itertools.count():
            taken.append(number)
            yield "a" if number % 2 else ""

    translations = Translator(loaded, config(batch_size=1)).translate(endless())
    for _ in range(3):
        next(translations)
    assert len(taken) == 40


def test_windows_are_bounded_by_their_text(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator_module, "WINDOW_CHARACTERS", 5)
    assert [t.source_line for t in found_by(loaded, LINES)] == LINES


def test_what_it_tells_of_a_line(loaded: LoadedModel) -> None:
    known, blank, unknown = found_by(loaded, ["the fox .", " ", "a hedgehog </s> <unk>"], n_best=2)
    assert known.source_tokens == ("the", "fox", ".")
    assert (known.source_unknown, unknown.source_unknown, blank.source_unknown) == (0, 3, 0)
    assert len(known.texts) == len(known.target_tokens) == len(known.hypotheses) == 2
    assert known.texts[0] == " ".join(loaded.target_vocabulary.decode(known.hypotheses[0].tokens))
    assert (blank.texts, blank.target_tokens, blank.hypotheses[0].tokens) == (("",), ((),), ())


def test_a_long_line_is_translated_in_pieces(loaded: LoadedModel) -> None:
    line = "the fox sees a boat . a red boat sees the fox . the fox"
    whole, short = found_by(loaded, [line, "a red"], max_source_length=6, n_best=2)
    parts = found_by(loaded, ["the fox sees a boat .", "a red boat sees the fox", ". the fox"])
    assert whole.pieces == 3
    assert short.pieces == 1
    assert whole.text == " ".join(part.text for part in parts)
    assert whole.hypotheses[0].log_prob == pytest.approx(sum(part.hypotheses[0].log_prob for part in parts), abs=1e-4)
    assert len(whole.texts) == 1
    assert len(short.texts) == 2


def test_weights_of_a_long_line(loaded: LoadedModel) -> None:
    translator = Translator(loaded, config(max_source_length=2), keep_weights=True)
    whole, blank = translator.translate(["the fox sees a boat", ""])
    weights = whole.hypotheses[0].weights
    assert weights is not None
    assert weights.shape == (len(whole.target_tokens[0]) + 1, 6)
    assert weights.sum(1) == pytest.approx(1, abs=1e-5)
    assert blank.hypotheses[0].weights is not None
    assert blank.hypotheses[0].weights.shape == (1, 1)


def test_unknown_words_are_copied_or_looked_up(loaded: LoadedModel, tmp_path: Path) -> None:
    loaded = made_doubtful(loaded)
    assert "<unk>" not in found_by(loaded, ["hedgehogs"])[0].text
    assert set(found_by(loaded, ["hedgehogs"], allow_unk=True)[0].target_tokens[0]) == {"<unk>"}
    assert set(found_by(loaded, ["hedgehogs"], replace_unk=True)[0].target_tokens[0]) == {"hedgehogs"}
    (tmp_path / "lexicon").write_text("hedgehogs hérissons\n")
    settings = {"replace_unk": True, "lexicon": str(tmp_path / "lexicon")}
    assert set(found_by(loaded, ["hedgehogs"], **settings)[0].text.split()) == {"hérissons"}


def test_unknown_pieces(subwords: LoadedModel, tmp_path: Path) -> None:
    subwords = made_doubtful(subwords)
    settings = {"replace_unk": True, "max_length_ratio": 2.0}
    # A known piece: the word that it is part of.
    assert set(found_by(subwords, ["seen"], **settings)[0].text.split()) == {"seen"}
    # An unknown one: itself, for the rest of the word has its own place in the translation.
    found = found_by(subwords, ["猫"], **settings)[0]
    assert set(found.target_tokens[0]) <= {"猫", "▁猫", "▁"}
    (tmp_path / "lexicon").write_text("seen vu\n")
    found = found_by(subwords, ["seen"], lexicon=str(tmp_path / "lexicon"), **settings)[0]
    assert set(found.target_tokens[0]) == {"▁vu"}


def test_tokenized_lines_are_split_at_spaces_only(subwords: LoadedModel) -> None:
    raw = found_by(subwords, ["the foxes"])[0]
    tokenized = found_by(subwords, [" ".join(raw.source_tokens)], tokenized=True)[0]
    assert tokenized.source_tokens == raw.source_tokens
    assert tokenized.text == " ".join(raw.target_tokens[0])


def test_lines_never_hold_the_end_of_a_line() -> None:
    loaded = make_loaded(Tokenizers.spaced(), ["x\ry", "z\r"])
    for translation in found_by(loaded, ["a b c", "d"], n_best=3):
        assert not {"\r", "\n"} & set("".join(translation.texts))


def test_what_a_model_without_attention_cannot_do() -> None:
    loaded = make_loaded(Tokenizers.spaced(), WORDS, attention="none")
    assert len(found_by(loaded, LINES)) == len(LINES)
    with pytest.raises(UsageError, match="no attention"):
        Translator(loaded, config(replace_unk=True))
    with pytest.raises(UsageError, match="no attention"):
        Translator(loaded, config(), keep_weights=True)
    with pytest.raises(UsageError, match="n_best = 4"):
        Translator(loaded, config(n_best=4))


def test_long_sentences_make_small_batches(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    search = translator_module.beam_search

    def watched(model: object, source: torch.Tensor, *rest: object) -> list[list[Hypothesis]]:
        shapes.append(tuple(source.shape))
        return search(model, source, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(translator_module, "beam_search", watched)
    found_by(loaded, ["a fox"] * 6 + ["a fox " * 100] * 3, max_length_ratio=0.1)
    assert shapes == [(4, 3), (2, 3), (1, 201), (1, 201), (1, 201)]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_batch_that_is_too_large_is_halved(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    search, room = translator_module.beam_search, 1

    def small_machine(model: object, source: torch.Tensor, *rest: object) -> list[list[Hypothesis]]:
        if len(source) > room:
            raise error
        return search(model, source, *rest)  # type: ignore[arg-type]

    expected = [translation.text for translation in found_by(loaded, LINES)]
    monkeypatch.setattr(translator_module, "beam_search", small_machine)
    assert [translation.text for translation in found_by(loaded, LINES)] == expected
    room = 0
    with pytest.raises(ResourceError, match="out of memory with one sentence of 1 tokens"):
        found_by(loaded, LINES)


def test_other_errors_are_not_taken_for_memory(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(translator_module, "beam_search", broken)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        found_by(loaded, LINES)


def translation(*texts: str) -> Translation:
    hypotheses = tuple(
        Hypothesis((4,) * rank, -rank / 3, -rank / 7, (-1.0,) * (rank + 1), np.zeros((rank + 1, 2), np.float32))
        for rank in range(1, len(texts) + 1)
    )
    return Translation("a\u2028 \x00b", ("a",), 0, texts, tuple((text,) for text in texts), hypotheses)


def test_formats() -> None:
    two = translation("un |||| deux", 'é "\u2028')
    assert text_line(7, two) == "un |||| deux"
    first, second = moses_lines(7, two).split("\n")
    assert first == "7 ||| un | | || deux ||| LogProb= -0.333333 Length= 2 ||| -0.142857"
    assert second == '7 ||| é "\u2028 ||| LogProb= -0.666667 Length= 3 ||| -0.285714'
    line = json_line(7, two)
    assert "\n" not in line
    assert "é" in line
    assert json.loads(line) == {
        "id": 7,
        "source": "a\u2028 \x00b",
        "translation": "un |||| deux",
        "score": -0.142857,
        "log_prob": -0.333333,
        "tokens": ["un |||| deux"],
        "n_best": [
            {"translation": "un |||| deux", "score": -0.142857, "log_prob": -0.333333, "tokens": ["un |||| deux"]},
            {"translation": 'é "\u2028', "score": -0.285714, "log_prob": -0.666667, "tokens": ['é "\u2028']},
        ],
    }
