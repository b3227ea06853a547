"""Every figure is sacreBLEU's own, to the last printed digit."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from nmtalign.errors import InputError, NmtalignError, UsageError
from nmtalign.scoring import metrics
from nmtalign.scoring.metrics import MetricOptions, bleu, corpus_scores, looks_tokenized, measure
from nmtalign.text.moses import MosesWords

WORDS = [
    "le",
    "la",
    "Un",
    "une",
    "chien",
    ",",
    "chats;",
    "noirs",
    "(l'eau)",
    "dort.",
    "mange;",
    "3,5",
    "12%",
    "très",
    "grand-père",
    "!",
    "«",
    "oui",
    "»",
    "U.S.A.",
    "ne",
    "pas",
]


def noisy_corpus(size: int, seed: int = 7) -> tuple[list[str], list[str], list[str]]:
    """Hypotheses and two sets of references that share much of their text, some lines empty."""
    rng = random.Random(seed)

    def near(words: list[str]) -> str:
        return " ".join(word if rng.random() > 0.25 else rng.choice(WORDS) for word in words if rng.random() > 0.1)

    plans = [[rng.choice(WORDS) for _ in range(rng.randrange(0, 30))] for _ in range(size)]
    hypotheses, first, second = ([near(plan) for plan in plans] for _ in range(3))
    return hypotheses, first, [line or "rien" for line in second]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return path


def sacrebleu_command(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "sacrebleu", *map(str, arguments), "-b", "-w", "4"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("references", [1, 2])
def test_corpus_scores_equal_sacrebleus_command_line(tmp_path: Path, references: int) -> None:
    hypotheses, *all_references = noisy_corpus(60)
    chosen = all_references[:references]
    files = [write(tmp_path / f"ref{number}", lines) for number, lines in enumerate(chosen)]
    hyp = write(tmp_path / "hyp", hypotheses)
    # sacreBLEU prints bare scores of several metrics as a JSON list, in the order of their names.
    expected = [sacrebleu_command(*files, "-i", hyp, "-m", name).strip() for name in ("bleu", "chrf", "ter")]
    assert [f"{score.value:.4f}" for score in corpus_scores(hypotheses, *chosen)] == expected


@pytest.mark.parametrize("tokenize", ["13a", "none", "intl", "char"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_options_of_bleu_equal_sacrebleus(tokenize: str, lowercase: bool) -> None:
    hypotheses, references, _ = noisy_corpus(80)
    metric = BLEU(lowercase=lowercase, tokenize=tokenize)
    ours = bleu(hypotheses, references, lowercase=lowercase, tokenize=tokenize)
    assert ours.value == metric.corpus_score(hypotheses, [references]).score
    assert ours.signature == f"BLEU|{metric.get_signature()}"
    assert ours.name == "BLEU"


def test_signatures_name_metric_references_and_version() -> None:
    hypotheses, first, second = noisy_corpus(5)
    scores = corpus_scores(hypotheses, first, second)
    assert [score.name for score in scores] == ["BLEU", "chrF2", "TER"]
    assert all(score.signature.startswith(f"{score.name}|nrefs:2|case:") for score in scores)
    assert all("|version:" in score.signature for score in scores)


@pytest.mark.parametrize("metric", [BLEU(), CHRF(), TER()], ids=["bleu", "chrf", "ter"])
def test_any_subset_and_resample_scores_as_its_lines_do(metric: BLEU | CHRF | TER) -> None:
    hypotheses, first, second = noisy_corpus(50)
    name = {"BLEU": "bleu", "CHRF": "chrf", "TER": "ter"}[type(metric).__name__]
    (statistics,) = measure(hypotheses, [first, second], MetricOptions((name,)))
    subset = np.random.default_rng(3).integers(0, 50, size=40)  # with repetitions
    lines = [[side[index] for index in subset] for side in (hypotheses, first, second)]
    assert statistics.score(subset).value == metric.corpus_score(lines[0], lines[1:]).score
    mask = np.arange(50) % 3 == 0
    assert statistics.score(mask).value == statistics.score(np.flatnonzero(mask)).value
    assert statistics.score().value == metric.corpus_score(hypotheses, [first, second]).score


def test_a_corpus_counted_in_windows_scores_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    hypotheses, references, _ = noisy_corpus(25)
    whole = corpus_scores(hypotheses, references)
    monkeypatch.setattr(metrics, "_CHUNK", 7)
    assert corpus_scores(hypotheses, references) == whole


def test_length_ratio_is_tokens_over_tokens_and_only_bleus() -> None:
    by_bleu, by_chrf = measure(["a b c d", "e"], [["a b", "e"]], MetricOptions(("bleu", "chrf")))
    assert by_bleu.length_ratio() == 5 / 3
    assert by_bleu.length_ratio(np.array([1])) == 1.0
    assert by_chrf.length_ratio() is None
    assert measure(["x"], [[""]], MetricOptions(("bleu",)))[0].length_ratio() is None


def test_moses_bleu_is_bleu_of_moses_tokens() -> None:
    hypotheses = ["L'eau n'est pas chaude, dit-il.", "Il pleut aujourd'hui sur la ville."]
    references = ["L'eau n'est pas froide, dit-elle.", "Il pleut aujourd'hui sur le village."]
    words = MosesWords("fr")
    split = [[" ".join(words.tokenize(line)) for line in lines] for lines in (hypotheses, references)]
    scores = corpus_scores(hypotheses, references, options=MetricOptions(("bleu",), lowercase=True, moses="fr"))
    assert [score.name for score in scores] == ["BLEU", "BLEU (Moses-tokenised)"]
    assert scores[1].value == bleu(*split, lowercase=True, tokenize="none").value
    assert scores[1].value != scores[0].value
    assert "|case:lc|eff:no|tok:none|" in scores[1].signature
    assert "|moses:fr|sacremoses:" in scores[1].signature


def test_perfect_and_empty_translations_have_finite_scores() -> None:
    references = ["un chien noir dort ici", "deux chats"]
    assert [score.value for score in corpus_scores(references, references)] == pytest.approx([100, 100, 0])
    assert [score.value for score in corpus_scores(["", ""], references)] == [0.0, 0.0, 100.0]
    assert [score.value for score in corpus_scores(["", ""], ["", ""])] == [0.0, 0.0, 0.0]


def test_a_hundred_periods_set_apart_look_tokenised() -> None:
    assert looks_tokenized(["Il dort ."] * 100 + ["Oui."]) == 100
    assert looks_tokenized(["Il dort ."] * 99) == 0


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(InputError, match="no sentence"):
        corpus_scores([], [])
    with pytest.raises(InputError, match="no sentence"):
        corpus_scores(["a"])
    with pytest.raises(InputError, match="2 hypotheses, but 2, 1 references"):
        corpus_scores(["a", "b"], ["a", "b"], ["a"])
    with pytest.raises(InputError, match="no sentence"):
        measure(["a"], [["a"]])[0].score(np.array([False]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metrics": ("blue",)}, "unknown 'blue'; the nearest known one is 'bleu'"),
        ({"metrics": ("",)}, "metrics: unknown ''"),
        ({"metrics": ()}, "give one or more of bleu,chrf,ter"),
        ({"tokenize": "13b"}, "tokenize: unknown '13b'; the nearest known one is '13a'"),
    ],
)
def test_unknown_options_name_the_nearest(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MetricOptions(**settings)  # type: ignore[arg-type]


def test_a_sacrebleu_with_another_inside_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_INSIDE", ("_gone",))
    with pytest.raises(NmtalignError, match=r"sacrebleu \S+ has no _gone; install sacrebleu 2"):
        bleu(["a"], ["a"])
