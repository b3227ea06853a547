"""Runs fast_align of the package systran-align, in that package's environment: SOURCE TARGET LINKS.

The links are those of both directions, joined by grow-diag-final-and; the package gives no others.
"""

import sys
import tempfile
from pathlib import Path

import systran_align


def run(source: Path, target: Path, links: Path) -> None:
    """Learns from two texts and writes their links, with the options that fast_align's authors advise."""
    pairs = list(zip(*(path.read_text(encoding="utf-8").splitlines() for path in (source, target)), strict=True))
    with tempfile.TemporaryDirectory() as temporary:
        both, forward, backward = (f"{temporary}/{name}" for name in ("both", "forward", "backward"))
        Path(both).write_text("".join(f"{one} ||| {other}\n" for one, other in pairs), encoding="utf-8")
        how = {"favor_diagonal": True, "optimize_tension": True, "variational_bayes": True}
        systran_align.generate_alignment_probabilities(both, forward, backward, **how)
        aligner = systran_align.Aligner(forward, backward)
        with links.open("w", encoding="utf-8") as stream:
            for one, other in pairs:
                found = aligner.align(one.split(), other.split())["alignments"]
                stream.write(" ".join(f"{i}-{j}" for i, j in found) + "\n")


run(*map(Path, sys.argv[1:]))
