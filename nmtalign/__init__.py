"""The Python interface of nmtalign: train, translate, align and score with the models of Bahdanau et al. (2015).

PyTorch is imported only when a name that needs it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nmtalign.errors import FormatError, InputError, NmtalignError, ResourceError, TrainingError, UsageError
from nmtalign.version import __version__

# ruff: noqa: F403, F405
if TYPE_CHECKING:
    from nmtalign.alignment.alignment_file import AlignmentFile
    from nmtalign.alignment.link_files import aer
    from nmtalign.alignment.linking import link
    from nmtalign.alignment.links import AlignmentRecord
    from nmtalign.alignment.symmetrization import symmetrize, symmetrize_files
    from nmtalign.api import *
    from nmtalign.data.prepare import prepare
    from nmtalign.scoring.scoring_run import score
    from nmtalign.translating.requests import Request
    from nmtalign.translating.rescoring import score_pairs
    from nmtalign.translating.translator import Translation, Translator

__all__ = [
    "AlignmentFile",
    "AlignmentRecord",
    "FormatError",
    "InputError",
    "NmtalignError",
    "Request",
    "ResourceError",
    "TrainingError",
    "Translation",
    "Translator",
    "UsageError",
    "__version__",
    "aer",
    "align",
    "align_files",
    "application",
    "describe",
    "export",
    "link",
    "prepare",
    "score",
    "score_pairs",
    "serve",
    "symmetrize",
    "symmetrize_files",
    "train",
    "translate_files",
    "view",
]
_MODULES = {
    "AlignmentFile": "nmtalign.alignment.alignment_file",
    "AlignmentRecord": "nmtalign.alignment.links",
    "Request": "nmtalign.translating.requests",
    "Translation": "nmtalign.translating.translator",
    "Translator": "nmtalign.translating.translator",
    "aer": "nmtalign.alignment.link_files",
    "link": "nmtalign.alignment.linking",
    "prepare": "nmtalign.data.prepare",
    "score": "nmtalign.scoring.scoring_run",
    "score_pairs": "nmtalign.translating.rescoring",
    "symmetrize": "nmtalign.alignment.symmetrization",
    "symmetrize_files": "nmtalign.alignment.symmetrization",
}
"""The modules of the names that are not in nmtalign.api."""


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name in __all__:
        return getattr(import_module(_MODULES.get(name, "nmtalign.api")), name)
    raise AttributeError(f"module 'nmtalign' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
