"""`bench translate` compares nmtalign's translator with the naive decoder and the floor on the same model and text."""

import dataclasses
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.contest import Contestant, contestants
from bench.contestants import FLOOR, NAIVE_BATCH, NAMES, OURS, Job
from bench.machine import describe_machine, in_words
from bench.random_model import write_lexicon, write_model
from bench.report import say, show, write_json
from bench.texts import PAIRS, Texts, random_texts
from bench.timing import spread, steady, take_turns
from bench.train import MODEL_OPTIONS
from bench.workload import SYSTEM_SIZES, Size
from nmtalign.core.devices import inference_precision, pick_device, use_threads
from nmtalign.errors import ResourceError, UsageError
from nmtalign.settings.definition import Device
from nmtalign.text.tokenizer import Tokenizers

SENTENCES = {"paper": 128, "small": 256, "tiny": 16}
WORDS = {"paper": 30000, "small": 30000, "tiny": 2000}  # vocabulary size per side
NAIVE_LINES = 4  # lines that the naive decoder translates in each round
WARM_LINES = 64


@dataclass(frozen=True)
class Contest:
    """Variants on the same model and text; `lines` are the indices of the lines that a variant translates per round."""

    job: Job
    names: Sequence[str]
    lines: Mapping[str, Sequence[int]]
    floor: bool = False
    warm: int = WARM_LINES  # lines of our variants in the warm-up round


@dataclass
class Outcome:
    """The results for one beam: seconds of each round, the last translations, peak memory, the floor's seconds."""

    seconds: dict[str, list[float]]
    found: dict[str, list[tuple[str, float, int]]] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)
    floor: dict[str, float] = field(default_factory=dict)  # per sentence


def run(given: dict[str, Any]) -> int:
    """Runs the subcommand with its options by name."""
    use_threads(given["threads"] or 0)
    names, skipped = _names(given), given["skip"]
    _check(given)
    given["vocabulary"] = given["vocabulary"] or WORDS[given["size"]]
    options = {name: given[name] for name in MODEL_OPTIONS}
    size = Size.of(given["size"], given["vocabulary"], **options, initialisation="xavier")
    results: dict[str, Any] = {"benchmark": "translate", "machine": describe_machine()}
    say(in_words(results["machine"]))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        given["sentences"] = given["sentences"] or SENTENCES[given["size"]]
        texts = random_texts(folder, size, given["length"], max(PAIRS, given["sentences"]))
        model = write_model(folder / "random", texts, Tokenizers.moses("en", "fr"))
        if "speed" not in skipped:
            results["speed"] = _speed(given, names, texts, model)
        if given["model"]:
            from bench.real_text import real_text

            results["real"] = real_text(given, names, folder)
        if "startup" not in skipped:
            from bench.startup import translate_startup_seconds

            say("start-up times")
            results["startup"] = translate_startup_seconds(given["model"] or model)
        if given["peers"]:
            from bench.translate_peers import run_peers

            results["peers"] = run_peers(given, texts, model)
    from bench.translate_tables import tables

    show(tables(results))
    if given["json"]:
        write_json(given["json"], results)
    return 0


def _names(given: dict[str, Any]) -> list[str]:
    if not given["variants"]:
        return [name for name in NAMES if OURS.get(name) != "int8" or _has_int8(given["device"])]
    names = [name.strip() for name in given["variants"].split(",")]
    for name in names:
        if name not in NAMES:
            raise UsageError(f"--variants: unknown variant '{name}'; choose from {', '.join(NAMES)}")
    return names


def _has_int8(device: Device) -> bool:
    try:
        inference_precision("int8", pick_device(device))
    except ResourceError as error:
        say(str(error))
        return False
    return True


def _check(given: dict[str, Any]) -> None:
    """Raises UsageError for incompatible options, before anything is measured."""
    if given["size"] in SYSTEM_SIZES:
        raise UsageError(
            f"--size {given['size']}: the plain decoder is RNNsearch; choose paper, small or tiny, or measure whole "
            "programs with bin/bench quality --rounds"
        )
    if bool(given["model"]) != bool(given["text"]):
        raise UsageError("--model and --text: give both or neither")
    for name in ("text", "reference", "lexicon", "lexicon_data"):
        path = given[name]
        if path and not given["model"]:
            raise UsageError(
                f"--{name.replace('_', '-')} is used only with a model and a text: give --model and --text too"
            )
        if path and not path.exists():
            raise UsageError(f"--{name.replace('_', '-')} {path}: file not found")
    if given["peers"]:
        from bench.peers import chosen

        chosen(given["peers"])
    if given["length"] < 2:
        raise UsageError(f"--length {given['length']}: give at least 2, because `</s>` is counted")


def _speed(given: dict[str, Any], names: Sequence[str], texts: Texts, model: Path) -> dict[str, Any]:
    """Random sentences of one length; translations have the same length, so that all variants do the same work."""
    length, sentences = given["length"], given["sentences"]
    frequent = min(given["candidates"] or 1000, texts.size.model.target_vocabulary_size // 4)
    lexicon = texts.folder / "lexicon"
    write_lexicon(lexicon, texts, frequent)
    job = Job(
        *(str(model), str(texts.file("train", "src")), str(lexicon), frequent),
        min_ratio=1.0,
        max_ratio=1.0,
        threads=given["threads"],
        device=given["device"],
        floor=(length, sentences),
    )
    lines = {name: range(sentences) for name in OURS}
    lines |= {name: range(min(NAIVE_LINES, sentences)) for name in ("released", "naive")}
    lines |= {"naive-batch": range(min(NAIVE_BATCH, sentences))}
    floor = "floor" not in given["skip"] and given["device"] == "cpu"
    contest = Contest(job, names, lines, floor, warm=sentences)
    config = texts.size.model
    described = {"size": given["size"], "model": dataclasses.asdict(config), "sentences": sentences, "length": length}
    described["candidates"] = f"{frequent} and the lexicon's, of {frequent}"
    outcomes = compare(contest, given["beam"], given["repeats"])
    return {"workload": described, "beams": {beam: rates(contest, outcome) for beam, outcome in outcomes.items()}}


def compare(contest: Contest, beams: Sequence[int], repeats: int) -> dict[int, Outcome]:
    """Runs all variants in turn, narrow beams first, because peak memory is that of the widest beam so far."""
    task = dataclasses.asdict(contest.job)
    outcomes = {}
    with contestants([*contest.names, *([FLOOR] if contest.floor else [])], task) as processes:
        for beam in sorted(beams):
            say(f"beam {beam}")
            outcome = Outcome({})
            turns = {name: _turn(processes[name], beam, contest, outcome) for name in contest.names}
            if contest.floor:
                turns[FLOOR] = _floor_turn(processes[FLOOR], beam, outcome)
            take_turns(turns, repeats)
            outcomes[beam] = outcome
    return outcomes


def _turn(process: Contestant, beam: int, contest: Contest, outcome: Outcome) -> Callable[[], None]:
    """Asks a process to translate its lines, fewer in the first turn; the process measures the time."""
    name, places, asked = process.name, list(contest.lines[process.name]), 0

    def turn() -> None:
        nonlocal asked
        warm = contest.warm if name in OURS else 1
        answer = process.ask({"beam": beam, "lines": places if asked else places[:warm]})
        if asked:
            outcome.seconds.setdefault(name, []).append(answer["seconds"])
            outcome.found[name] = [tuple(each) for each in answer["found"]]
            outcome.peak_mb[name] = answer["peak_mb"]
        asked += 1

    return turn


def _floor_turn(process: Contestant, beam: int, outcome: Outcome) -> Callable[[], None]:
    def turn() -> None:
        outcome.floor = process.ask({"beam": beam, "lines": []})

    return turn


def rates(contest: Contest, outcome: Outcome) -> dict[str, Any]:
    """{"variants": {name: figures}, "agreement": between our fp32 variant and the naive decoder, or None}."""
    figures = {}
    for name, seconds in outcome.seconds.items():
        median, found = statistics.median(seconds), outcome.found[name]
        rate = len(found) / median
        figures[name] = {
            "sentences_per_second": rate,
            "words_per_second": sum(words for _, _, words in found) / median,
            "sentences": len(found),
            "spread": spread(seconds),
            "all_seconds": seconds,
            "peak_mb": outcome.peak_mb[name],
            "of_floor": outcome.floor[name] * rate if name in outcome.floor else None,
        }
    for slow in {"released", "naive"} & set(figures):
        for each in figures.values():
            ratio = each["sentences_per_second"] / figures[slow]["sentences_per_second"]
            each[f"times_{slow}"] = steady(ratio, each["spread"], figures[slow]["spread"])
    return {"variants": figures, "agreement": _agreement(contest, outcome)}


def _agreement(contest: Contest, outcome: Outcome) -> dict[str, Any] | None:
    """Compares our fp32 variant with the naive decoder on the lines that both translated; None if one is missing.

    Scores differ by rounding; texts may differ if two hypotheses have nearly equal scores.
    """
    if not {"naive", "ours-fp32"} <= set(outcome.found):
        return None
    ours = dict(zip(contest.lines["ours-fp32"], outcome.found["ours-fp32"], strict=True))
    pairs = [
        (ours[place], theirs)
        for place, theirs in zip(contest.lines["naive"], outcome.found["naive"], strict=True)
        if place in ours
    ]
    return {
        "sentences": len(pairs),
        "same_text": sum(mine[0] == theirs[0] for mine, theirs in pairs),
        "score_difference": max(abs(mine[1] - theirs[1]) for mine, theirs in pairs),
    }
