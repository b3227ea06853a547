"""The translator: order, blank lines, pieces, prefixes and phrases, unknown words, lack of memory."""

import copy
import functools
import itertools
import pickle
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
import torch
from helpers.pieces import learned_pieces
from helpers.score_tables import TableScorer, WatchedScorer
from hypothesis import strategies as st

import nmtalign
from nmtalign.core.model import TranslationModel
from nmtalign.errors import InputError, ResourceError, UsageError
from nmtalign.model_directory import LoadedModel
from nmtalign.search.beam_search import Hypothesis
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.definition import resolve
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.tokenizer import BYTE_TOKENS, EOS, UNK, SentencePieces, TextBytes, Tokenizers, Vocabulary
from nmtalign.translating.glossary import GivenPhrase
from nmtalign.translating.requests import Request
from nmtalign.translating.translator import Translator

WORDS = ["the", "fox", "sees", "a", "red", "boat", "."]
LINES = ["the fox .", "", "a red boat", "\t ", "sees", "hedgehogs see the fox", "a red boat", "the the the a ."]


def make_loaded(tokenizers, words, **changes):
    vocabulary = Vocabulary(["</s>", "<unk>", *words])
    torch.manual_seed(5)
    words_of = dict.fromkeys(("source_vocabulary_size", "target_vocabulary_size"), len(vocabulary))
    sizes = {"embedding": 6, "hidden": 8, "attention_hidden": 5, "maxout": 6, "output_rank": 0, **changes}
    config = ModelConfig(**words_of, **sizes, initialisation="xavier")
    model = TranslationModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2).add_(torch.randn_like(parameter) * 0.3)
        model.readout.output_bias[0] -= 5
    settings = {"source_language": "en", "target_language": "fr"}
    return LoadedModel(Path(), Path(), model, vocabulary, vocabulary, tokenizers, settings, torch.device("cpu"))


@pytest.fixture(scope="module")
def loaded():
    return make_loaded(Tokenizers.spaced("en", "fr"), WORDS)


@pytest.fixture(scope="module")
def subwords():
    pieces = learned_pieces(map(" ".join, itertools.permutations([*WORDS, "foxes", "seen"], 3)), 30)
    vocabulary = [piece for piece in pieces.pieces() if piece not in ("<s>", "</s>", "<unk>")]
    return make_loaded(Tokenizers(pieces, pieces, "en", "fr"), vocabulary)


def config(**settings):
    return TranslateConfig(**{"beam": 3, "batch_size": 4, **settings})


def found_by(loaded, lines, **settings):
    return list(Translator(loaded, config(**settings)).translate(lines))


def made_doubtful(loaded):
    """The same model with a large bias for <unk>."""
    model = copy.deepcopy(loaded.model)
    with torch.no_grad():
        model.readout.output_bias[1] += 50
    return replace(loaded, model=model)


def test_one_translation_per_line_in_order(loaded):
    alone = [found_by(loaded, [line])[0] for line in LINES] * 3
    for batch_size in (1, 4, 100):
        together = found_by(loaded, LINES * 3, batch_size=batch_size)
        assert [translation.source for translation in together] == LINES * 3
        assert [translation.text for translation in together] == [one.text for one in alone]
        assert [translation.score for translation in together] == pytest.approx([one.score for one in alone], abs=1e-5)
    assert [bool(translation.text) for translation in alone[:8]] == [bool(line.strip()) for line in LINES]


def assert_same(loaded, rounding, found, expected):
    """The same n-best lists, with numbers that differ at most by rounding."""
    for left, right in zip(found, expected, strict=True):
        assert [answer.text for answer in left.n_best] == [answer.text for answer in right.n_best]
        for ours, theirs in zip(left.n_best, right.n_best, strict=True):
            steps = len(left.source_tokens) + 1 + len(theirs.token_log_probs)
            error = rounding.of_steps(loaded.model, steps)
            rounding.assert_same(ours.token_log_probs, theirs.token_log_probs, error)
            rounding.assert_same(ours.score, theirs.score, error)


def test_threads_change_no_translation(rounding):
    loaded = make_loaded(Tokenizers.spaced("en", "fr"), WORDS, hidden=48)
    one = found_by(loaded, LINES * 5, batch_size=7)
    torch.set_num_threads(3)
    several = found_by(loaded, LINES * 5, batch_size=7)
    assert torch.get_num_threads() == 3
    assert_same(loaded, rounding, several, one)


def watched(loaded, watch, **settings):
    """A translator that calls `watch(source)` before each search."""
    translator = Translator(loaded, config(**settings))
    return Translator(loaded, translator.config, scorer=WatchedScorer(translator.scorer, watch))


def test_a_long_line_is_translated_in_pieces(loaded):
    line = "the fox sees a boat . a red boat sees the fox . the fox"
    whole, short = found_by(loaded, [line, "a red"], max_source_length=6, n_best=2)
    parts = found_by(loaded, ["the fox sees a boat .", "a red boat sees the fox", ". the fox"])
    assert whole.pieces == 3
    assert short.pieces == 1
    assert whole.text == " ".join(part.text for part in parts)
    assert whole.log_prob == pytest.approx(sum(part.log_prob for part in parts), abs=1e-4)
    assert len(whole.n_best) == len(short.n_best) == 2
    assert whole.n_best[0].text != whole.n_best[1].text


@pytest.mark.parametrize(("language", "between"), [("zh", ""), ("ja", ""), ("th", ""), ("fr", " ")])
@pytest.mark.parametrize("settings", [{"max_source_length": 2}, {"split_sentences": True}])
def test_pieces_and_sentences_are_joined_alike(subwords, language, between, settings, monkeypatch):
    words = Vocabulary([EOS, UNK, "▁你", "好。"])
    model = replace(subwords, target_vocabulary=words, settings={"source_language": "en", "target_language": language})
    found = Hypothesis((2, 3), -1.0, -1.0, (-0.5, -0.5, 0.0))
    monkeypatch.setattr(Translator, "search", lambda self, pieces: [[found] for _ in pieces])
    (whole,) = Translator(model, config(**settings), alignments=False).translate(["The fox sees. The fox sees."])
    assert whole.pieces > 1
    assert whole.text == between.join(["你好。"] * whole.pieces)


def test_a_prefix_begins_the_translation(loaded):
    requests = [Request("the fox ."), Request("the fox .", prefix="red hedgehog"), Request("", prefix="red")]
    requests += [Request("the fox sees a boat", prefix="boat")]
    plain, given, blank, long = Translator(loaded, config(max_source_length=3)).translate(requests)
    assert given.tokens[:2] == ("red", "hedgehog")
    assert given.text.startswith("red hedgehog")
    assert given.log_prob < plain.log_prob
    assert blank.text == ""
    assert long.pieces == 2
    assert long.tokens[0] == "boat"


PARAGRAPH = ["the fox sees a red boat. ", "sees the boat! ", "is the fox red? ", "a fox."]


def test_sentences_are_translated_one_by_one(loaded):
    lines = ["".join(PARAGRAPH), "", "the fox .", "  the fox.  a boat. "]
    whole, blank, one, spaced = found_by(loaded, lines, split_sentences=True)
    japanese = replace(loaded, settings={"source_language": "en", "target_language": "ja"})
    assert found_by(japanese, lines, split_sentences=True)[0].text == whole.text  # its words are those between spaces
    parts = found_by(loaded, PARAGRAPH)
    assert whole.text == " ".join(part.text for part in parts if part.text)
    assert whole.tokens == tuple(token for part in parts for token in part.tokens)
    assert whole.source_tokens == tuple(token for part in parts for token in part.source_tokens)
    assert whole.source_unknown == sum(part.source_unknown for part in parts)
    assert (whole.sentences, whole.pieces) == (4, 4)
    assert (spaced.sentences, spaced.pieces) == (2, 2)
    assert whole.log_prob == pytest.approx(sum(part.log_prob for part in parts), abs=1e-4)
    assert sum(whole.n_best[0].token_log_probs) == pytest.approx(whole.log_prob, abs=1e-4)
    assert len(whole.n_best[0].token_log_probs) == len(whole.tokens) + 1
    row = column = 0
    for part in parts:  # the weights of each sentence are a block
        height, width = len(part.tokens), len(part.source_tokens)
        block = whole.alignment[row : row + height, column : column + width]
        assert block == pytest.approx(part.alignment[:height, :width], abs=1e-5)
        row, column = row + height, column + width
    assert blank.text == ""
    assert whole.alignment.sum(1) == pytest.approx(1, abs=1e-5)
    plain_blank, plain = found_by(loaded, ["", "the fox ."])
    for found, expected in ((one, plain), (blank, plain_blank)):
        assert (found.text, found.score) == (expected.text, expected.score)
        assert found.n_best[0].token_log_probs == expected.n_best[0].token_log_probs


def terms_file(folder, text="fox\tred boat\nboat\tZorglub the\n"):
    (folder / "terms.tsv").write_text(text, encoding="utf-8")
    return str(folder / "terms.tsv")


def test_terms_of_the_glossary_are_in_the_translation(loaded, tmp_path):
    lines = ["the fox .", "a fox and a Boat", "sees", "", "fox fox"]
    plain = found_by(loaded, lines)
    given = found_by(loaded, lines, glossary=terms_file(tmp_path), n_best=2)
    assert all("red boat" in entry.text for entry in given[0].n_best)
    assert "red boat" in given[1].text
    assert "Zorglub the" in given[1].text
    assert given[4].text.count("red boat") >= 2
    for number in (2, 3):
        assert (given[number].text, given[number].score) == (plain[number].text, plain[number].score)
    (unknown,) = found_by(loaded, lines[:1], glossary=terms_file(tmp_path, "fox\tzorglub\n"), n_best=12, beam=12)
    assert len({entry.text.lower() for entry in unknown.n_best}) == 12
    empty = found_by(loaded, lines, glossary=terms_file(tmp_path, ""))
    assert [found.text for found in empty] == [found.text for found in plain]


def test_the_glossary_follows_the_sentences(loaded, tmp_path):
    terms = terms_file(tmp_path)
    lines = ["sees the red. ", "the fox sees. ", "a boat sees the fox."]
    parts = found_by(loaded, lines, glossary=terms)
    (whole,) = found_by(loaded, ["".join(lines)], glossary=terms, split_sentences=True)
    assert whole.text == " ".join(part.text for part in parts if part.text)
    long = "sees a a the fox sees"
    (pieces,) = found_by(loaded, [long], glossary=terms, max_source_length=4)
    assert pieces.text == " ".join(part.text for part in found_by(loaded, ["sees a a the", "fox sees"], glossary=terms))


@pytest.mark.parametrize("made", [Tokenizers.moses("en", "fr"), Tokenizers(TextBytes(), TextBytes(), "en", "fr")])
def test_terms_of_long_lines_are_found_in_their_text(made, tmp_path):
    """Not in the detokenised text of a piece, which is "AT & T" by the rules of Moses."""
    known = [*BYTE_TOKENS] if made.kind == "bytes" else WORDS
    terms = terms_file(tmp_path, "AT&T\tAT&T\n50%\t50 %\nC++\tC++\n")
    line = "the the the AT&T sees a boat. at 50% the fox sees C++ , the end"
    for limit in (4, 11):
        settings = {"glossary": terms, "max_source_length": limit * (4 if made.kind == "bytes" else 1)}
        (found,) = found_by(make_loaded(made, known), [line], **settings)
        assert found.pieces > 1
        assert [found.text.count(each) >= 1 for each in ("AT&T", "50 %", "C++")] == [True] * 3


def test_the_terms_of_a_long_line_are_visited_once(loaded, tmp_path, monkeypatch):
    class Place(int):
        compared = 0

        def __lt__(self, other):
            Place.compared += 1
            return int(self) < other

    settings = {"glossary": terms_file(tmp_path, "fox\tred boat\n"), "max_source_length": 4}
    reader = Translator(loaded, config(**settings))._reader
    found = reader._glossary.targets
    monkeypatch.setattr(reader._glossary, "targets", lambda text: [(Place(at), term) for at, term in found(text)])
    line = reader.read(0, "the fox sees a " * 200)
    assert [sentence.phrases.words for sentence in line.pieces] == [2] * 200
    assert Place.compared <= 200 * 9


def test_a_phrase_of_many_pieces_is_looked_for_once(loaded, tmp_path, monkeypatch):
    written = []
    usual = GivenPhrase.written
    monkeypatch.setattr(GivenPhrase, "written", lambda phrase, *rest: written.append(phrase) or usual(phrase, *rest))
    translator = Translator(loaded, config(glossary=terms_file(tmp_path, "fox\tred boat\n"), max_source_length=4))
    (found,) = translator.translate(["the fox sees a " * 20])
    assert found.text.count("red boat") >= 20
    assert len(written) == 1
    line = translator._reader.read(0, "the fox sees a " * 20)
    tokens = ["the", "red", "boat", "a", "red", ".", "red", "boat"]
    assert translator._reader.places(line, tokens) == {1, 2, 6, 7}


FRENCH = ["le", "Le", "chat", "Chat", "dort", "Félin", "félin", ".", "l'", "eau", "Chats", "AT", "&", "T"]
PHRASES = ["AT&T", "C++", "C#", "a@b.org", "https://a.org/?b=1#c", "--no-cache", "50%", "Node.js", "10,000"]
PHRASES += ["« red »", '"red"', "[see]", "(a)", "l’eau", "U.S.", "...", "red boat", "猫", "我 猫", "cafe\u0301", "काम"]
PHRASES += ["🇫🇷", "👩‍💻"]


def scripted(loaded, *tokens, **settings):
    """A translator whose model wants to write these tokens."""
    words = len(loaded.target_vocabulary)
    table = torch.zeros(1, 40, words, words)
    for step, number in enumerate([*loaded.target_vocabulary.encode(tokens), *[0] * 40][:40]):
        table[:, step, :, number] = 12.0
    return Translator(loaded, config(**settings), scorer=TableScorer(table))


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize(
    ("source", "tokens", "expected"),
    [
        ("Cat sleeps.", "Chat dort .", "Chat dort."),
        ("the cat sleeps.", "Chat dort .", "Chat dort."),
        ("Cat sleeps.", "chat dort .", "Chat dort."),
        ("cat sleeps.", "chat dort .", "chat dort."),
        ("The Cat sleeps.", "Le Chat dort .", "Le chat dort."),
        ("water", "l' eau .", "l'eau."),
        ("AT&T", "AT & T dort .", "AT&T dort."),
    ],
)
def test_what_the_model_has_written_is_not_written_again(tmp_path, beam, source, tokens, expected):
    loaded = make_loaded(Tokenizers.moses("en", "fr"), FRENCH)
    terms = terms_file(tmp_path, "cat\tchat\nwater\teau\nAT&T\tAT&T\n")
    (found,) = scripted(loaded, *tokens.split(), glossary=terms, beam=beam, n_best=beam).translate([source])
    assert found.text == expected
    assert all("chat" in entry.text.lower() for entry in found.n_best if "at s" in source)


def test_an_inserted_term_has_the_capital_of_the_start_of_a_sentence(tmp_path):
    loaded = make_loaded(Tokenizers.moses("en", "fr"), FRENCH)
    for terms in ("cat\tchat\n", "cat\tzorglub\n"):
        written = terms.split()[1]
        settings = {"glossary": terms_file(tmp_path, terms), "n_best": 4, "beam": 4}
        (found,) = scripted(loaded, "Félin", "dort", ".", **settings).translate(["Cat sleeps."])
        for entry in found.n_best:
            at = entry.text.lower().index(written)
            assert entry.text[at].isupper() == (not at or entry.text[:at].endswith(". "))
    tool = terms_file(tmp_path, "npm\tnpm\n")
    (same,) = scripted(loaded, "npm", "dort", ".", glossary=tool).translate(["The npm sleeps."])
    assert "npm" in same.text


@pytest.mark.parametrize("language", ["zh", "ja", "th"])
@pytest.mark.parametrize(
    "known", [["▁", "我", "喜欢猫", "。"], ["▁我喜欢", "猫", "。", "▁猫"], ["▁", "我", "喜", "欢", "猫", "。", "科"]]
)
def test_no_spaces_are_inserted_where_a_language_has_none(language, known):
    pieces = PiecesOfCharacters(known)
    chinese = make_loaded(Tokenizers(pieces, pieces, "en", language), known)
    chinese = replace(chinese, settings={**chinese.settings, "target_language": language})
    tokens = pieces.tokenize("我喜欢猫。")
    for beam in (1, 5):
        translate = scripted(chinese, *tokens, beam=beam).translate
        asked = [Request("a", phrases=(phrase,)) for phrase in ("猫", "猫科", "我。")]
        there, longer, latin = (found.text for found in translate(asked))
        assert there == "我喜欢猫。"
        assert "猫科" in longer
        assert "我。" in latin
        assert " " not in there + longer + latin


class PiecesOfCharacters(SentencePieces):
    """The longest known pieces from left to right, with a "▁" before the text."""

    def __init__(self, known):
        self._known = known

    def pieces(self):
        return self._known

    def tokenize(self, line):
        left, tokens = ("▁" + line.replace(" ", "▁")) if line else "", list[str]()
        while left:
            end = next((end for end in range(len(left), 0, -1) if left[:end] in self._known), 1)
            tokens.append(left[:end])
            left = left[end:]
        return tokens


@functools.cache
def loaded_of(kind):
    """A model of a kind of tokens."""
    if kind == "bytes":
        return make_loaded(Tokenizers(TextBytes(), TextBytes(), "en", "fr"), [*BYTE_TOKENS])
    tokenizers = Tokenizers.moses("en", "fr") if kind == "moses" else Tokenizers.spaced("en", "fr")
    return make_loaded(tokenizers, [*WORDS, "l'", "AT", "T", "&", "+", "Red"])


@pytest.mark.parametrize("kind", ["spaced", "moses", "bytes", "subwords"])
@hypothesis.settings(max_examples=3, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(
    phrases=st.lists(st.sampled_from(PHRASES), min_size=1, max_size=3, unique=True),
    odd=st.text(
        st.sampled_from([*"ab,.'!+#-1 Té", "\u0301", "\u200c", "猫", "ก", "ี", "İ", "ﬁ", "▁", "\u00a0", "🇫"]), max_size=4
    ),
    prefix=st.sampled_from(["", "red", "Zo AT&T"]),
    language=st.sampled_from(["fr", "zh", ""]),
    beam=st.sampled_from([1, 2, 4]),
)
def test_phrases_are_written_exactly_and_no_line_is_lost(subwords, kind, phrases, odd, prefix, language, beam):
    made = subwords if kind == "subwords" else loaded_of(kind)
    settings = {**made.settings, "target_language": language}
    translator = Translator(replace(made, settings=settings), config(beam=beam, n_best=beam))
    line = "the fox sees a boat."
    asked = [Request(line, phrases=(*phrases, odd)), Request(line, prefix, tuple(phrases)), Request(""), Request(line)]
    both, exact, blank, plain = translator.translate(asked)
    assert both.text
    assert blank.text == ""
    assert plain.text == next(translator.translate([line])).text
    for entry in exact.n_best:
        assert all(phrase in entry.text or phrase.capitalize() in entry.text for phrase in phrases)
        assert entry.text.startswith(prefix)


def test_a_prefix_may_begin_a_phrase_of_unknown_words(loaded):
    (found,) = Translator(loaded, config(beam=3)).translate([Request("the fox", "big hedgehog", ("hedgehog cranes",))])
    assert found.text.startswith("big hedgehog cranes")


def test_a_text_is_not_lines(loaded):
    for text in ("the fox", Request("the fox")):
        with pytest.raises(UsageError, match=r"give a list of lines, such as \[text\]"):
            Translator(loaded).translate(text)
    wrong_phrases = [Request("the fox", phrases=phrases) for phrases in ("fox", None, [1])]
    for wrong in (None, 1.5, ["the fox"], Request(None), Request("the fox", prefix=1), *wrong_phrases):
        for lines in (["the fox", wrong], iter(["the fox", wrong])):
            with pytest.raises(UsageError, match=r"line 2: .* is not a line; give text or a Request"):
                list(Translator(loaded).translate(lines))


def test_a_changed_setting_that_does_not_fit_names_the_section_of_the_other(loaded):
    with pytest.raises(UsageError, match=r"request: n_best = 8 does not go with section \[translate\] beam = 5: a"):
        Translator(loaded, config(beam=5)).changed({"n_best": 8}, "request")


def test_settings_that_follow_from_others_follow_from_the_new_ones(loaded):
    def penalties(given, *changes):
        translator = Translator(loaded, resolve(TranslateConfig, ("serve", given)))
        for settings in changes:
            translator = translator.changed(settings)
        return translator.config.length_penalty, translator.config.min_length_ratio

    paper, usual = penalties({"search": "paper"}), penalties({})
    assert paper == (0.0, 0.5) != usual
    assert penalties({"search": "paper"}, {"beam": 3}) == paper
    assert penalties({"search": "paper"}, {"beam": 3}, {"search": "beam"}) == usual
    assert penalties({"search": "paper", "length_penalty": 1.0}, {"beam": 3}) == (1.0, 0.5)


def test_settings_for_only_some_lines(loaded):
    translator = Translator(loaded, config())
    assert len(next(translator.translate(["the fox ."], n_best=3)).n_best) == 3
    assert len(next(translator.translate(["the fox ."])).n_best) == 1
    for wrong in ({"device": "cpu"}, {"beams": 4}, {"beam": 0}, {"beam": "x"}):
        with pytest.raises(UsageError):
            translator.translate(["a"], **wrong)


def test_an_ensemble_of_one_model_twice_is_that_model(loaded):
    one = found_by(loaded, LINES)
    for ensemble in ("probability", "log"):
        two = list(Translator([loaded, loaded], config(ensemble=ensemble)).translate(LINES))
        assert [t.text for t in two] == [t.text for t in one]
        assert [t.score for t in two] == pytest.approx([t.score for t in one], abs=1e-5)
        assert all(t.alignment == pytest.approx(o.alignment, abs=1e-5) for t, o in zip(two, one, strict=True))
    other = make_loaded(Tokenizers.spaced("en", "fr"), [*WORDS, "more"])
    copying = make_loaded(Tokenizers.spaced("en", "fr"), WORDS, copy=True)
    for wrong, message in ((other, "vocabulary"), (copying, "either all models of an ensemble copy words, or none")):
        with pytest.raises(UsageError, match=message):
            Translator([loaded, wrong])


def test_a_translation_has_only_candidates(loaded, tmp_path):
    (tmp_path / "lexicon").write_text("the red\nfox boat\n")
    settings = {"lexicon": str(tmp_path / "lexicon"), "candidates": 1}
    found = found_by(loaded, ["the fox", "a", "sees a boat"], **settings)
    assert set(found[0].tokens) <= {"red", "boat", "the"}
    assert set(found[1].tokens) <= {"the"}
    everything = found_by(loaded, LINES, lexicon=settings["lexicon"], candidates=len(WORDS))
    assert [t.text for t in everything] == [t.text for t in found_by(loaded, LINES)]


def test_loaded_from_a_folder(tmp_path, random_model_directory):
    folder = random_model_directory(tmp_path, ["a", "b"], ["c", "d"], lambda model: None)
    translator = nmtalign.Translator.load(folder, beam=2)
    found = list(translator.translate(iter(["a b", ""])))
    assert [t.source for t in found] == ["a b", ""]
    made = [pickle.loads(pickle.dumps(translator)) for _ in range(2)]  # noqa: S301 - loaded once per process
    assert made[0] is made[1]
    assert list(made[0].translate(["a b", ""])) == found
    pairs = [("a b", "c d")]
    assert list(nmtalign.align(folder, pairs)) == list(nmtalign.align(folder, pairs))
    with pytest.raises(TypeError, match=r"only a translator that was made by Translator.load"):
        pickle.dumps(made[0].changed({"beam": 3}))
    (folder / "best.safetensors").rename(folder / "last.safetensors")
    (last,) = nmtalign.Translator.load(folder / "last.safetensors", beam=2).translate(["a b"])
    assert last.text == found[0].text
    with pytest.raises(UsageError, match="beams"):
        nmtalign.Translator.load(folder, beams=2)


def test_unknown_words_are_copied_or_looked_up(loaded, tmp_path):
    loaded = made_doubtful(loaded)
    assert "<unk>" not in found_by(loaded, ["hedgehogs"])[0].text
    assert set(found_by(loaded, ["hedgehogs"], allow_unk=True)[0].tokens) == {"<unk>"}
    assert set(found_by(loaded, ["hedgehogs"], replace_unk=True)[0].tokens) == {"hedgehogs"}
    (tmp_path / "lexicon").write_text("hedgehogs hérissons\n")
    settings = {"replace_unk": True, "lexicon": str(tmp_path / "lexicon")}
    assert set(found_by(loaded, ["hedgehogs"], **settings)[0].text.split()) == {"hérissons"}


@pytest.fixture(scope="module")
def copying():
    """A model that copies every word from the source."""
    loaded = make_loaded(Tokenizers.spaced("en", "fr"), WORDS, copy=True)
    with torch.no_grad():
        loaded.model.copying.bias -= 30
    return loaded


def test_a_copying_model_has_no_unknown_words(copying, tmp_path):
    lines = ["the hedgehogs", "", "cranes of the hedgehogs of cranes", "a boat"]
    settings = {"min_length_ratio": 0.9, "word_scores": True}
    for more in ({}, {"n_best": 3}, {"sample": True, "n_best": 3}, {"max_source_length": 2}, {"allow_unk": True}):
        for line, found in zip(lines, found_by(copying, lines, **settings, **more), strict=True):
            for one in found.n_best:
                assert set(one.tokens) <= set(line.split())
                assert one.text == " ".join(one.tokens)
            assert found.source_unknown == sum(word not in WORDS for word in line.split())
    assert any("hedgehogs" in one.tokens for one in found_by(copying, ["the hedgehogs"], n_best=3)[0].n_best)
    request = Request("a hedgehogs boat", prefix="hedgehogs a", phrases=("boat hedgehogs",))
    (found,) = Translator(copying, config()).translate([request])
    assert found.text.startswith("hedgehogs a")
    assert "boat hedgehogs" in found.text
    # A lexicon restricts the words of the vocabulary, not those that are copied.
    (tmp_path / "lexicon").write_text("the fox 0.5\nfox fox 0.5\n")
    for found in found_by(copying, lines[:1] * 2 + lines[2:], lexicon=str(tmp_path / "lexicon"), candidates=1):
        assert set(found.tokens) <= set(found.source_tokens)


def test_unknown_pieces(subwords, tmp_path):
    subwords = made_doubtful(subwords)
    settings = {"replace_unk": True, "max_length_ratio": 2.0}
    # A known piece: the word that it is part of.
    assert set(found_by(subwords, ["seen"], **settings)[0].text.split()) == {"seen"}
    # An unknown one: itself, for the rest of the word has its own place in the translation.
    found = found_by(subwords, ["猫"], **settings)[0]
    assert set(found.tokens) <= {"猫", "▁猫", "▁"}
    (tmp_path / "lexicon").write_text("seen vu\n")
    found = found_by(subwords, ["seen"], lexicon=str(tmp_path / "lexicon"), **settings)[0]
    assert set(found.tokens) == {"▁vu"}


def test_lines_never_contain_the_end_of_a_line():
    loaded = make_loaded(Tokenizers.spaced(), ["x\ry", "z\r"])
    for translation in found_by(loaded, ["a b c", "d"], n_best=3):
        assert not {"\r", "\n"} & set("".join(a.text for a in translation.n_best))


def test_long_sentences_make_small_batches(loaded):
    shapes = []
    options = {"max_length_ratio": 0.1, "batch_size": 402}
    translator = watched(loaded, lambda source: shapes.append(tuple(source.shape)), **options)
    list(translator.translate(["a fox"] * 6 + ["a fox " * 100] * 3))
    assert sorted(shapes) == [(2, 201), (2, 201), (5, 3)]


def test_a_batch_that_is_too_large_is_halved(loaded):
    room = 1

    def small_machine(source):
        if len(source) > room:
            raise MemoryError

    translator = watched(loaded, small_machine)
    expected = [translation.text for translation in found_by(loaded, LINES)]
    assert [translation.text for translation in translator.translate(LINES)] == expected
    room = 0
    with pytest.raises(ResourceError, match="out of memory with one sentence of"):
        list(translator.translate(LINES))


def test_what_is_raised_in_a_thread_is_raised_here(loaded):
    def broken(source):
        raise KeyError("lost")

    torch.set_num_threads(2)
    with pytest.raises(KeyError, match="lost"):
        list(watched(loaded, broken).translate(LINES * 5))


def test_other_settings_do_not_read_files_again(loaded, tmp_path):
    terms = terms_file(tmp_path, "fox\tboat\n")
    translator = Translator(loaded, config(glossary=terms))
    Path(terms).write_text("fox\tred\n")
    assert "boat" in next(translator.translate(["fox"], beam=2)).text.split()
    assert "red" in next(translator.translate(["fox"], glossary=terms)).text.split()
    Path(terms).unlink()
    assert "boat" in next(translator.translate(["fox"], beam=2)).text.split()
    with pytest.raises(InputError, match="cannot read"):
        translator.translate(["fox"], glossary=terms)


def test_unknown_words_of_a_glossary_are_reported_once(loaded, tmp_path):
    (notice,) = Translator(loaded, config(glossary=terms_file(tmp_path))).notices()
    assert "1 of 2 translations have words that the model does not know, first in line 2: 'Zorglub'" in notice
    assert Translator(loaded, config(glossary=terms_file(tmp_path, "fox\tboat\n"))).notices() == []
    assert Translator(loaded, config()).notices() == []
    (notice,) = Translator(loaded, config(glossary=terms_file(tmp_path, "# nothing\n"))).notices()
    assert notice.endswith("terms.tsv: contains no term")
