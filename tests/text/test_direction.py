"""In which language a text is, judged by two vocabularies: sample text, and real text if there is some."""

import itertools
import os
import re
import time
from pathlib import Path

import pytest

import nmtalign
from nmtalign.errors import InputError, UsageError
from nmtalign.files import SOURCE_VOCABULARY, TARGET_VOCABULARY
from nmtalign.text.languages import TextFit, check_lines, check_pairs, not_raw, traces
from nmtalign.text.tokenizer import Tokenizers, Vocabulary

ENGLISH = [
    "The old bank accepted the new law and the minister signed it with a black pen.",
    "A small cat sleeps on the chair of the king, and the dog looks at the moon.",
    "Where is the red house that the children saw in the village yesterday?",
]
FRENCH = [
    "La vieille banque a accepté la nouvelle loi et le ministre l'a signée avec un stylo noir.",
    "Un petit chat dort sur la chaise du roi, et le chien regarde la lune.",
    "Où est la maison rouge que les enfants ont vue dans le village hier ?",
]


@pytest.fixture(scope="module", params=["word", "bpe"])
def folder(request, tmp_path_factory) -> Path:
    """A corpus prepared from a few sentences, each in several variants."""
    folder = tmp_path_factory.mktemp(request.param)
    texts = write(folder, "text", {"en": ENGLISH * 5, "fr": FRENCH * 5})
    size = {} if request.param == "word" else {"size": "90"}
    nmtalign.prepare(*texts, folder, languages=("en", "fr"), vocabulary=request.param, **size)
    return folder


def empty_fit(folder: Path, side: int = 0, tokenized: bool = False) -> TextFit:
    vocabularies = Vocabulary.load(folder / SOURCE_VOCABULARY), Vocabulary.load(folder / TARGET_VOCABULARY)
    return TextFit(Tokenizers.load(folder), vocabularies, side, tokenized)


def fit_of(folder: Path, lines: list[str], side: int = 0) -> TextFit:
    fit = empty_fit(folder, side)
    for line in lines:
        fit.add(line)
    return fit


def write(folder: Path, name: str, texts: dict[str, list[str]]) -> tuple[Path, ...]:
    paths = tuple(folder / f"{name}.{code}" for code in texts)
    for path, lines in zip(paths, texts.values(), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return paths


def test_bytes_say_nothing_about_the_language(tmp_path):
    texts = write(tmp_path, "text", {"en": ENGLISH * 5, "fr": FRENCH * 5})
    nmtalign.prepare(*texts, tmp_path / "data", languages=("en", "fr"), vocabulary="bytes")
    fits = [fit_of(tmp_path / "data", lines * 5) for lines in (ENGLISH, FRENCH, ["Жук 你好 😀"])]
    assert not any(fit.fits_own() or fit.fits_other() or fit.own.share for fit in fits)


def test_text_of_the_other_side_is_noticed(folder):
    for side, (own, other) in enumerate([(ENGLISH, FRENCH), (FRENCH, ENGLISH)]):
        fits = [fit_of(folder, lines, side) for lines in (own, other)]
        assert [(fit.fits_own(), fit.fits_other()) for fit in fits] == [(True, False), (False, True)]


OTHER_SCRIPTS = {
    "zh": ["老师看见那个红色的房子，国王喜欢小猫。", "今天医生在村里买书。", "孩子们昨天在哪里看见了大狗？"],
    "th": ["ครูเห็นบ้านสีแดง", "วันนี้หมอซื้อหนังสือ", "เด็กๆ ชอบหมาตัวใหญ่"],
    "ru": ["Старый банк принял новый закон.", "Маленькая кошка спит на стуле.", "Где красный дом у реки?"],
}


@pytest.mark.parametrize("code", OTHER_SCRIPTS)
def test_text_of_another_script_is_noticed(tmp_path, code):
    """The bare "▁" before an unknown word, marks and digits are no known words."""
    lines, data = OTHER_SCRIPTS[code], tmp_path / "data"
    size = {} if code == "ru" else {"size": f"58:{40 if code == 'zh' else 32}"}
    options = {"languages": ("en", code), "workers": 1, **size}
    texts, dev = (write(tmp_path, name, {"en": ENGLISH * 10, code: lines * 10}) for name in ("text", "dev"))
    nmtalign.prepare(*texts, data, dev=dev, **options)
    for side, (own, strange) in enumerate([(ENGLISH, lines), (lines, ENGLISH)]):
        fit = fit_of(data, [f"{line} 12, 5 !" for line in strange * 4], side)
        assert (fit.own.share, fit.other.share, fit.fits_other()) == (1, 0, True)
        assert fit.evidence().startswith("0% of its words are frequent in")
        fit = fit_of(data, own * 4, side)
        assert (fit.own.share, fit.fits_own(), fit.fits_other()) == (0, True, False)
    problem = rf"dev\.{code} and \S*dev\.en seem to be {code} and en, and en-{code} is expected"
    with pytest.raises(InputError, match=problem):
        nmtalign.prepare(*texts, data, dev=dev[::-1], **options)


@pytest.mark.parametrize(
    "lines",
    [
        ["Mary Smith, John Miller, Anna Brown"] * 10,
        ["12 + 345 = 357 ; 7 * 6 = 42"] * 10,
        ["for i in range(len(xs)): xs[i] += 1"] * 10,
        ["", " ", "!"],
        ["OÙ EST LA MAISON ROUGE QUE LES ENFANTS ONT VUE ?"] * 10,
        [line for pair in zip(ENGLISH, FRENCH, strict=True) for line in pair] * 3,
        FRENCH[2:],  # too short
    ],
)
def test_no_false_alarm(folder, lines):
    assert not fit_of(folder, lines).fits_other()


@pytest.mark.parametrize(
    ("lines", "message", "notes"),
    [
        (FRENCH * 3, "seems to be fr, not en: ", [0, 1]),  # at the end
        (FRENCH * 20, "seems to be fr, not en: ", [1, 1]),  # as soon as it is known
        (ENGLISH, "", [0, 0]),
        (["Старый банк принял новый закон."], r"\d+% of the words with letters are unknown: is the text in en", [0, 1]),
    ],
)
def test_one_line_for_a_stream(folder, lines, message, notes):
    heard: list[str] = []
    checked = check_lines(lines, str, "in.txt", empty_fit(folder), heard.append)
    assert [next(checked) for _ in lines] == lines
    before = len(heard)
    assert not list(checked)
    assert [before, len(heard)] == notes
    assert all(re.match(f"warning: in.txt: {message}", one) for one in heard)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("I don &apos;t know &quot; this &quot;", ["escapes of Moses or XML"]),
        ("Tom&nbsp;&#38;&nbsp;Jerry", ["escapes of Moses or XML"]),
        ("a well @-@ known dog", ["escapes of Moses or XML"]),
        ("the in@@ compre@@ hensible dog", ["pieces of words"]),
        ("▁the ▁in compre hensible", ["pieces of words"]),
        ("un￭ believ ￭able", ["pieces of words"]),
        ("the un ##believ ##able dog", ["pieces of words"]),
        ("the <unk> sleeps", []),  # `prep` has a separate warning
        ("the <b class='x'>dog</b> sleeps", ["HTML tags"]),
        ("The dog , which sleeps , dreams .", ["spaces before punctuation"]),
        ("我 喜欢 你 。", ["spaces before punctuation"]),
        ("ते घर आहे .", ["spaces before punctuation"]),
        ("ते@@ घर आहे", ["pieces of words"]),
        ("&quot; Oui &quot; , dit-il .", ["escapes of Moses or XML", "spaces before punctuation"]),
        ("« Où est-il ? » : c'est vrai ! Oui, Mr. X ; voilà.", []),
        ("C++ costs 3.50 @ AT&T; R&D, a|b, x@y.z, <3, # 2 ## Title, .NET ... and", []),
    ],
)
def test_what_other_programs_leave_in_a_text(line, names):
    assert [*traces([line] * 50 + ["Another line without marks"] * 30, markup=True)] == names
    assert not traces(["Raw text, here."] * 500 + [line] * 3, markup=True)  # by accident
    assert not traces(["Raw text, here.", line], markup=True)


def test_one_warning_for_texts_with_the_same_traces():
    cut, escaped = traces(["a b@@ c"] * 9), traces(["a &quot; b"] * 9)
    first, second = not_raw([("a", cut), ("b", cut), ("c", {}), ("d", escaped)], ", or INSTEAD")
    ending = "give the raw text, or INSTEAD"
    assert first == f"warning: a and b: not raw text, but text with pieces of words (b@@); {ending}"
    assert second == f"warning: d: not raw text, but text with escapes of Moses or XML (&quot;); {ending}"


@pytest.mark.parametrize("part", ["@", "a@@", "a", "▁", "￭", "&", "<a ", "a ##", " ."])
def test_a_long_line_takes_no_long_time(part):
    began = time.process_time()
    traces([part * (200_000 // len(part))] * 3, markup=True)
    assert time.process_time() - began < 20


def test_a_text_that_is_not_raw_is_noticed_where_the_model_reads_raw_text(folder):
    def warnings(lines: list[str], tokenized: bool = False) -> list[str]:
        found: list[str] = []
        assert list(check_lines(lines, str, "in.en", empty_fit(folder, 0, tokenized), found.append)) == lines
        return [one for one in found if "not raw text" in one]

    (warning,) = warnings([line.replace("The", "The &quot;").replace(" a", " &quot; a") for line in ENGLISH * 2])
    assert warning.startswith("warning: in.en: not raw text")
    assert not warnings(ENGLISH * 2)
    assert not warnings([f"{line} &quot; &apos;" for line in ENGLISH * 2], tokenized=True)
    spaced = warnings([re.sub(r"([.,])", r" \1", line) for line in ENGLISH * 3])
    assert len(spaced) == (folder.name.startswith("bpe"))  # words are the same with and without these spaces


def test_exchanged_texts(folder):
    def checked(names, pairs):
        heard: list[str] = []
        fits = [empty_fit(folder, side) for side in (0, 1)]
        assert list(check_pairs(iter(pairs), tuple(map(Path, names)), fits, heard.append)) == pairs
        return heard

    right, wrong = list(zip(ENGLISH, FRENCH, strict=True)), list(zip(FRENCH, ENGLISH, strict=True))
    assert checked(("a.en", "a.fr"), right) == []
    assert checked(("a.fr", "a.en"), right) == []  # the words decide
    assert checked(("a.en", "a.fr"), wrong)[0].startswith("warning: a.en and a.fr seem to be fr and en")
    assert "seems to be fr, not en" in checked(("a.en", "-"), [(one, one) for one in FRENCH])[0]
    problem = r"^a.fr and a.en seem to be fr and en, .*; give the two files in the other order"
    with pytest.raises(UsageError, match=problem):
        checked(("a.fr", "a.en"), wrong)


DATA = os.environ.get("NMTALIGN_TEST_DATA")


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="needs NMTALIGN_TEST_DATA")
@pytest.mark.parametrize("language", ["fr", "de"])
@pytest.mark.parametrize("vocabulary", ["word", "bpe", "unigram"])
def test_real_text_in_slices(tmp_path, language, vocabulary):
    """Vocabularies of captions; slices of captions and, in French, of news and laws that they hardly cover."""
    folder = Path(DATA or "") / "multi30k"
    for code in ("en", language):
        with (folder / f"train.{code}").open(encoding="utf-8") as lines:
            (tmp_path / f"train.{code}").write_text("".join(itertools.islice(lines, 10_000)), "utf-8")
    train = tmp_path / "train.en", tmp_path / f"train.{language}"
    size = {} if vocabulary == "word" else {"size": "3000"}
    nmtalign.prepare(*train, tmp_path, languages=("en", language), vocabulary=vocabulary, **size)
    texts = [folder / "test_2016_flickr"]
    texts += [folder.parent / "large" / "test-news", folder.parent / "large" / "test-laws"] if language == "fr" else []
    for text, (side, code) in itertools.product(texts, enumerate(("en", language))):
        lines = Path(f"{text}.{code}").read_text("utf-8").split("\n")[:1000]
        for size in (20, 50, 200):
            for start, expected in itertools.product(range(0, len(lines) - size + 1, size), (0, 1)):
                fit = fit_of(tmp_path, lines[start : start + size], expected)
                assert fit.fits_other() == (side != expected), (text, code, start, size)
