"""The cells and the scores of attention by the names that settings give them: what a new one is entered in."""

from collections.abc import Mapping

from nmtalign.config import Attention as Score
from nmtalign.config import Cell, ModelConfig
from nmtalign.core.additive import AdditiveAttention
from nmtalign.core.attention import Attention
from nmtalign.core.cells import GatedCell
from nmtalign.core.cudnn_cell import CudnnCell
from nmtalign.core.dot import DotAttention
from nmtalign.core.general import GeneralAttention
from nmtalign.core.paper_cell import PaperCell

CELLS: Mapping[Cell, type[GatedCell]] = {"paper": PaperCell, "cudnn": CudnnCell}
SCORES: Mapping[Score, type[AdditiveAttention | DotAttention]] = {
    "additive": AdditiveAttention,
    "dot": DotAttention,
    "general": GeneralAttention,
}


def make_cell(kind: Cell, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> GatedCell:
    """The cell named `kind`."""
    return CELLS[kind](input_size, size, context_size, directions)


def make_attention(config: ModelConfig, annotation_size: int) -> Attention | None:
    """The alignment model with the score that the settings name; None for a model without attention."""
    return SCORES[config.attention](config, annotation_size) if config.attention in SCORES else None
