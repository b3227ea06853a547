"""Counts the lines of text that tokenising and detokenising leaves unchanged, also with sacremoses's detokeniser.

Texts are files NAME.en and NAME.fr (or .gz) in the given folder and its subfolders. If a folder contains train.fr, its
spacing is learned as in `nmtalign prep`. The file train.origin.gz, if present, names the origin of each line.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.machine import describe_machine, in_words
from bench.report import Table, say, show, write_json
from nmtalign.data.pipeline import CHUNK, tokenize_pairs
from nmtalign.errors import InputError
from nmtalign.text.lines import read_lines
from nmtalign.text.tokenizer import Counts, MosesWords, SpacedWords, Tokenizers

LANGUAGES = ("en", "fr")
LINES = 60_000  # lines of a text, evenly spread; shorter texts are read completely
HEAD = 400  # lines from which a text that is already tokenised is recognised
WAYS = ("sacremoses", "rules", "learned")
_Detokenize = Callable[[Sequence[str]], str]


@dataclass
class Tally:
    """The lines of a text, and how many of them each detokeniser restored."""

    lines: int = 0
    back: Counter[str] = field(default_factory=Counter)
    blanks: int = 0  # restored with the learned spacing, except for the kind of a space

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"lines": self.lines, **{way: self.back[way] for way in WAYS}, "but_for_blanks": self.blanks}


def run(given: Mapping[str, Any]) -> int:
    """Measures all texts of the folder `data` in `languages`, prints the table, and writes `json` if given."""
    languages, data = given.get("languages") or LANGUAGES, Path(given["data"])
    machine = describe_machine()
    results: dict[str, Any] = {"benchmark": "round-trip", "machine": machine, "languages": {}}
    for language in languages:
        say(f"{language}: reading the texts of {data}")
        tallies, seconds, spacing = measure(data, language)
        rates = {way: sum(tally.lines for tally in tallies.values()) / spent for way, spent in seconds.items() if spent}
        results["languages"][language] = {
            "texts": {name: tally.as_dict() for name, tally in tallies.items()},
            "lines_per_second": rates,
            "spacing": spacing,
        }
    if not any(found["texts"] for found in results["languages"].values()):
        raise InputError(f"{data}: no untokenised text *.en or *.fr there; give --data a folder of texts")
    show([table(language, found, in_words(machine)) for language, found in results["languages"].items()])
    if given.get("json"):
        write_json(given["json"], results)
    return 0


def table(language: str, found: Mapping[str, Any], machine: str) -> Table:
    """Returns the share of restored lines, by text."""
    rows: list[Sequence[str]] = [
        (name, f"{text['lines']:,}", *(f"{100 * text[way] / text['lines']:.2f}" for way in (*WAYS, "but_for_blanks")))
        for name, text in found["texts"].items()
    ]
    rates = ", ".join(f"{way} {rate:,.0f}" for way, rate in found["lines_per_second"].items())
    return Table(
        f"Lines unchanged by tokenising and detokenising, {language}, %",
        ("text", "lines", "sacremoses", "nmtalign, rules", "with learned spacing", "ignoring kinds of space"),
        rows,
        f"{machine}\ndetokenised lines/s: {rates}\nlearned: {found['spacing']}",
    )


def measure(data: Path, language: str) -> tuple[dict[str, Tally], dict[str, float], dict[str, dict[str, str]]]:
    """Returns the counts by text, the seconds of each detokeniser, and the learned spacing by folder."""
    from sacremoses import MosesDetokenizer

    theirs = MosesDetokenizer(lang=language)
    rules = MosesWords(language)
    tallies: dict[str, Tally] = {}
    seconds = dict.fromkeys(WAYS, 0.0)
    spacing: dict[str, dict[str, str]] = {}
    for folder in sorted({data, *(path for path in data.iterdir() if path.is_dir())}):
        texts = [path for path in texts_of(folder, language) if not is_tokenised(path)]
        learned = learn(rules, texts)
        if learned.spacing.learned:
            spacing[folder.name] = learned.spacing.learned
        ways: dict[str, _Detokenize] = {
            "sacremoses": lambda tokens: str(theirs.detokenize(tokens, unescape=False)),
            "rules": rules.detokenize,
            "learned": learned.detokenize,
        }
        for path in texts:
            for name, block in _blocks(path, folder.name):
                _compare(tallies.setdefault(name, Tally()), block, rules, ways, seconds)
    return tallies, seconds, spacing


def texts_of(folder: Path, language: str) -> list[Path]:
    """Returns the texts of a language, the training text first."""
    found = [path for pattern in (f"*.{language}", f"*.{language}.gz") for path in folder.glob(pattern)]
    return sorted(found, key=lambda path: (not path.name.startswith("train."), path.name))


def is_tokenised(path: Path) -> bool:
    """Returns whether most lines have a space before their last punctuation mark, as tokenised text has."""
    head = list(itertools.islice(read_lines(path), HEAD))
    return 2 * sum(line.rstrip().endswith((" .", " ,", " !")) for line in head) > len(head)


def learn(words: MosesWords, texts: Sequence[Path]) -> MosesWords:
    """Returns a detokeniser with the spacing of the training text, if there is one, learned as in `nmtalign prep`."""
    train = [path for path in texts if path.name.startswith("train.")]
    if not train:
        return words
    pairs = (("x", line) for line in read_lines(train[0]) if line.strip())
    blocks = iter(lambda: list(itertools.islice(pairs, CHUNK)), [])
    counts: Counts = Counter()
    for _, chunk in tokenize_pairs(Tokenizers(SpacedWords(), words), 0, blocks, 1, spacing=True):
        counts.update(chunk.spacing)
    return words.with_spacing(counts)


def _blocks(path: Path, folder: str) -> Iterator[tuple[str, list[str]]]:
    """Yields lines of a text, evenly spread, in blocks of one origin with its name."""
    lines = sum(1 for _ in read_lines(path))
    origins = path.with_name("train.origin.gz")
    named: Iterable[str] = itertools.repeat(path.name.split(".")[0])
    if path.name.startswith("train.") and origins.is_file():
        named = (f"train, {origin}" for origin in read_lines(origins))
    chosen: dict[str, list[str]] = {}
    pairs = zip(named, read_lines(path), strict=False)
    for name, line in itertools.islice(pairs, 0, None, -(-lines // LINES) or 1):
        if line.strip():
            chosen.setdefault(f"{folder}/{name}", []).append(line)
    yield from chosen.items()


def _compare(
    tally: Tally, lines: list[str], words: MosesWords, ways: Mapping[str, _Detokenize], seconds: dict[str, float]
) -> None:
    tokens = [words.tokenize(line) for line in lines]
    tally.lines += len(lines)
    for way, detokenize in ways.items():
        start = time.perf_counter()
        texts = [detokenize(line) for line in tokens]
        seconds[way] += time.perf_counter() - start
        tally.back[way] += sum(map(str.__eq__, texts, lines))
        if way == "learned":
            tally.blanks += sum(_plain(text) == _plain(line) for text, line in zip(texts, lines, strict=True))


def _plain(text: str) -> str:
    return " ".join(text.split())
