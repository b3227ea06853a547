"""nmtalign: learn to translate and to align at once (Bahdanau, Cho & Bengio 2015)."""

from typing import TYPE_CHECKING, Any

from nmtalign.version import __version__

if TYPE_CHECKING:
    from nmtalign.alignment.alignment_file import AlignmentFile
    from nmtalign.translating.translation import Request, Translation
    from nmtalign.translating.translator import Translator

__all__ = ["AlignmentFile", "Request", "Translation", "Translator", "__version__"]


def __getattr__(name: str) -> Any:
    """Imports what needs PyTorch only when it is asked for, so that `nmtalign --help` does not."""
    if name == "AlignmentFile":
        from nmtalign.alignment.alignment_file import AlignmentFile

        return AlignmentFile
    if name == "Translator":
        from nmtalign.translating.translator import Translator

        return Translator
    if name in ("Request", "Translation"):
        from nmtalign.translating import translation

        return getattr(translation, name)
    raise AttributeError(f"module 'nmtalign' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names too that are not imported yet."""
    return sorted({*globals(), *__all__})
