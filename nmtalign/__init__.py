"""The Python interface of nmtalign: train, translate, align and score with the models of Bahdanau et al. (2015).

PyTorch is imported only when a name that needs it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nmtalign.errors import FormatError, InputError, NmtalignError, ResourceError, TrainingError, UsageError
from nmtalign.version import __version__

if TYPE_CHECKING:
    from nmtalign.alignment.alignment_file import AlignmentFile
    from nmtalign.alignment.links import AlignmentRecord
    from nmtalign.alignment.symmetrization import symmetrize
    from nmtalign.api import (
        aer,
        align,
        application,
        describe,
        export_model,
        lexicon,
        link,
        prepare,
        score,
        score_pairs,
        train,
        write_alignments,
    )
    from nmtalign.columns import AlignBatch, TranslateBatch
    from nmtalign.translating.translation import Request, Translation
    from nmtalign.translating.translator import Translator

__all__ = [
    "AlignBatch",
    "AlignmentFile",
    "AlignmentRecord",
    "FormatError",
    "InputError",
    "NmtalignError",
    "Request",
    "ResourceError",
    "TrainingError",
    "TranslateBatch",
    "Translation",
    "Translator",
    "UsageError",
    "__version__",
    "aer",
    "align",
    "application",
    "describe",
    "export_model",
    "lexicon",
    "link",
    "prepare",
    "score",
    "score_pairs",
    "symmetrize",
    "train",
    "write_alignments",
]
_MODULES = {
    "AlignBatch": "nmtalign.columns",
    "AlignmentFile": "nmtalign.alignment.alignment_file",
    "AlignmentRecord": "nmtalign.alignment.links",
    "Request": "nmtalign.translating.translation",
    "TranslateBatch": "nmtalign.columns",
    "Translation": "nmtalign.translating.translation",
    "Translator": "nmtalign.translating.translator",
    "symmetrize": "nmtalign.alignment.symmetrization",
    **dict.fromkeys(
        (
            "aer",
            "align",
            "application",
            "describe",
            "export_model",
            "lexicon",
            "link",
            "prepare",
            "score",
            "score_pairs",
            "train",
            "write_alignments",
        ),
        "nmtalign.api",
    ),
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'nmtalign' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
