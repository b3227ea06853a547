"""Text files guided by coverage: the fuzzer Atheris changes those cases further that have reached new code of a reader.

An attempt is a process with 5,000 cases. It keeps the cases that reached new code, and the next attempt of the same
part continues with them. A case must give a result or one of nmtalign's errors, within limits of time and memory.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from faults.campaign import Part
from faults.mutations import Format, formats
from faults.processes import Workspace, run_python

from nmtalign.errors import NmtalignError

CASES = 5000  # of an attempt
_LONGEST = 4096  # bytes of a case
_NAMES = {
    *(
        "config.json",
        "vocabulary, forged",
        "tokenizer.json, forged",
        "lexicon",
        "links and gold",
        "numbered gold links",
    ),
    *("n-best list", "nmtalign.toml", "JSON lines", "text gz", "text xz", "text zst", "link.json", "train.jsonl"),
    *("glossary", "TMX", "TSV"),
}


def _read_text(folder: Path) -> object:
    from nmtalign.text.lines import read_lines

    return list(read_lines(folder / "train.en"))


def _read_config(folder: Path) -> object:
    from nmtalign.model_directory import model_config, read_settings

    settings = read_settings(folder / "model")
    return model_config(folder / "model", settings), settings


def readers() -> list[Format]:
    """The readers of text; that of config.json is called without loading the model."""
    found = {one.name: one for one in formats() if one.name in _NAMES}
    found["config.json"].read = _read_config
    return [*found.values(), Format("text", "train.en", _read_text, ("train.en",))]


def fuzz(name: str, folder: Path, seed: int) -> None:
    """Runs the cases of one attempt in this process, which Atheris ends."""
    import atheris

    (one,) = (each for each in readers() if each.name == name)
    path = folder / one.file
    with atheris.instrument_imports(include=["nmtalign", "json", "tomllib"]):
        one.read(folder)  # the readers import what they need

    def case(data: bytes) -> None:
        path.write_bytes(data)
        try:
            one.read(folder)
        except NmtalignError:
            return

    limits = [f"-runs={CASES}", f"-max_len={_LONGEST}", "-timeout=20", "-rss_limit_mb=2048"]
    atheris.Setup(["fuzzing", *limits, f"-seed={seed}", f"-artifact_prefix={folder}/", str(folder / "cases")], case)
    atheris.Fuzz()


def _attempt(one: Format, workspace: Workspace, chance: Random) -> str:
    folder = workspace.folder / f"fuzzed {one.name}"
    if not folder.exists():
        one.prepare(workspace, folder)
        (folder / "cases").mkdir()
        data = (folder / one.file).read_bytes()
        (folder / "cases" / "first").write_bytes(data[:_LONGEST])
        (folder / "cases" / "short").write_bytes(data[:200])
    (folder / one.file).write_bytes((folder / "original").read_bytes())
    done = run_python("-m", "faults.fuzzing", one.name, folder, chance.randrange(1, 2**31))
    if done.returncode == 0:
        return ""
    lines = (done.stdout + done.stderr).splitlines()
    fault = next((line for line in lines if "Error" in line or "ERROR" in line), f"exit code {done.returncode}")
    case = next((line for line in lines if line.startswith("Base64:")), "")
    return f"{fault} {case}"


def parts(workspace: Workspace) -> Iterator[Part]:
    """One part for each reader; none where Atheris is not installed."""
    if importlib.util.find_spec("atheris") is None:
        return
    for one in readers():
        yield Part(f"fuzzing: {one.name}", lambda chance, one=one: _attempt(one, workspace, chance), full=12, quick=1)


if __name__ == "__main__":
    fuzz(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
