"""Detokenised text is spaced as its language writes it, or as a training text does."""

import pickle
import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.text.tokenizer import Counts, MosesWords, Spacing

WORDS = {"en": MosesWords("en"), "fr": MosesWords("fr")}

ENGLISH = [
    'He said "come in" (twice).',
    '"What?" he said.',
    'so it was," he said.',
    "it was the end of it.\"",
    "“Quite so,” she said. “Very well.”",
    "She said 'come in' and left.",
    "He called it ‘single’ quotes, didn’t he? ‘It’s nothing’ again.",
    "'Hello,' he said, 'how are you?'",
    "'(Yes)' she said.",
    "Call +1 (555) 123-4567 at +5 degrees, x + 1 is 5 + 1.",
    "It's the dogs' tails and the cat's, isn't it?",
    "It is five o'clock, it was the '90s.",
    "The neighbour’s bell; we didn’t hear it, the dogs’ tails.",
    "O’Brien of the Pays-d’en-Haut and the Gwich’in.",
    "``this'' and ``that''.",
    "1,000.50 and 1 000,50 and 100,000,000.00",
    "at 10:30, won 5:2, drawn 1:250,000, in room: 7",
    "It is 50% off; 60%, 70%? It costs $5, €5, £7.",
    "It is 20°C at 48°25′N, turned by 90° now.",
    "See http://www.example.org/a-b/c.html and mail john.doe@example.org.",
    "C:\\Users\\x and call f()",
    "well-known -- or — not - x, e‑mail",
    "section 83(1)(b) and (2)(i), a)(i), see (above) a) one, 5(1) (below) (b) two",
    "a/b, and/or, Tom & Jerry, Windows™",
    "e.g. A. B. Smith, J.R.R. Tolkien, U.S. law.",
    "",
]  # fmt: skip
FRENCH = [
    "L'homme qu'elle attend aujourd'hui n'est pas là.",
    "L’homme qu’elle attend aujourd’hui n’est pas là, jusqu’à midi, presqu’île.",
    "Est-ce vrai ? Oui : « très » vrai !",
    "Il dit : « Viens ! »",
    "Il a dit \"oui\" (non).",
    "M. X… (…) et puis [...]",
    "Voir l’alinéa 83(1)b) du texte, ou l’alinéa (2)c)(ii), ou 27d)(ii), sauf",
    "Il gagne 3,5 % par an ; 50 %, 60 %",
    "Il coûte 5 €, 1 000,50 $ ou 5 000 $ au plus.",
    "l’étudiant·e, St. John’s et les Gwich’in",
    "M. Dupont, Mme X, p. 5, 1er mai 2020, etc.",
]  # fmt: skip


@pytest.mark.parametrize(
    ("language", "line"),
    [
        *(("en", line) for line in ENGLISH),
        *(("fr", line) for line in FRENCH),
        ("de", "Er sagt „ja“ und ‚nein‘, geht's an (so), ein „Hallo“-Ruf."),
        ("de", "»Ja«, sagte er“ und „ging."),
        ("da", "Han sagde: »Ja, “nej” og ‘ja’,« til »hende«-filen."),
        ("ru", "«Да», и „Мир“ вчера."),
        ("sr", "Рекао је „да“ и „не”."),
        ("hr", "Rekao je.“"),
        ("sv", "Han sade ”ja”, »nej» och 'kanske' nu."),
        ("sv", "”Ja, sade han."),
        ("fr", "'Oui', dit-il ; »so« et 'non'"),
        ("it", "Un po' di vino e un po' d'acqua: 'ciao'; un po’ di pane."),
        ("it", "Va' via 7"),
        ("es", "Dijo 'nada' y 'sí' ahora."),
        ("tr", "URL'lerinden"),
        ("uk", "Пам'ять об'єднала п'ять."),
        ("tr", "“Anna“ için"),
        ("ar", "قال «\u0615نعم» ثم"),
        ("cs", "Řekl „ano“ a „ne“."),
        ("ar", 'نعم"، ما هذا؟ لا؛ هذا'),
        ("ur", "یہ ہے۔ وہ"),
        ("hi", "यह है। वह।"),
        ("es", "¿Qué? ¡No! «sí»"),
        ("it", "l'uomo dell'anno «sì»"),
        ("fi", "Hän sanoi ”kyllä” heti."),
        ("zh", "你好，世界。"),
        ("src", "Hello, Mr. X."),
    ],
)
def test_a_line_comes_back(language: str, line: str) -> None:
    words = WORDS.get(language) or MosesWords(language)
    assert words.detokenize(words.tokenize(line)) == line


def test_a_line_of_many_quotation_marks_takes_linear_time() -> None:
    """Minutes if the time is quadratic: the test's time limit ends it."""
    for marks in ('", ', "s ' "):
        assert len(WORDS["en"].detokenize((200_000 * marks).split())) > 300_000


@given(st.sampled_from(["en", "fr"]), st.text(max_size=30))
def test_nothing_but_spaces_changes(language: str, line: str) -> None:
    tokens = WORDS[language].tokenize(line)
    text = WORDS[language].detokenize(tokens)
    assert "".join(text.split()) == "".join("".join(tokens).split())
    assert text == text.strip()
    assert "  " not in text


def learned(language: str, lines: list[str]) -> MosesWords:
    words, counts = MosesWords(language), Counter[tuple[str, str, str]]()
    for line in lines:
        words.spacing.count(line, words.tokenize(line), counts)
    return MosesWords(words.language, words.spacing.learn(counts))


def test_the_spacing_of_a_text_is_learned() -> None:
    text = ["Qui est-ce? Lui, et moi; «oui», dit-il: 50% et 1\u00a0000\u00a0000 de plus!", "Non; rien (tout): «va»!"]
    words = learned("fr", 30 * text)
    assert words.spacing.learned["any ;"] == ""
    assert words.spacing.learned["0 000"] == "\u00a0"
    for line in text:
        assert words.detokenize(words.tokenize(line)) == line
    assert MosesWords("fr", words.spacing.learned).detokenize(["a", ";", "b"]) == "a; b"
    assert WORDS["fr"].detokenize(["a", ";", "b"]) == "a ; b"


@pytest.mark.parametrize("space", [" ", "\u00a0", "\u202f"])
def test_the_kind_of_space_is_learned(space: str) -> None:
    line = f"Quoi{space}? Il dit{space}: «{space}Viens{space}!{space}» à 5{space}% ou 5{space}€{space}; bien{space}!"
    words = learned("fr", 30 * [line])
    assert words.detokenize(words.tokenize(line)) == line
    assert (words.spacing.learned == {}) == (space == " ")


def test_a_few_lines_or_a_narrow_majority_teach_nothing() -> None:
    assert learned("fr", 5 * ["Oui; non"]).spacing.learned == {}
    assert learned("fr", 30 * ["Oui; non", "Oui ; non"]).spacing.learned == {}
    assert learned("en", 30 * ["He said: yes; no? “Well” (so), 50% of $5!"]).spacing.learned == {}


def test_a_line_that_the_tokeniser_changed_is_counted_up_to_there() -> None:
    counts: Counts = Counter()
    Spacing("en").count("a ,b\x01c , d", ["a", ",", "bc", ",", "d"], counts)
    assert counts == {("a", ",", " "): 1}


@pytest.mark.parametrize(
    ("language", "lines"),
    [
        ("mt", ["Il-gvern ta' Malta u ta' Għawdex.", "Mar f'Ruma ma' Ruma, ta' Ruma.", "M'hemmx sa' fejn."]),
        ("mt", ["Il-gvern ta’ Malta u ta’ Għawdex.", "Mar f’Malta ma’ ħuh b’mod tajjeb."]),
        ("nl", ["Hij ging van Anna 's avonds naar huis.", "Anna's boek.", "Foto's van 's morgens."]),
        ("nl", ["Hij ging van Anna ’s avonds naar huis.", "Anna’s boek.", "In ’t bos is ’t stil.", "De jaren ’90."]),
        ("af", ["Dit is 'n hond en 'n kat.", "'n Man sien die foto's."]),
        ("ca", ["L'home d'aquí s'ha perdut.", "Porta'm l'aigua 'bona' ara."]),
        ("it", ["Un po' di vino e l'acqua.", "C'è un po' d'aria; va' via!", "Ha detto 'ciao' negli anni '60."]),
        ("fr", ["Il dit 'oui' d'abord.", "L’été d’avant, les ’80."]),
        ("en", ["The dogs' bones and the dog's.", "We rock 'n' roll.", "Get 'em.", "James' book.", "She said 'yes'."]),
        ("en", ["The dogs’ bones and the dog’s.", "We rock ’n’ roll.", "Get ’em in the ’90s.", "She said ‘yes’."]),
        ("tr", ["Ankara'dan İstanbul'a gitti.", "Türkiye'nin başkenti Ankara'dır.", "2020'de Ali 'evet' dedi."]),
        ("uk", ["Комп'ютер об'єднав п'ять сім'ї.", "Він сказав 'так' і пішов.", "Об’єкт і п’ять.", "Обʼєкт."]),
        ("uz", ["O'zbekiston bog'lari go'zal.", "To'g'ri ma'lumot.", "Oʻzbek maʼlumot."]),
        ("br", ["Marc'hadour ar c'hoarzh a zo sec'h."]),
        ("haw", ["O ka 'ōlelo o ka 'āina, kama'aina, Hawaiʻi."]),
        ("de", ["Das ist Hans' Auto und Marx' Werk.", "Wie geht's?", "Er sagte 'nein' und ging."]),
        ("he", ['צה"ל וארה"ב הודיעו.', "ג'ורג' אמר \"שלום\" היום.", "צה״ל ג׳ורג׳ אמר."]),
        ("ga", ["D'imigh sé b'fhéidir go dtí M'athair."]),
        ("el", ["Σ' αγαπώ και μ' αρέσει.", "Απ’ το σπίτι, γι’ αυτό."]),
        ("gd", ["Tha e 'g iarraidh a' chait."]),
        ("cy", ["Mae'r gath a'r ci, ond mae 'na law."]),
        ("en", ["A · B · C", "1 ½ cups or 2 ¼ pints"]),
        ("ca", [unicodedata.normalize("NFD", "L'Àngel d'Évora s'ha perdut.")]),
        ("yo", ["Ẹ̀kọ́ ọ̀rọ̀ ni 'rẹ̀' yẹn."]),
        ("hi", ["हिन्दी में 'क्षत्रिय' लिखना, क्\u200dष है।"]),
        ("fa", ["می\u200cخواهم کتاب\u200cها را؛ ببینم."]),
        ("en", ["Hi 👩\u200d💻 and 🇩🇪 or 1\ufe0f\u20e3 ❤\ufe0f ok!"]),
        ("ja", ["か\u3099くせい。"]),
    ],
)  # fmt: skip
def test_apostrophes_and_marks_come_back_as_the_training_text_has_them(language: str, lines: list[str]) -> None:
    words = learned(language, 100 * lines)
    words = pickle.loads(pickle.dumps(words))  # noqa: S301
    assert [words.detokenize(words.tokenize(line)) for line in lines] == lines


def test_quotations_do_not_follow_apostrophes_or_the_other_way_round() -> None:
    """The single quotation mark of Turkish is an apostrophe, and says nothing about the double one."""
    words = learned("tr", 100 * ["Ankara'dan gitti.", 'Ali "evet" dedi.'])
    assert words.detokenize(words.tokenize('Bursa\'dan "hayır" dedi.')) == 'Bursa\'dan "hayır" dedi.'
