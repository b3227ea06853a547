"""Glossaries: which terms a text contains, and which files are refused."""

import pytest

from nmtalign.errors import InputError
from nmtalign.translating.glossary import GivenPhrase, Glossary


def glossary(tmp_path, text, tokenized=False):
    (tmp_path / "terms.tsv").write_text(text, encoding="utf-8")
    return Glossary.read(tmp_path / "terms.tsv", tokenized)


def targets_of(terms, text):
    return [target for _, target in terms.targets(text)]


TERMS = """# animals
fox\trenard
red fox\trenard roux
sees the red\tvoit le
Fox\tM. Renard

e-mail\tcourriel
#hash\tdièse
猫\tchat
黒い猫\tchat noir
U.S.\tÉtats-Unis
"""


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("the fox, and a fox.", ["renard", "renard"]),
        ("THE FOX", ["renard"]),  # a term in lower case
        ("Mr Fox and the fox", ["M. Renard", "renard"]),  # the same case comes first
        ("the foxes and an outfox", []),
        ("fox's 'fox'", ["renard", "renard"]),
        ("the red fox", ["renard roux"]),
        ("sees the red fox", ["voit le", "renard"]),  # three words before two
        ("fox-like mail e-mail", ["courriel"]),
        ("#hash", ["dièse"]),
        ("黒い猫と猫", ["chat noir", "chat"]),
        ("the U.S. army", ["États-Unis"]),
        ("the u.s. army", []),
        ("", []),
        ("animals", []),
    ],
)
def test_terms_of_a_text(tmp_path, text, targets):
    assert targets_of(glossary(tmp_path, TERMS), text) == targets


@pytest.mark.parametrize(
    ("term", "text", "times"),
    [
        ("us", "The US army helps us. Us too.", 2),
        ("us", "US", 0),
        ("US", "us, Us and US", 1),
        ("fox", "THE FOX RUNS", 1),
        ("polish", "Polish the POLISH shoes", 1),
        ("e-mail", "E-Mail an e‑mail", 2),
        ("का", "काम का", 1),  # Hindi: vowel signs
        ("कि", "किताब", 0),
        ("ก", "กาแฟ เก กี", 0),  # Thai: vowels behind and before a consonant
        ("แมว", "ฉันรักแมวมาก", 1),
        ("猫", "我喜欢猫,猫也喜欢我。", 2),
        ("パン", "ジャパンのパン", 1),
        ("كتاب", "كِتَاب كتاب", 1),  # Arabic with and without vowels
        ("می", "می\u200cخواهم", 0),  # Persian: a joiner inside a word
        ("کتاب\u200cها", "این کتاب\u200cها", 1),
        ("cafe", "un cafe\u0301, un café", 0),
        ("café", "un cafe\u0301, un Café", 2),
        ("cafe\u0301", "un café", 1),
        ("istanbul", "İstanbul’da, Istanbul", 2),
        ("İstanbul", "İSTANBUL İstanbul’da", 1),
        ("i̇stanbul", "İstanbul", 1),
        ("ısı", "Isı, isi", 1),
        ("don't", "I don’t; Don't", 2),
        ("l’eau", "de l'eau", 1),
        ("straße", "DIE STRASSE", 1),
        ("οδος", "Η ΟΔΟΣ", 1),
        ("fish", "the ﬁsh", 1),
        ("co-operate", "to co-op\u00aderate", 1),
        ("AT&T", "AT&T's, AT & T", 1),
        ("C++", "C++, not C", 1),
        ("C", "C++ and C# and C.", 1),
        ("C#", "in C#.", 1),
        ("Node", "Node.js", 0),
        ("Node.js", "Is it Node.js?", 1),
        ("10", "10,000 or 10.5 or 10", 1),
        ("50%", "at 50%.", 1),
        ("--no-cache", "use --no-cache", 1),
        ("https://example.org/a?b=1", "see https://example.org/a?b=1.", 1),
        ("example", "https://example.org/example mail@example.org", 0),
        ("🇫🇷", "from 🇫🇷!", 1),
        ("👩", "👩\u200d💻", 0),
        ('"cat"', 'a "cat"', 1),
        ("[x]", "a [x]", 1),
    ],
)
def test_whole_words_in_all_spellings(tmp_path, term, text, times):
    assert targets_of(glossary(tmp_path, f"{term}\tX\n"), text) == ["X"] * times


def test_the_place_of_a_term_counts_the_characters_before_it(tmp_path):
    found = glossary(tmp_path, TERMS).targets("Die cafe\u0301s: a  red fox, 黒い猫")
    assert found == [(10, "renard roux"), (17, "chat noir")]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["...a", "Dr.", "a://", "a-b", "@a", "🇫🇷"])
def test_a_line_without_spaces_takes_linear_time(tmp_path, piece):
    assert targets_of(glossary(tmp_path, TERMS), piece * 100_000 + " red fox") == ["renard roux"]


def test_terms_that_overlap(tmp_path):
    found = glossary(tmp_path, "US\tÉtats-Unis\nus\tnous\nred fox\trenard roux\nfox\trenard\nfox runs\tcourt\n")
    expected = ["nous", "États-Unis", "renard roux", "renard"]
    assert targets_of(found, "Us and the US: the red fox runs, a fox.") == expected


def phrase(text, *others, language="fr", spaced=False, plain=""):
    return GivenPhrase.of(text, plain or text, [text, *others], language, spaced)


def test_where_a_phrase_is_found():
    assert phrase("istanbul", language="tr").pattern.search("İstanbul")
    assert phrase("고양이").pattern.search("고양이가")  # a particle follows without a space
    assert not phrase("고양이").pattern.search("들고양이")
    assert phrase("10").pattern.search("de 10.")
    assert not phrase("10").pattern.search("3.10")
    assert phrase("กา").pattern.search("มีกาดำ")  # Thai: no vowel belongs to the word
    assert not phrase("ก").pattern.search("กาแฟ เก กี")


@pytest.mark.parametrize(
    ("given", "text", "expected"),
    [
        ("chat", "Chat dort. Un Chat.", "Chat dort. Un chat."),
        ("chat", "Il dit : « Chat ! »", "Il dit : « chat ! »"),
        ("chat", "Le chien dort. Chat aussi.", "Le chien dort. Chat aussi."),
        ("chat", "chaton chats chat-là", "chaton chats chat-là"),
        ("AT&T", "chez AT & T.", "chez AT&T."),
        ("C++", "C + +", "C++"),
        ("10,000", "10 , 000 et 10,000.5", "10,000 et 10,000.5"),
        ("l’eau", "de l'eau", "de l’eau"),
        ("cafe\u0301", "un café", "un cafe\u0301"),
        ("https://a.org/?b=1#c", "https : / / a.org / ? b = 1 # c", "https://a.org/?b=1#c"),
        ("iPhone", "IPhone.", "iPhone."),
        ("🇫🇷", "le 🇫 🇷", "le 🇫🇷"),
        ("का", "काम का", "काम का"),
        ("喜欢", "我 喜 欢", "我 喜欢"),
    ],
)
def test_a_phrase_is_written_as_it_was_given(given, text, expected):
    assert phrase(given).written(text, capitals=False, kept=0) == expected


def test_capitals_of_a_phrase():
    assert phrase("chat").written("chat. Un chat", capitals=True, kept=0) == "Chat. Un chat"
    assert phrase("chat").written("Chat, Chat", capitals=False, kept=5) == "Chat, chat"
    assert phrase("istanbul", language="tr").written("istanbul.", capitals=True, kept=0) == "İstanbul."
    assert phrase("კატა", language="ka").written("კატა.", capitals=True, kept=0) == "კატა."
    assert phrase("https://a.org").written("https://a.org", capitals=True, kept=0) == "https://a.org"
    assert phrase("M. chat").written("M. Chat", capitals=True, kept=0) == "M. Chat"
    assert not phrase("renard", "Renard").pattern.search("Renard")  # each of both must occur
    assert not phrase("a&b", spaced=True).pattern.search("a & b")
    assert phrase("chat", plain="chAt").pattern.search("un chAt")


def test_words_of_tokenised_text_are_the_parts_between_spaces(tmp_path):
    found = glossary(tmp_path, "▁fox\t▁renard\na b\tx\nc,\ty\n", tokenized=True)
    assert targets_of(found, "▁the ▁fox es ▁Fox a b a-b c , c,") == ["▁renard", "▁renard", "x", "y"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fox renard", "needs one tab, with text on both sides: a term, a tab, its translation"),
        ("fox\t", "needs one tab, with text on both sides"),
        ("\trenard", "needs one tab, with text on both sides"),
        ("fox\trenard\tm", "needs one tab, with text on both sides"),
        ("cat\tchatte", "'cat' has another translation in line 1"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, message):
    with pytest.raises(InputError, match=rf"terms\.tsv: line 3: {message}"):
        glossary(tmp_path, f"cat\tchat\n\n{line}\n")


def test_equal_lines_and_empty_files_are_accepted(tmp_path):
    assert targets_of(glossary(tmp_path, "cat\tchat\ncat\tchat\r\n"), "a cat") == ["chat"]
    assert targets_of(glossary(tmp_path, ""), "a cat") == []


def test_a_large_glossary(tmp_path):
    large = glossary(tmp_path, "".join(f"term{number} of law\tterme{number}\n" for number in range(20_000)))
    assert targets_of(large, "the term7 of law and the term8 of laws; Term19999 of Law") == ["terme7", "terme19999"]
