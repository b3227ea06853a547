"""How long a person waits: for `--help`, for the import of PyTorch, and for the first update of a training."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.machine import environment
from bench.report import say
from bench.texts import Texts, prepare, random_texts, training_options
from bench.watch import watch
from bench.workload import Size
from nmtalign.errors import NmtalignError

RUNS = 3


def startup_seconds(size: Size, sentences: int, length: int, threads: int) -> dict[str, float | None]:
    """Seconds, medians of three, of processes of their own; for training, to the report of the first update."""
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
            say(str(error))  # the other figures stand without it
            first = None
    return {**found, "nmtalign train, to its first update": first}


def _median(command: Sequence[str]) -> float:
    def once() -> float:
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment())
        return time.perf_counter() - began

    return statistics.median(once() for _ in range(RUNS))


def _first_update(texts: Texts, data: Path, sentences: int, threads: int) -> float:
    options = [*training_options(texts.size, sentences, threads), "--max-updates", "50"]
    (texts.folder / "nmtalign.toml").write_text("[train]\nlog_every = 1\n", encoding="utf-8")
    command = [sys.executable, "-m", "nmtalign", "train", str(data), "-o", str(texts.folder / "model"), *options]
    seen = watch(command, r"^nmtalign: update (1) ", seconds=0, folder=texts.folder, matches=1)
    if not seen.matches:
        raise NmtalignError(f"nmtalign train ended before its first update: {seen.complaint}")
    return seen.matches[0][0]
