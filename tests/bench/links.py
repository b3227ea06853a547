"""`bench links` compares word aligners on texts with gold links: `nmtalign link`, eflomal and fast_align.

A corpus is the files `NAME.train.{A,B}.gz` and `NAME.PART.{A,B,gold}` of a folder. An aligner reads the training text
and the pairs with gold links, and is evaluated on the latter.
"""

import gzip
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.machine import describe_machine, environment, in_words
from bench.peers import PeerError, softly
from bench.report import Table, figure, say, show
from nmtalign.alignment.link_files import aer
from nmtalign.alignment.symmetrization import HARD_METHODS, symmetrize_files
from nmtalign.errors import UsageError

SOFT = ("mean", "agreement")
# Others write the links of both directions as "source-target", or those that they have joined.
PEERS = {
    "eflomal": ["eflomal-align", "--model", "3", "-s", "{0}", "-t", "{1}", "-f", "{2}", "-r", "{3}"],
    "fast_align": ["python", str(Path(__file__).with_name("fast_align.py")), "{0}", "{1}", "{2}"],
}


@dataclass
class GoldText:
    """A corpus whose last pairs have gold links, as two files of text."""

    name: str
    texts: tuple[Path, Path]
    gold: Path
    pairs: int  # with gold links
    training: int  # the others

    def rate(self, links):
        """Returns the AER, the precision and the recall in percent of links of which the last have gold links."""
        systems = aer([("", self.last(links))], self.gold, links_base=0, gold_base=0).systems
        figures = systems[0].figures
        rates = {"aer": figures.aer, "precision": figures.precision, "recall": figures.recall}
        return {name: value and 100 * value for name, value in rates.items()}

    def last(self, text):
        """Returns a file with the lines of the pairs with gold links, the last ones of the text."""
        own = text.with_name(f"{text.name}.own")
        lines = text.read_text(encoding="utf-8").splitlines()[-self.pairs :]
        own.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return own


def run(given):
    """Runs the subcommand with its options by name, prints tables, and returns the results."""
    machine = describe_machine()
    say(in_words(machine))
    results = {"benchmark": "links", "machine": machine, "corpora": {}}
    with tempfile.TemporaryDirectory(prefix="nmtalign-bench-", dir=given["folder"]) as temporary:
        for folder in given["data"]:
            for corpus in gold_texts(folder, given["part"], Path(temporary)):
                results["corpora"][corpus.name] = found = measure(corpus, given, Path(temporary))
                show([_table(corpus, found)])
    return results


def gold_texts(folder, part, output):
    """Yields the corpora of a folder, written as text; raises UsageError if there is none."""
    golds = sorted([*folder.glob(f"*.{part}.gold"), *folder.glob(f"{part}.gold")])
    if not golds:
        raise UsageError(f"{folder}: has no file {part}.gold or NAME.{part}.gold; give another folder or --part")
    for gold in golds:
        stem = gold.name.removesuffix("gold")  # ro-en.dev.
        train = stem.removesuffix(f"{part}.") + "train."
        languages = [path.name.removesuffix(".gz").rpartition(".")[2] for path in sorted(folder.glob(f"{train}*.gz"))]
        if languages[0] == "en" and stem != f"{part}.":  # the gold links of a named pair have the other language first
            languages.reverse()
        name = stem.removesuffix(f".{part}.") if stem != f"{part}." else folder.name
        texts, pairs, training = [], 0, 0
        for language in languages:
            with gzip.open(folder / f"{train}{language}.gz", "rt", encoding="utf-8") as stream:
                lines = stream.read().splitlines()
            own = (folder / f"{stem}{language}").read_text(encoding="utf-8").splitlines()
            texts.append(output / f"{name}.{language}")
            texts[-1].write_text("\n".join([*lines, *own]) + "\n", encoding="utf-8")
            pairs, training = len(own), len(lines)
        yield GoldText(name, (texts[0], texts[1]), gold, pairs, training)


def measure(corpus, given, folder):
    """Returns the figures of all aligners and methods by name."""
    found = {"nmtalign link": _ours(corpus, folder, given["threads"])}
    if given["methods"]:
        found.update(_methods(corpus, folder))
    for name in filter(None, given["peers"].split(",")):
        best = softly(lambda name=name: _peer(name, corpus, given["peer_env"], folder))
        found.update(best if "failed" not in best else {name: best})
    return found


def _timed(command, output):
    """Runs a command with its output in a file; returns processor seconds and peak MB; raises PeerError if it fails."""
    say(" ".join(Path(part).name if os.sep in part else part for part in command))
    with output.open("wb") as stream, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=stream, stderr=errors, env=environment())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines() or [""]
            raise PeerError(f"{Path(command[0]).name} ended with {process.returncode}: {lines[-1][:200]}")
    return {"seconds": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss / 1024}


def _ours(corpus, folder, threads):
    links = folder / f"{corpus.name}.links"
    command = [sys.executable, "-m", "nmtalign", "link", *map(str, corpus.texts), "-o", str(folder / corpus.name)]
    spent = _timed([*command, "--tokenized", "-q", "--set", f"threads={threads}"], links)
    return {**corpus.rate(links), **spent}


def _methods(corpus, folder):
    """Aligns the pairs with gold links by the aligner of `_ours`, with each method that joins two directions."""
    found, own = {}, list(map(corpus.last, corpus.texts))
    for method in (*HARD_METHODS, *SOFT):
        links = folder / "method.links"
        command = [sys.executable, "-m", "nmtalign", "align", *map(str, own), "-m", str(folder / corpus.name)]
        _timed([*command, "--tokenized", "--pharaoh", "--symmetrize", method, "-q"], links)
        found[f"nmtalign align, {method}"] = corpus.rate(links)
    return found


def _peer(name, corpus, environments, folder):
    """Runs another aligner; returns the best method that joins its two directions."""
    if name not in PEERS:
        raise UsageError(f"--peers: unknown aligner {name!r}; choose from {', '.join(PEERS)}")
    if environments is None:
        raise UsageError("--peers: needs --peer-env, a virtual environment with eflomal and systran-align")
    files = [*map(str, corpus.texts), *(str(folder / f"{corpus.name}.{name}.{side}") for side in ("ahead", "back"))]
    program, *arguments = [part.format(*files) for part in PEERS[name]]
    spent = _timed([str(environments / "bin" / program), *arguments], folder / f"{name}.output")
    if not Path(files[3]).exists():
        return {f"{name}, grow-diag-final-and": {**corpus.rate(Path(files[2])), **spent}}
    rows, both = {}, folder / f"{name}.both"
    own = corpus.last(Path(files[2])), corpus.last(Path(files[3]))
    for method in HARD_METHODS:
        symmetrize_files(*own, both, method, backward_order="source-target")
        rows[f"{name}, {method}"] = {**corpus.rate(both), **spent}
    best = min(rows, key=lambda row: rows[row]["aer"])
    return {best: rows[best]}


def _table(corpus, found):
    names = ("aer", "precision", "recall")
    rows = [
        [name, *(figure(row.get(key), 1) for key in names), *(figure(row.get(key)) for key in ("seconds", "peak_mb"))]
        for name, row in found.items()
    ]
    title = f"{corpus.name}: {corpus.training:,} pairs, and {corpus.pairs} with gold links (AER in percent)"
    return Table(title, ["", "AER", "precision", "recall", "CPU seconds", "peak MB"], rows)
