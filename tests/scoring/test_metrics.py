"""Every figure is sacreBLEU's own, to the last printed digit."""

import errno
import functools
import importlib.metadata
import json
import math
import operator
import os
import random
import signal
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from helpers.score_texts import corpus_scores, measure, sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER

from nmtalign.errors import ResourceError, UsageError
from nmtalign.scoring import metrics
from nmtalign.scoring.metrics import METRICS, MetricOptions, has_tokenizer, measure_systems, tokenizer_for
from nmtalign.scoring.report import make_report
from nmtalign.scoring.scoring_run import read_text
from nmtalign.text.tokenizer import MosesWords

PHRASES = "le la Un une chien , chats; noirs (l'eau) dort. mange; 3,5 12% très grand-père ! « oui » U.S.A. ne pas"
WORDS = PHRASES.split()


def noisy_corpus(size, seed=7):
    """Hypotheses and two sets of references that share much of their text, some lines empty."""
    rng = random.Random(seed)

    def near(words):
        return " ".join(word if rng.random() > 0.25 else rng.choice(WORDS) for word in words if rng.random() > 0.1)

    plans = [[rng.choice(WORDS) for _ in range(rng.randrange(0, 30))] for _ in range(size)]
    hypotheses, first, second = ([near(plan) for plan in plans] for _ in range(3))
    return hypotheses, first, [line or "rien" for line in second]


def sacrebleu_scores(folder, texts, *flags):
    """(signature with the metric's name, score) of each metric, as sacreBLEU's command prints them."""
    scores = json.loads(sacrebleu(folder, texts[:1], texts[1:], *flags, "-w", "2"))
    return [(f"{score['name']}|{score['signature']}", f"{score['score']:.2f}") for score in scores]


ODD = [
    *("", "  deux  ", "x\u00a0y\u3000z \u2028 fin.\t", "un\rdeux\u2029"),
    *("\u1680", "« Oui ! », dit-il.  ", "a\x1cb\x85 ", "1,5 % 😀."),
]


@pytest.mark.parametrize(
    ("count", "flags", "options"),
    [
        (1, (), {}),
        (2, ("-lc",), {"lowercase": True}),
        (3, ("--tokenize", "intl"), {"tokenize": "intl"}),
        (1, ("--tokenize", "char", "-lc"), {"tokenize": "char", "lowercase": True}),
        (2, ("--tokenize", "none"), {"tokenize": "none"}),
        (1, ("--tokenize", "zh"), {"tokenize": "zh"}),
    ],
)
def test_scores_and_signatures_equal_sacrebleus_command_line(tmp_path, count, flags, options):
    hypotheses, first, second = noisy_corpus(40)
    texts = [hypotheses + ODD, first + ODD[::-1], second + ODD, first + ODD][: count + 1]
    expected = sacrebleu_scores(tmp_path, texts, "-m", "bleu", "chrf", "ter", "--chrf-word-order", "2", *flags)
    read = [read_text(tmp_path / f"{number}.txt", "").lines for number in (count, *range(count))]
    scores = corpus_scores(*read, options=MetricOptions(("bleu", "chrf++", "ter"), **options))
    assert [(score.signature, f"{score.value:.2f}") for score in scores] == expected


CHINESE = ["今天，那个老的老师看见猫。", "王先生在2024年12月3日买了3.5公斤苹果。", "他说：“你好！”", ""]
CHINESE += ["使用Python 3.11和torch。"]
JAPANESE = ["私は昨日東京へ行きました。", "これはペンです。", "コンピューターが3.5台あります！", "", "ＡＢＣと１２３"]
KOREAN = ["나는 어제 서울에 갔습니다.", "이것은 책입니다.", "안녕하세요, 3.5개!", "", "GPU 2개"]
THAI = ["ฉันไปโรงเรียนเมื่อวานนี้", "นี่คือหนังสือ 3.5 เล่ม", "สวัสดี", "", "x y"]
BURMESE = ["မင်္ဂလာပါ။ နေကောင်းလား။", "ကျွန်တော် ကျောင်းသွားတယ်။", "စာအုပ် ၃ အုပ်", "", "a"]
BY_CHARACTERS = [("char", lines) for lines in (THAI, BURMESE, CHINESE)]
BY_WORDS = [("zh", CHINESE), ("ja-mecab", JAPANESE), ("ko-mecab", KOREAN)]


@pytest.mark.parametrize(("tokenize", "lines"), [*BY_CHARACTERS, *BY_WORDS])
@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_of_languages_without_spaces_equals_sacrebleus(tokenize, lines, lowercase):
    if not has_tokenizer(tokenize):
        pytest.skip("needs MeCab")
    rng = random.Random(3)
    texts = [["".join(c for c in line if rng.random() > 0.1) for line in lines * 8] for _ in range(3)]
    metric = BLEU(lowercase=lowercase, tokenize=tokenize)
    for references in (texts[1:2], texts[1:]):
        options = MetricOptions(("bleu",), lowercase, tokenize)
        (score,) = corpus_scores(texts[0], *references, options=options)
        expected = metric.corpus_score(texts[0], references)
        assert score.value == expected.score > 10
        assert score.signature == f"BLEU|{metric.get_signature()}"
    (equal,) = corpus_scores(lines, lines, options=MetricOptions(("bleu",), lowercase, tokenize))
    assert equal.value == pytest.approx(100)


@pytest.mark.parametrize("mecab", [True, False])
def test_the_target_language_chooses_the_tokeniser(monkeypatch, mecab):
    monkeypatch.setattr(metrics, "has_tokenizer", lambda name: mecab or not name.endswith("-mecab"))
    chinese = ["zh", "zh-CN", "zh_TW", "zh_Hans", "zho_Hant", "cmn", "Chinese", "yue", "wuu", "lzh"]
    expected = dict.fromkeys(chinese, "zh")
    expected |= dict.fromkeys(["th", "tha", "th-TH", "lo", "km", "my", "mya", "my_MM", "bo", "dz"], "char")
    expected |= dict.fromkeys(["ja", "ja-JP", "jpn_Jpan", "Japanese"], "ja-mecab" if mecab else "char")
    expected |= dict.fromkeys(["ko", "kor", "ko_KR"], "ko-mecab" if mecab else "char")
    expected |= dict.fromkeys(["fr", "en-GB", "vi", "hi", "ar", "tgt", ""], "13a")
    assert {language: tokenizer_for(language) for language in expected} == expected


def test_the_script_of_the_reference_chooses_where_the_language_does_not():
    for lines in (CHINESE, JAPANESE, THAI, BURMESE):
        assert tokenizer_for("", lines) == tokenizer_for("tgt", lines) == tokenizer_for("fr", lines) == "char"
    assert tokenizer_for("zh", ["Hello."]) == tokenizer_for("zh", CHINESE) == "zh"
    others = (KOREAN, ["Un chat.", "Il dit 你好."], ["Добрый день"], [""])
    assert {tokenizer_for("", lines) for lines in others} == {"13a"}


@pytest.mark.parametrize("error", [ImportError, OSError, AssertionError, RuntimeError, AttributeError, KeyError])
def test_a_missing_or_broken_mecab_is_one_line(monkeypatch, error):
    def broken(**options):
        raise error("MeCab")

    monkeypatch.setattr(metrics, "BLEU", broken)
    has_tokenizer.cache_clear()
    try:
        assert (tokenizer_for("ja"), tokenizer_for("ko")) == ("char", "char")
        with pytest.raises(UsageError, match=r"tokenize = 'ja-mecab': MeCab .*; install sacrebleu\[ja\]"):
            MetricOptions(tokenize="ja-mecab")
    finally:
        has_tokenizer.cache_clear()


def test_ter_splits_the_characters_of_chinese_and_japanese():
    for language, lines in (("zh", CHINESE), ("ja", JAPANESE), ("fr", PHRASES.split(";"))):
        cut = [line[: len(line) // 2] + line[len(line) // 2 + 1 :] for line in lines]
        han = language != "fr"
        options = MetricOptions(("ter",), language=language)
        metric = TER(normalized=han, asian_support=han)
        expected = metric.corpus_score(cut, [lines]).score
        (score,) = corpus_scores(cut, lines, options=options)
        assert (score.value, score.signature) == (expected, f"TER|{metric.get_signature()}")
        assert ("|asian:yes|" in score.signature) == han


def test_a_reference_without_4_grams_is_known():
    for lines, tokenize, too_short in (
        (CHINESE[:1], "13a", True),
        (CHINESE[:1], "zh", False),
        (["a b c", "", "a b"], "13a", True),
        (["a", "a b c."], "13a", False),
    ):
        (found,) = measure(lines, [lines], MetricOptions(("bleu",), tokenize=tokenize))
        assert (found.too_short, found.score() == pytest.approx(100)) == (too_short, not too_short)


@pytest.mark.parametrize("metric", [BLEU(), CHRF(), TER()], ids=["bleu", "chrf", "ter"])
def test_any_subset_and_resample_scores_as_its_lines_do(metric):
    hypotheses, first, second = noisy_corpus(50)
    name = {"BLEU": "bleu", "CHRF": "chrf", "TER": "ter"}[type(metric).__name__]
    (statistics,) = measure(hypotheses, [first, second], MetricOptions((name,)))
    subset = np.random.default_rng(3).integers(0, 50, size=40)  # with repetitions
    lines = [[side[index] for index in subset] for side in (hypotheses, first, second)]
    assert statistics.score(subset) == metric.corpus_score(lines[0], lines[1:]).score
    mask = np.arange(50) % 3 == 0
    assert statistics.score(mask) == statistics.score(np.flatnonzero(mask))
    assert statistics.score() == metric.corpus_score(hypotheses, [first, second]).score
    many = replace(statistics, rows=np.broadcast_to(statistics.rows[0], (10**12, statistics.rows.shape[1])))
    assert many.score(np.array([10**12 - 1])) == statistics.score(np.array([0]))  # in the time of one sentence


def test_length_ratio_is_tokens_over_tokens_and_only_bleus():
    by_bleu, by_chrf = measure(["a b c d", "e"], [["a b", "e"]], MetricOptions(("bleu", "chrf")))
    assert by_bleu.length_ratio(np.array([0, 1])) == 5 / 3
    assert by_bleu.length_ratio(np.array([1])) == 1.0
    assert by_chrf.length_ratio(np.array([0, 1])) is None
    assert measure(["x"], [[""]], MetricOptions(("bleu",)))[0].length_ratio(np.array([0])) is None


def old_bleu(hypotheses, references):
    """BLEU as papers of 2015 reported it, the obvious way: no smoothing, the closest reference length."""
    lengths = [0, 0]
    matches, totals = [0] * 4, [0] * 4
    for hypothesis, *wanted in zip(hypotheses, *references, strict=True):
        lengths[0] += len(hypothesis)
        lengths[1] += min((abs(len(line) - len(hypothesis)), len(line)) for line in wanted)[1]
        for order in range(4):
            each = ((line[k:] for k in range(order + 1)) for line in (hypothesis, *wanted))
            counts = [Counter(zip(*parts, strict=False)) for parts in each]
            most = functools.reduce(operator.or_, counts[1:])
            matches[order] += (counts[0] & most).total()
            totals[order] += counts[0].total()
    if not all(matches):
        return 0.0
    precision = math.exp(sum(math.log(part / whole) for part, whole in zip(matches, totals, strict=True)) / 4)
    return 100 * precision * min(1.0, math.exp(1 - lengths[1] / lengths[0]))


@pytest.mark.parametrize("lowercase", [False, True])
def test_multi_bleu_is_the_bleu_of_moses_tokens(lowercase):
    hypotheses = ["L'eau n'est pas chaude, dit-il.", "Il pleut aujourd'hui sur la ville."]
    references = ["l'eau n'est pas froide, dit-elle.", "Il pleut aujourd'hui sur le village."]
    others = ["Cette eau n'est pas chaude.", "Il pleut sur la ville."]
    words = MosesWords("fr")
    split = [[words.tokenize(line) for line in lines] for lines in (hypotheses, references, others)]
    if lowercase:
        split = [[[word.lower() for word in line] for line in lines] for lines in split]
    options = MetricOptions(("multi-bleu", "bleu"), lowercase, language="fr")
    by_sacrebleu, score = corpus_scores(hypotheses, references, others, options=options)
    assert (by_sacrebleu.name, score.name) == ("BLEU", "multi-bleu")
    assert score.value == pytest.approx(old_bleu(split[0], split[1:]))
    version, moses = importlib.metadata.version("sacrebleu"), importlib.metadata.version("sacremoses")
    case = "lc" if lowercase else "mixed"
    expected = f"multi-bleu|nrefs:2|case:{case}|eff:no|tok:moses-fr|smooth:none|sacremoses:{moses}|version:{version}"
    assert score.signature == expected


def test_multi_bleu_takes_tokenised_text_as_it_is_and_does_not_smooth():
    options = MetricOptions(("multi-bleu",), tokenize="none")
    hypotheses, references, others = noisy_corpus(30)
    (score,) = corpus_scores(hypotheses, references, others, options=options)
    split = [[line.split() for line in lines] for lines in (hypotheses, references, others)]
    assert score.value == pytest.approx(old_bleu(split[0], split[1:]))
    assert "|tok:none|smooth:none|version:" in score.signature
    assert [score.value for score in corpus_scores(["a b c x"], ["a b c d"], options=options)] == [0.0]


def test_perfect_and_empty_translations_have_finite_scores():
    references = ["un chien noir dort ici", "deux chats"]
    assert [score.value for score in corpus_scores(references, references)] == pytest.approx([100, 100, 100])
    assert [score.value for score in corpus_scores(["", ""], references)] == [0.0, 0.0, 0.0]
    assert [score.value for score in corpus_scores(["", ""], ["", ""])] == [0.0, 0.0, 0.0]


def test_a_sacrebleu_without_statistics_scores_through_its_public_functions(monkeypatch):
    hypotheses, *references = noisy_corpus(30)
    options, known = MetricOptions(tuple(METRICS), language="fr"), np.arange(30) % 2 == 0
    with_statistics = measure(hypotheses, references, options)
    monkeypatch.setattr(metrics, "_PRIVATE", ("_gone",))
    without = measure(hypotheses, references, options)
    for one, other in zip(with_statistics, without, strict=True):
        assert other.rows.shape == (30, 0)
        assert (one.score(), one.signature) == (other.score(), other.signature)
        assert one.score(known) == other.score(known)
        assert all(one.score(np.array([place])) == other.score(np.array([place])) for place in (3, 4))
    report = make_report(["a"], [without], known=known)
    scores = report.systems[0].no_unk.whole.scores.values()
    assert [score.value for score in scores] == [one.score(known) for one in with_statistics]


LINES = [f"un chat noir dort {number}, dit-il." for number in range(420)]
SYSTEMS = [[line.replace("noir", word) for line in LINES] for word in ("gris", "noir et blanc")]


class Killer(str):
    """A line that kills the process to which it is sent."""

    __slots__ = ()

    def __reduce__(self):
        return _die, ()


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def test_several_processes_give_the_same_as_one():
    options, messages = MetricOptions(("bleu", "chrf", "chrf++", "multi-bleu"), language="fr"), list[int]()
    found = measure_systems(SYSTEMS, [LINES], options, processes=2, advance=messages.append)
    assert messages == [200, 200, 20]
    for system, table in zip(SYSTEMS, found, strict=True):
        alone = measure(system, [LINES], options, processes=1)
        assert [one.name for one in table] == ["BLEU", "chrF2", "chrF2++", "multi-bleu"]
        for one, other in zip(table, alone, strict=True):
            assert one.signature == other.signature
            np.testing.assert_array_equal(one.rows, other.rows)


@pytest.mark.parametrize("place", ["multiprocessing.synchronize.SemLock.__init__", "tempfile.gettempdir"])
def test_a_system_without_room_for_what_processes_share_has_one(monkeypatch, place):
    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # /dev/shm is full, or there is no folder for a socket

    monkeypatch.setattr(place, refuse)
    assert measure_systems(SYSTEMS[:1], [LINES], MetricOptions(("bleu",)), processes=2)


def test_a_killed_process_is_one_line():
    with pytest.raises(ResourceError, match="a process that scores was killed"):
        measure_systems([[*SYSTEMS[0][:-1], Killer("x")]], [LINES], processes=2)


def test_long_lines_are_measured_few_at_a_time():
    lines, messages = ["le chat " * 20_000] * 3, list[int]()
    measure_systems([lines], [lines], MetricOptions(("bleu",)), advance=messages.append)
    assert messages == [1, 1, 1]
