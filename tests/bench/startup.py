"""Start-up times: `--help`, the import of PyTorch, the first update and the first translation."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.machine import environment
from bench.random_model import write_model
from bench.report import say
from bench.texts import Texts, prepare, random_texts, training_options
from bench.watch import complaint_in, watch
from bench.workload import Size
from nmtalign.errors import NmtalignError
from nmtalign.text.tokenizer import Tokenizers

RUNS = 3


def startup_seconds(size: Size, sentences: int, length: int, threads: int) -> dict[str, float | None]:
    """Returns seconds of separate processes (medians of three); for training, up to the report of the first update."""
    found: dict[str, float | None] = {
        "nmtalign --help": _median([sys.executable, "-m", "nmtalign", "--help"]),
        "import torch": _median([sys.executable, "-c", "import torch"]),
    }
    with tempfile.TemporaryDirectory() as folder:
        pairs = max(2 * sentences, -(-size.model.target_vocabulary_size // (length - 1)))
        texts = random_texts(Path(folder), size, length, pairs)
        try:
            first = _first_update(texts, prepare(texts), sentences, threads)
        except NmtalignError as error:
            say(str(error))  # the other figures are still reported
            first = None
    return {**found, "nmtalign train, up to its first update": first}


_LOADING = """
import sys, time
from pathlib import Path
import torch
began = time.perf_counter()
from nmtalign.translating.translator import Translator
from nmtalign.model_directory import load_model
imported = time.perf_counter()
load_model(Path(sys.argv[1]), device="cpu")
loaded = time.perf_counter()
Translator.load(Path(sys.argv[1]), device="cpu")
print(imported - began, loaded - imported, time.perf_counter() - loaded)
"""


def translate_startup_seconds(model: Path) -> dict[str, float | None]:
    """Returns the seconds (medians of three) of `nmtalign translate` up to its first word: each part, and the total.

    Loading is measured on `model`; the total is measured on a random model of size `small` with 30,000 words.
    None = failed.
    """
    nmtalign = [sys.executable, "-m", "nmtalign"]
    found: dict[str, float | None] = {
        "nmtalign --help": _median([*nmtalign, "--help"]),
        "nmtalign translate --help": _median([*nmtalign, "translate", "--help"]),
        "import torch": _median([sys.executable, "-c", "import torch"]),
    }
    runs = [_loading_seconds(model) for _ in range(RUNS)]
    names = ("nmtalign's own imports after torch", "loading the model", "Translator.load, the model in the cache")
    found |= {name: statistics.median(run[place] for run in runs) for place, name in enumerate(names)}
    with tempfile.TemporaryDirectory() as folder:
        texts = random_texts(Path(folder), Size.of("small", 30000), 2, pairs=100)
        small = write_model(Path(folder) / "random", texts, Tokenizers.moses("en", "fr"))
        command = [*nmtalign, "translate", "--quiet", "-m", str(small)]
        try:
            answer = _median(command, b"Hello .\n")
        except NmtalignError as error:
            say(str(error))  # the other figures are still reported
            answer = None
    return {**found, 'echo "Hello ." | nmtalign translate, `small`': answer}


def _loading_seconds(model: Path) -> list[float]:
    """Measures the imports after PyTorch, `load_model` and `Translator.load` in a separate process."""
    command = [sys.executable, "-c", _LOADING, str(model)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    if done.returncode:
        raise NmtalignError(f"a process that loads {model} failed: {complaint_in(done.stderr.splitlines())}")
    return [float(part) for part in done.stdout.split()]


def _median(command: Sequence[str], stdin: bytes = b"") -> float:
    def once() -> float:
        began = time.perf_counter()
        done = subprocess.run(command, input=stdin, capture_output=True, env=environment())
        seconds = time.perf_counter() - began
        if done.returncode:
            why = complaint_in(done.stderr.decode("utf-8", "replace").splitlines())
            raise NmtalignError(f"{' '.join(command)} ended with {done.returncode}: {why}")
        return seconds

    return statistics.median(once() for _ in range(RUNS))


def _first_update(texts: Texts, data: Path, sentences: int, threads: int) -> float:
    options = [*training_options(texts.size, sentences, threads), "--max-updates", "50"]
    (texts.folder / "nmtalign.toml").write_text("[train]\nlog_every = 1\n", encoding="utf-8")
    command = [sys.executable, "-m", "nmtalign", "train", str(data), "-o", str(texts.folder / "model"), *options]
    seen = watch(command, r"^nmtalign: update (1) ", seconds=0, folder=texts.folder, matches=1)
    if not seen.matches:
        raise NmtalignError(f"nmtalign train ended before its first update: {seen.complaint}")
    return seen.matches[0][0]
