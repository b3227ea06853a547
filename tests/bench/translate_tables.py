"""The tables of `bench translate`."""

from collections.abc import Mapping
from typing import Any

from bench.contestants import NAIVE_BATCH, OURS
from bench.machine import in_words
from bench.report import Table, figure, percent, times

TITLES = {
    "released": "as the released code: one sentence at a time, keys at each step",
    "naive": "naive: one sentence at a time, keys once",
    "naive-batch": f"naive, {NAIVE_BATCH} sentences per batch",
    "ours-fp32": "ours, fp32",
    "ours-bf16": "ours, bf16",
    "ours-int8": "ours, int8",
    "ours-candidates": "ours, bf16, candidate words",
    "ours-int8-candidates": "ours, int8, candidate words",
}
# Speed relative to "released", on two cores. Without fast bf16, int8 should be twice as fast as fp32, with candidates
# three times.
WANTED = {"ours-fp32": 5.5, "ours-bf16": 14.0, "ours-int8": 11.0, "ours-candidates": 32.0, "ours-int8-candidates": 16.5}
WANTED_AT = 12  # at this beam size
COST = 0.1  # the BLEU that bf16, int8 and candidates may cost
STARTUP = {"loading": 0.05, "Hello": 3.0, "--help": 0.3}  # greatest seconds of rows whose names contain these words


def tables(results: Mapping[str, Any]) -> list[Table]:
    """Returns the tables: speed first, one per beam size, the widest first."""
    made = []
    if "speed" in results:
        speed = results["speed"]
        work, found = speed["workload"], speed["beams"]
        made += [_speed_table(work, beam, found[beam]) for beam in sorted(found, reverse=True)]
        made[-1].note += (
            f"\n{in_words(results['machine'])}\nours: Translator.translate, from lines of words to text, with "
            "batching; naive: only the search, on words; floor: only the matrix products\nof the search, in the same "
            f"batches; candidates: {work['candidates']}; peak: of a separate process (VmHWM)"
        )
    if "real" in results:
        made += [_real_table(results["real"], beam) for beam in sorted(results["real"]["beams"], reverse=True)]
    if "startup" in results:
        made.append(_startup_table(results["startup"]))
    if "peers" in results:
        from bench.translate_peers import peers_table

        made.append(peers_table(results["peers"]))
    return made


def _speed_table(work: Mapping[str, Any], beam: int, found: Mapping[str, Any]) -> Table:
    words = work["model"]["target_vocabulary_size"]
    title = f"Translating `{work['size']}`, {words:,} words, beam {beam}: {work['sentences']} random sentences"
    columns = ["", "x released", "wanted", "x naive", "sentences/s", "words/s", "spread", "of floor", "peak MB"]
    table = Table(f"{title}, {work['length']} words in and out", columns)
    for name, figures in found["variants"].items():
        table.rows.append(
            [
                TITLES[name],
                times(figures.get("times_released")),
                times(WANTED[name]) if name in WANTED and beam == WANTED_AT else "-",
                times(figures.get("times_naive")),
                *_rates(figures),
                percent(figures["spread"]),
                percent(figures["of_floor"]),
                figure(figures["peak_mb"]),
            ]
        )
    table.note = _agreement(found)
    return table


def _rates(figures: Mapping[str, Any]) -> tuple[str, str]:
    return figure(figures["sentences_per_second"], 1), figure(figures["words_per_second"])


def _agreement(found: Mapping[str, Any]) -> str:
    agreement = found["agreement"]
    if not agreement:
        return ""
    return (
        f"ours in fp32 and naive: {agreement['same_text']} of {agreement['sentences']} texts are equal, "
        f"scores differ by at most {agreement['score_difference']:.1e}"
    )


def _real_table(real: Mapping[str, Any], beam: int) -> Table:
    found = real["beams"][beam]
    columns = ["", "BLEU", "cost", "allowed", "same as fp32", "x released", "sentences/s", "words/s"]
    table = Table(f"{real['model']} on {real['text']}, {real['sentences']:,} lines, beam {beam}", columns)
    for name, figures in found["variants"].items():
        allowed = name in OURS and name != "ours-fp32" and figures.get("cost") is not None
        table.rows.append(
            [
                TITLES[name],
                figure(figures.get("bleu"), 2),
                figure(figures.get("cost"), 2),
                figure(COST, 1) if allowed else "-",
                percent(figures.get("same_as_fp32")),
                times(figures.get("times_released")),
                *_rates(figures),
            ]
        )
    table.note = "\n".join(filter(None, [_agreement(found), real.get("signature"), real.get("without")]))
    return table


def _startup_table(found: Mapping[str, float | None]) -> Table:
    table = Table("Start-up, medians of separate processes", ["", "seconds", "wanted"])
    for name, seconds in found.items():
        most = next((most for part, most in STARTUP.items() if part in name), None)
        table.rows.append([name, figure(seconds, 3), figure(most, 2)])
    return table
