import json
import unicodedata

import pytest
import sentencepiece
from helpers.pieces import learned_pieces, words_of
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.errors import FormatError
from nmtalign.text.tokenizer import BYTE_TOKENS, SpacedWords, TextBytes, Tokenizers, blanks_to_spaces, normalized

LINES = [f"the small river {word} near the old mill" for word in ("runs", "bends", "sleeps", "rises")] * 5
AS_PREP = {"bos_id": -1, "eos_id": -1, "unk_id": 0, "normalization_rule_name": "identity"}


@pytest.fixture(scope="module")
def pieces():
    return learned_pieces(LINES, 40, **AS_PREP)


ODD = ["the", " small", "▁", "☃", "\u00a0", "\t", "  ", "\0", "river", "mill☃☃", "\u3000", "e"]


ACCENTS = ["e", "ö", "e\u0301", "\u0316", "\u0300"]
MARKED = [*ACCENTS, "한", "\u1112", "\u1161", "நொ", "\u0bc6", "\u0bbe", "が", "\u3099", " "]


@given(st.lists(st.sampled_from(MARKED), min_size=1100, max_size=1200), st.sampled_from(["NFC", "NFD"]))
@settings(max_examples=20)
def test_a_long_text_has_the_normal_form_of_unicode(parts, form):
    text = "".join(parts)
    assert normalized(form, text) == unicodedata.normalize(form, text)


def test_a_long_row_of_marks_is_sorted_in_short_parts(monkeypatch):
    sizes = []
    usual = unicodedata.normalize
    monkeypatch.setattr(unicodedata, "normalize", lambda form, text: sizes.append(len(text)) or usual(form, text))
    assert len(normalized("NFD", "é" + "\u0300\u0316" * 10_000)) == 20_002
    assert max(sizes) < 50


@given(st.lists(st.one_of(st.sampled_from(ODD), st.text(max_size=4)), max_size=12))
def test_pieces_found_word_by_word_are_those_of_the_line(pieces, parts):
    line = "".join(parts)
    plain = sentencepiece.SentencePieceProcessor(model_proto=pieces.model)
    assert pieces.tokenize(line) == plain.encode(blanks_to_spaces(line), out_type=str)


@pytest.mark.parametrize("options", [{"model_type": "unigram"}, {"split_by_whitespace": False}])
def test_pieces_that_depend_on_the_words_around_are_those_of_the_whole_line(options):
    pieces = learned_pieces(LINES, 38, **AS_PREP, **options)
    plain = sentencepiece.SentencePieceProcessor(model_proto=pieces.model)
    for line in ("the river runs", *LINES[:4]):
        assert pieces.tokenize(line) == plain.encode(line, out_type=str)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a  b\tc ", ["a", "b", "c"]),
        ("a\u00a0b \u2028 c\u0085d \0", ["a\u00a0b", "\u2028", "c\u0085d", "\0"]),
        ("a\rb\x0bc\x0cd", ["a", "b", "c", "d"]),
        ("", []),
        (" ", []),
    ],
)
def test_spaced_words(line, words):
    spaced = SpacedWords()
    assert spaced.tokenize(line) == words
    assert spaced.detokenize(words) == " ".join(words)
    assert spaced.words(words) == words
    assert spaced.word_starts(words) is None


def test_pieces_come_back_and_know_their_words(pieces):
    line = "the mill bends"
    tokens = pieces.tokenize(line)
    assert len(tokens) > 3
    assert pieces.detokenize(tokens) == line
    assert pieces.words(tokens) == ["the", "mill", "bends"]
    index = words_of(pieces, tokens)
    assert sorted(set(index)) == [0, 1, 2]
    assert pieces.word_starts(tokens) == [*map(index.index, range(3)), len(tokens)]
    assert index == sorted(index)


@given(line=st.text(alphabet=st.characters(exclude_characters="\n▁", exclude_categories=["Cs"])))
def test_any_line_comes_back_but_for_blanks(pieces, line):
    tokens = pieces.tokenize(line)
    assert not any(" " in token or not token for token in tokens)
    assert pieces.detokenize(tokens).split() == line.split()
    assert len(pieces.words(tokens)) == len(set(words_of(pieces, tokens)))


@given(
    st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["", "▁<E2>", "Жук 你 😀", "\u00a0", " \t x"])
)
def test_bytes_of_any_line_come_back_but_for_blanks(text, more):
    tokenizer, line = TextBytes(), text + more + text
    tokens = tokenizer.tokenize(line)
    assert set(tokens) <= set(BYTE_TOKENS)
    assert tokenizer.detokenize(tokens) == blanks_to_spaces(line).strip(" ")
    assert len(tokens) == (len(f" {tokenizer.detokenize(tokens)}".encode()) if tokens else 0)
    words = SpacedWords().tokenize(line)
    assert tokenizer.words(tokens) == words
    assert words_of(tokenizer, tokens) == [n for n, word in enumerate(words) for _ in f" {word}".encode()]


@given(st.lists(st.one_of(st.sampled_from(BYTE_TOKENS), st.text(max_size=3))))
def test_any_tokens_are_one_line_of_text(tokens):
    for text in (TextBytes().detokenize(tokens), *TextBytes().words(tokens)):
        blanks = {" ", *"".join(token for token in tokens if token not in BYTE_TOKENS)}
        assert set(text) & set(" \t\n\v\f\r") <= blanks
        assert text.encode("utf-8", "replace").decode() == text


def test_tokens_of_bytes_are_readable():
    assert " ".join(TextBytes().tokenize(" Zoé\t<E2> ▁ ")) == "▁ Z o <C3> <A9> ▁ < E 2 > ▁ <E2> <96> <81>"
    assert TextBytes().detokenize(["▁", "a", "<C3>", "b", "<0A>", "▁", "<A9>"]) == "a\ufffdb\ufffd \ufffd"
    assert TextBytes().words(["<C3>", "<A9>", "▁", "a", "▁"]) == ["é", "a", "▁"]  # "" is `</s>` in an alignment file
    assert TextBytes().detokenize(["▁", "a", "▁Zoé", "<unk>"]) == "a Zoé<unk>"
    assert len({*BYTE_TOKENS}) == 256
    assert not any(not token.isprintable() or " " in token for token in BYTE_TOKENS)
    assert (Tokenizers(TextBytes(), TextBytes()).most_tokens(7), Tokenizers.spaced().most_tokens(7)) == (70, 7)
    assert Tokenizers(TextBytes(), TextBytes()).most_tokens(0) == 0


def test_tokenizers_are_saved_and_loaded(tmp_path, pieces):
    for name, tokenizers in (
        ("moses", Tokenizers.moses("en", "fr")),
        ("spaced", Tokenizers.spaced("en", "fr")),
        ("bytes", Tokenizers(TextBytes(), TextBytes(), "en", "fr")),
        ("sentencepiece", Tokenizers(pieces, pieces, "en", "fr")),
    ):
        folder = tmp_path / name
        tokenizers.save(folder)
        assert sorted(path.name for path in folder.iterdir()) == sorted(tokenizers.files())
        loaded = Tokenizers.load(folder)
        assert (loaded.kind, loaded.source_language, loaded.target_language) == (name, "en", "fr")
        assert loaded.source.tokenize("the old mill") == tokenizers.source.tokenize("the old mill")
        assert loaded.target.detokenize(loaded.target.tokenize("the old mill")) == "the old mill"


def test_damaged_settings_are_refused(tmp_path, pieces):
    with pytest.raises(FormatError, match=r"tokenizer\.json: cannot read"):
        Tokenizers.load(tmp_path)
    settings = tmp_path / "tokenizer.json"
    for content in ("{", "[]", "{}", '"x"'):
        settings.write_text(content)
        with pytest.raises(FormatError, match=r"tokenizer\.json: not the settings"):
            Tokenizers.load(tmp_path)
    settings.write_text(json.dumps({"kind": "magic", "source_language": "en", "target_language": "fr"}))
    with pytest.raises(FormatError, match="unknown kind of tokeniser 'magic'"):
        Tokenizers.load(tmp_path)
    Tokenizers(pieces, pieces, "en", "fr").save(tmp_path)
    (tmp_path / "target.spm").write_bytes(b"nonsense")
    with pytest.raises(FormatError, match=r"target\.spm: not a sentencepiece model"):
        Tokenizers.load(tmp_path)
    (tmp_path / "target.spm").write_bytes(pieces.model.replace(b"he", b"h\xff"))  # pieces that are not UTF-8
    with pytest.raises(FormatError, match=r"target\.spm: not a sentencepiece model"):
        Tokenizers.load(tmp_path)
    (tmp_path / "target.spm").unlink()
    with pytest.raises(FormatError, match=r"target\.spm: cannot read"):
        Tokenizers.load(tmp_path)


def test_learned_spacing_is_saved_and_loaded(tmp_path):
    Tokenizers.moses("en", "fr").save(tmp_path)
    assert "spacing" not in json.loads((tmp_path / "tokenizer.json").read_text())
    spacing = {"any ;": "", "« any": "\u00a0"}
    Tokenizers.moses("en", "fr", spacing).save(tmp_path)
    loaded = Tokenizers.load(tmp_path)
    assert loaded.target.detokenize(["oui", ";", "«", "non", "»"]) == "oui; «\u00a0non »"
    assert loaded.source.detokenize(["yes", ";"]) == "yes;"
    settings = json.loads((tmp_path / "tokenizer.json").read_text())
    for wrong in ([], {"any ;": "x"}, {"any ;": 1}, {"any": ""}, {"any ; a": ""}, "any ;"):
        (tmp_path / "tokenizer.json").write_text(json.dumps(settings | {"spacing": wrong}))
        with pytest.raises(FormatError, match=r"tokenizer\.json: not the settings"):
            Tokenizers.load(tmp_path)
