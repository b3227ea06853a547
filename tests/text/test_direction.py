"""In which language a text is, judged by two vocabularies: sample text, and real text if there is some."""

import itertools
import os
import re
import time
from pathlib import Path

import pytest

import nmtalign
from nmtalign.errors import InputError, UsageError
from nmtalign.text.direction import InputCheck, TextFit, check_pairs, not_raw, traces

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
    for name, lines in (("en", ENGLISH), ("fr", FRENCH)):
        (folder / f"text.{name}").write_text("".join(f"{line}\n" for line in lines * 5), "utf-8")
    size = {} if request.param == "word" else {"size": "90"}
    nmtalign.prepare(
        folder / "text.en", folder / "text.fr", folder, languages=("en", "fr"), vocabulary=request.param, **size
    )
    return folder


def fit_of(folder: Path, lines: list[str], side: int = 0) -> TextFit:
    fit = TextFit.load(folder, side)
    for line in lines:
        fit.add(line)
    return fit


def test_bytes_say_nothing_about_the_language(tmp_path):
    for name, lines in (("en", ENGLISH), ("fr", FRENCH)):
        (tmp_path / f"text.{name}").write_text("".join(f"{line}\n" for line in lines * 5), "utf-8")
    nmtalign.prepare(*sorted(tmp_path.iterdir()), tmp_path / "data", languages=("en", "fr"), vocabulary="bytes")
    fits = [fit_of(tmp_path / "data", lines * 5) for lines in (ENGLISH, FRENCH, ["Жук 你好 😀"])]
    assert not any(fit.fits_own() or fit.fits_other() or fit.own.share for fit in fits)


def test_text_of_the_other_side_is_noticed(folder):
    for side, (own, other) in enumerate([(ENGLISH, FRENCH), (FRENCH, ENGLISH)]):
        assert fit_of(folder, own, side).fits_own()
        assert not fit_of(folder, own, side).fits_other()
        assert fit_of(folder, other, side).fits_other()
        assert not fit_of(folder, other, side).fits_own()


OTHER_SCRIPTS = {
    "zh": ["老师看见那个红色的房子，国王喜欢小猫。", "今天医生在村里买书。", "孩子们昨天在哪里看见了大狗？"],
    "ja": ["せんせいは赤い家を見ました。", "きょう医者は本を買った。", "子どもたちは犬が好きです。"],
    "th": ["ครูเห็นบ้านสีแดง", "วันนี้หมอซื้อหนังสือ", "เด็กๆ ชอบหมาตัวใหญ่"],
    "ru": [
        "Старый банк принял новый закон.",
        "Маленькая кошка спит на стуле.",
        "Где красный дом, который видели дети?",
    ],
    "hi": ["पुराने बैंक ने नया कानून स्वीकार किया।", "छोटी बिल्ली कुर्सी पर सोती है।", "लाल घर कहाँ है?"],
}


def sizes(code: str) -> dict[str, object]:
    return {"size": f"58:{40 if code == 'zh' else 32}", "workers": 1}


@pytest.fixture(scope="module", params=OTHER_SCRIPTS)
def scripts(request, tmp_path_factory) -> tuple[Path, list[str]]:
    """A corpus of English and a language in another script, of words or pieces as `prep` chooses."""
    folder, lines = tmp_path_factory.mktemp(request.param), OTHER_SCRIPTS[request.param]
    for name, text in (("en", ENGLISH), (request.param, lines)):
        (folder / f"text.{name}").write_text("".join(f"{line}\n" for line in text * 10), "utf-8")
    texts = folder / "text.en", folder / f"text.{request.param}"
    nmtalign.prepare(*texts, folder, languages=("en", request.param), **sizes(request.param))
    return folder, lines


def test_text_of_another_script_is_noticed(scripts):
    """The bare "▁" before an unknown word, marks and digits are no known words."""
    folder, other = scripts
    for side, (own, strange) in enumerate([(ENGLISH, other), (other, ENGLISH)]):
        fit = fit_of(folder, [f"{line} 12, 5 !" for line in strange * 4], side)
        assert (fit.own.share, fit.other.share) == (1, 0)
        assert fit.fits_other()
        assert "0% of the words are known" in fit.evidence()
        fit = fit_of(folder, own * 4, side)
        assert fit.own.share == 0
        assert fit.fits_own()
        assert not fit.fits_other()


def test_exchanged_dev_files_of_another_script_are_refused(scripts, tmp_path):
    folder, lines = scripts
    code = folder.name.rstrip("0123456789")
    for name, text in (("en", ENGLISH), (code, lines)):
        (tmp_path / f"dev.{name}").write_text("".join(f"{line}\n" for line in text * 4), "utf-8")
    texts = folder / "text.en", folder / f"text.{code}"
    dev = tmp_path / "dev.en", tmp_path / f"dev.{code}"
    options = {"languages": ("en", code), **sizes(code)}
    problem = rf"dev\.{code} and \S*dev\.en seem to be {code} and en, and en-{code} is expected"
    with pytest.raises(InputError, match=problem):
        nmtalign.prepare(*texts, tmp_path / "data", dev=dev[::-1], **options)
    nmtalign.prepare(*texts, tmp_path / "data", dev=dev, **options)


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


def test_one_line_for_a_stream_at_the_end_or_as_soon_as_it_is_known(folder):
    heard: list[str] = []
    check = InputCheck(TextFit.load(folder), "in.txt", heard.append)
    for line in FRENCH * 3:
        check.add(line)
    assert heard == []
    check.finish(100, 10)
    assert len(heard) == 1
    assert re.match(
        "warning: in.txt: seems to be fr, and the model translates en to fr: .* as en, .* as fr; ", heard[0]
    )

    heard.clear()
    check = InputCheck(TextFit.load(folder), "in.txt", heard.append)
    for line in FRENCH * 20:
        check.add(line)
    assert len(heard) == 1
    check.finish(900, 50)
    assert len(heard) == 1


@pytest.mark.parametrize(("unknown", "warned"), [(40, False), (41, True)])
def test_above_40_percent_unknown_words_there_is_always_a_warning(folder, unknown, warned):
    heard: list[str] = []
    check = InputCheck(TextFit.load(folder), "in.txt", heard.append)
    for line in ENGLISH:
        check.add(line)
    check.finish(100, unknown)
    ending = "is the text in en, and tokenised and cased like the training text?"
    assert heard == ([f"warning: in.txt: 41% of the words are unknown: {ending}"] if warned else [])


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("I don &apos;t know &quot; this &quot;", ["escapes"]),
        ("a &#124; b &#91; c", ["escapes"]),
        ("Tom&nbsp;&amp;&nbsp;Jerry", ["escapes"]),
        ("the in@@ compre@@ hensible dog", ["pieces of subword-nmt"]),
        ("▁the ▁in compre hensible", ["pieces of SentencePiece"]),
        ("un￭ believ ￭able", ["joiners of OpenNMT"]),
        ("the un ##believ ##able dog", ["pieces of WordPiece"]),
        ("a well @-@ known dog", ["split hyphens"]),
        ("the|DT dog|NN sleeps|VBZ", ["factors"]),
        ("the <unk> sleeps", ["unknown words"]),
        ("the <b class='x'>dog</b> sleeps", ["HTML tags"]),
        ("The dog , which sleeps , dreams .", ["spaces before punctuation"]),
        ("我 喜欢 你 。", ["spaces before punctuation"]),
        ("&quot; Oui &quot; , dit @-@ il .", ["escapes", "split hyphens", "spaces before punctuation"]),
        ("« Où est-il ? » : c'est vrai ! Oui, Mr. X ; voilà.", []),
        ("C++ costs 3.50 @ AT&T; R&D, a|b, x@y.z, <3, # 2 ## Title, .NET ... and", []),
    ],
)
def test_what_other_programs_leave_in_a_text(line, names):
    found = traces([line] * 50 + ["Another line without marks"] * 30, markup=True)
    assert [name.split(" of Moses")[0] for name in found] == names
    assert not traces(["Raw text, here."] * 500 + [line] * 3, markup=True)  # by accident
    assert not traces(["Raw text, here.", line], markup=True)


def test_one_warning_for_texts_with_the_same_traces():
    cut, escaped = traces(["a b@@ c"] * 9), traces(["a &quot; b"] * 9)
    assert list(not_raw([("a", {}), ("b", {})])) == []
    (warning,) = not_raw([("a", cut), ("b", cut)], ", or INSTEAD")
    assert re.fullmatch(r"warning: a and b: not raw text, .*\(b@@\); join its pieces, or INSTEAD", warning)
    first, second = not_raw([("a", cut), ("b", escaped), ("c", {})])
    assert first.startswith("warning: a: not raw text (unlike b and c)")
    assert "&quot;" in second


@pytest.mark.parametrize("part", ["@", "a@@", "a", "a|", "▁", "￭", "&", "<a ", "a ##", " .", "|"])
def test_a_long_line_takes_no_long_time(part):
    began = time.monotonic()
    traces([part * (200_000 // len(part))] * 3, markup=True)
    assert time.monotonic() - began < 5


def test_a_text_that_is_not_raw_is_noticed_where_the_model_reads_raw_text(folder):
    def warnings(lines: list[str], tokenized: bool = False) -> list[str]:
        found: list[str] = []
        check = InputCheck(TextFit.load(folder, 0, tokenized), "in.en", found.append)
        check.add_all(lines)
        return [one for one in found if "not raw text" in one]

    (warning,) = warnings([line.replace("The", "The &quot;").replace(" a", " &quot; a") for line in ENGLISH * 2])
    assert warning.startswith("warning: in.en: not raw text")
    assert not warnings(ENGLISH * 2)
    assert not warnings([f"{line} &quot; &apos;" for line in ENGLISH * 2], tokenized=True)
    spaced = warnings([re.sub(r"([.,])", r" \1", line) for line in ENGLISH * 3])
    assert len(spaced) == (folder.name.startswith("bpe"))  # words are the same with and without these spaces


def test_exchanged_texts(folder):
    def checked(names, pairs, ahead):
        heard: list[str] = []
        fits = [TextFit.load(folder, side) for side in (0, 1)]
        assert list(check_pairs(iter(pairs), tuple(map(Path, names)), fits, heard.append, ahead)) == pairs
        return heard

    right, wrong = list(zip(ENGLISH, FRENCH, strict=True)), list(zip(FRENCH, ENGLISH, strict=True))
    for ahead in (True, False):
        assert checked(("a.en", "a.fr"), right, ahead) == []
        assert checked(("a.fr", "a.en"), right, ahead) == []  # the words decide
        assert checked(("a.en", "a.fr"), wrong, ahead)[0].startswith("warning: a.en and a.fr seem to be fr and en")
        assert "seems to be fr, not en" in checked(("a.en", "-"), [(one, one) for one in FRENCH], ahead)[0]
    assert checked(("a.fr", "a.en"), wrong, False)[0].startswith("warning: a.fr and a.en seem to be fr and en")
    with pytest.raises(
        UsageError, match=r"^a.fr and a.en seem to be fr and en, .*; give the two files in the other order"
    ):
        checked(("a.fr", "a.en"), wrong, True)


def test_pairs_of_a_stream_are_not_delayed(folder):
    fits = [TextFit.load(folder, side) for side in (0, 1)]
    read = []

    def stream():
        for pair in zip(ENGLISH, FRENCH, strict=True):
            read.append(pair)
            yield pair

    pairs = check_pairs(stream(), (Path("-"), Path("a.fr")), fits, lambda note: None, ahead=False)
    next(pairs)
    assert len(read) == 1


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
    nmtalign.prepare(*train, tmp_path, languages=("en", language), vocabulary=vocabulary, size="3000")
    texts = [folder / "test_2016_flickr"]
    texts += [folder.parent / "large" / "test-news", folder.parent / "large" / "test-laws"] if language == "fr" else []
    for text, (side, code) in itertools.product(texts, enumerate(("en", language))):
        lines = Path(f"{text}.{code}").read_text("utf-8").split("\n")[:1000]
        for size in (20, 50, 200):
            for start, expected in itertools.product(range(0, len(lines) - size + 1, size), (0, 1)):
                fit = fit_of(tmp_path, lines[start : start + size], expected)
                assert fit.fits_other() == (side != expected), (text, code, start, size)
