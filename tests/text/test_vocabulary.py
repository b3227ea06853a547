import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.errors import FormatError, InputError
from nmtalign.text.tokenizer import EOS, EOS_ID, UNK, UNK_ID, Vocabulary, is_word, read_entries

ODD = st.sampled_from("\u2028\u0085\r\0\x1c\ufeff")
TEXTS = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]) | ODD, min_size=1)
WORDS = TEXTS.filter(lambda word: word not in (EOS, UNK))


@settings(max_examples=50)
@given(st.lists(WORDS, unique=True))
def test_any_words_come_back_from_a_file(tmp_path_factory, words):
    path = tmp_path_factory.mktemp("vocabulary") / "words.txt"
    vocabulary = Vocabulary([EOS, UNK, *words])
    vocabulary.save(path)
    loaded = Vocabulary.load(path)
    assert loaded == vocabulary
    assert loaded.decode(loaded.encode(words)) == words
    assert path.read_bytes().split(b"\n")[:-1] == [word.encode() for word in vocabulary.words]


def test_only_tokens_with_letters_are_words():
    tokens = ["▁", "猫", ",", "5", "6", "!", "the", "☺", "ก็", "\u0301", "<unk>"]
    assert list(filter(is_word, tokens)) == ["猫", "the", "ก็", "<unk>"]


@pytest.mark.parametrize("known", ["NFC", "NFD"])
@pytest.mark.parametrize("written", ["NFC", "NFD"])
def test_a_line_gets_the_form_in_which_its_words_are_known(known, written):
    line = "Schüler hören Ẹ̀kọ́"
    vocabulary = Vocabulary([EOS, UNK, *unicodedata.normalize(known, line).split()])
    tokens = vocabulary.known_tokens(unicodedata.normalize(written, line) + " Ü", str.split)
    assert tokens[:3] == unicodedata.normalize(known, line).split()
    unknown = vocabulary.known_tokens(unicodedata.normalize(written, "Übel"), str.split)
    assert unknown == [unicodedata.normalize(written, "Übel")]  # it stays as it is written


def test_special_names_in_text_are_unknown_words():
    vocabulary = Vocabulary([EOS, UNK, "word"])
    assert vocabulary.encode([EOS, UNK, "word", "other"]) == [UNK_ID, UNK_ID, 2, UNK_ID]
    assert vocabulary.decode([EOS_ID, UNK_ID, 2]) == [EOS, UNK, "word"]
    assert [word in vocabulary for word in (EOS, UNK, "word", "other")] == [False, False, True, False]


def test_shortlist_counts_the_specials_and_breaks_ties_by_code_point():
    counts = {"b": 3, "a": 3, "é": 3, "rare": 1, "often": 9, EOS: 50, UNK: 40}.items()
    vocabulary = Vocabulary.shortlist(counts, 5)
    assert vocabulary.words == (EOS, UNK, "often", "a", "b")
    assert len(Vocabulary.shortlist(counts, 100)) == 7
    assert Vocabulary.shortlist(counts, 100, min_count=2).words == (EOS, UNK, "often", "a", "b", "é")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: a vocabulary starts with"),
        (b"the\na\n", "line 1: a vocabulary starts with"),
        (b"</s>\r\n<unk>\r\n", "line 1: a vocabulary starts with"),
        (b"</s>\n<unk>\na\nb\na\n", "line 5: 'a' is already on line 3"),
        (b"</s>\n<unk>\na\n</s>\n", "line 4: '</s>' is already on line 1"),
        (b"</s>\n<unk>\na\n\nb\n", "line 4: an empty word"),
        (b"</s>\n<unk>\n\xff\n", "line 3: not UTF-8"),
    ],
)
def test_what_is_no_vocabulary_is_refused_by_file_and_line(tmp_path, content, message):
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=rf"words\.txt: {message}"):
        Vocabulary.load(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(FormatError, match=r"none\.txt: cannot read the vocabulary"):
        Vocabulary.load(tmp_path / "none.txt")


def test_entries_come_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "lexicon"
    path.write_text("fox renard 0.4\nfox\tgoupil  0.6\nox bœuf\nNULL le 1\nfox <eps> -0.1\na\u00a0b ab -3.5\n")
    assert list(read_entries(path)) == [
        ("fox", "renard", 0.4), ("fox", "goupil", 0.6), ("ox", "bœuf", 1.0), ("a\u00a0b", "ab", -3.5),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fox", "1 fields"),
        ("", "0 fields"),
        ("the red fox 0.5", "4 fields"),
        ("red fox renard", "'renard' is not a probability"),
        ("fox renard nan", "'nan' is not a probability"),
        ("\udcff un", "not UTF-8"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, message):
    path = tmp_path / "lexicon"
    path.write_bytes(f"a un 1\n{line}\n".encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError) as raised:
        list(read_entries(path))
    assert str(raised.value).startswith(f"{path}: line 2: ")
    assert message in str(raised.value)
