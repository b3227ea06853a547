"""Other alignment models: scores and local attention of Luong et al. (2015), linguistic coverage (Tu et al. 2016).

The score "dot" is energies[i, j] = s . keys[j], where a key is an annotation; in "general" it is W_a annotations[j].

Local attention (section 3.2 of that article) attends to the positions within D of a position p. In local-m the position
is the number of the target word, p_t = t, and at most that of the last source word. In local-p it is predicted: p_t = S
sigmoid(v_p . tanh(W_p state)) for S source words, and each weight is multiplied by exp(-(j - p_t)^2 / (2 sigma^2)),
sigma = D / 2. Positions are those of the sentence, in whichever direction the encoder reads it.

With linguistic coverage energies[t, j] = v_a . tanh(W_a s + U_a annotations[j] + V_c coverage[t, j]), where
coverage[0] = 0 and coverage[t + 1, j] = coverage[t, j] + weights[t, j] / Phi_j. Phi_j = N sigmoid(U_f annotations[j])
is the fertility of a source word: the number of target words it becomes, at most N = 2 as in that paper. A word with
coverage 1 is translated completely.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.attention import (
    MIN_POSITIONS,
    MIN_ROWS,
    AdditiveAttentionPass,
    Attention,
    AttentionInputs,
    AttentionPass,
    extended,
)
from nmtalign.core.functional import one_minus_square, over_steps, sigmoid_, wide
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.settings.training_settings import ModelConfig

FERTILITY_LIMIT = 2.0  # N


class DotAttentionPass(AttentionPass):
    """energies[i, j] = s . keys[j]; the sums are wide beside bf16 too."""

    def __init__(self, inputs: AttentionInputs) -> None:
        super().__init__(inputs)
        self._wide_keys = self.keys.to(self.weights.dtype)

    def energies(self, step: int, row: Tensor) -> Tensor:
        """s . keys."""
        queries = row.to(self.weights.dtype).view(self.batch, self.rows_each, -1)
        keys = self._wide_keys
        if not self.differentiate:
            queries, keys = extended(queries, MIN_ROWS), extended(keys, MIN_POSITIONS)
        return torch.bmm(queries, keys.mT)[:, : self.rows_each, : self.length]

    def start_backward(self) -> None:
        """Allocates the gradients."""
        super().start_backward()
        self._d_energies = torch.empty_like(self.weights)

    def energies_backward(self, step: int, d_energies: Tensor) -> Tensor:
        """The sum of d_energies * keys over the positions."""
        self._d_energies[step] = d_energies
        return torch.bmm(d_energies[:, None], self._wide_keys).squeeze(1)

    def d_keys(self, rows: Tensor) -> Tensor:
        """The sum of d_energies * s over the steps: one product (B, Tx, n)."""
        wide_rows = rows.transpose(0, 1).to(self.weights.dtype)
        return torch.bmm(self._d_energies.permute(1, 2, 0), wide_rows).to(self.keys.dtype)


class DotAttention(Attention):
    """Luong et al.'s score "dot": no parameters, so state and key must have the same size n.

    With two directions the key is the sum of the two halves of an annotation, forward_j + backward_j; with one
    direction it is the annotation itself. Contexts are sums of complete annotations.
    """

    pass_class = DotAttentionPass

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__()
        self._size = config.hidden

    def keys(self, annotations: Tensor) -> Tensor:
        """The sum of the directions: (B, Tx, 2n) to (B, Tx, n)."""
        first, *others = annotations.split(self._size, -1)
        return first + others[0] if others else annotations


class GeneralAttention(DotAttention):
    """Luong et al.'s score "general": energies[i, j] = s . W_a annotations[j], with one parameter W_a (n, 2n)."""

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__(config, annotation_size)
        self.key_weight = nn.Parameter(torch.empty(config.hidden, annotation_size))  # W_a

    def keys(self, annotations: Tensor) -> Tensor:
        """W_a annotations: (B, Tx, 2n) to (B, Tx, n)."""
        return F.linear(annotations, self.key_weight.to(annotations.dtype))


class LocalPass(AttentionPass):
    """Attention steps within a window; a class of it and of a score's pass has the energies.

    The weights are normalised, so that they are an alignment as in every other model. In local-p the contexts are sums
    with the paper's weights, the `shares`: the softmax over the window times the Gaussian, whose sum is less than 1.
    """

    def __init__(self, inputs: AttentionInputs) -> None:
        super().__init__(inputs)
        self._window, self._before = inputs.window, inputs.position
        places = torch.arange(self.length, device=self.keys.device)
        real = self.keys.new_full((self.batch,), self.length, dtype=torch.long)
        if self.padding is not None:
            real = self.length - self.padding.sum(1)
        self._real = real.repeat_interleave(self.rows_each)[:, None]  # (N, 1), S
        self._places = places.to(self.weights.dtype)
        if self._before is None:
            *_, self._position_weight, self._position_vector = inputs.parameters
            units = len(self._position_weight)
            self.shares, self._softmax, self._offsets = (torch.empty_like(self.weights) for _ in range(3))
            self._hidden = self.weights.new_empty(*self.weights.shape[:2], units)
            self._sigmoids = self.weights.new_empty(*self.weights.shape[:2], 1)

    def _masked(self, step: int, row: Tensor, energies: Tensor) -> Tensor:
        """-inf outside the window, too."""
        if self._before is not None:
            offsets = self._places - torch.minimum(self._before[:, None] + step, self._real - 1)
        else:
            hidden = self._hidden[step].copy_(row @ self._position_weight.t()).tanh_()
            sigmoids = self._sigmoids[step].copy_((hidden * self._position_vector).sum(-1, keepdim=True))
            offsets = torch.sub(self._places, sigmoid_(sigmoids) * self._real, out=self._offsets[step])
        outside = (offsets.abs() > self._window).view(energies.shape)
        return super()._masked(step, row, energies).masked_fill(outside, -torch.inf)

    def _rescaled(self, step: int) -> Tensor:
        """In local-p shares = softmax * exp(-offset^2 / (2 sigma^2)), where 2 sigma^2 = D^2 / 2."""
        weights, shares = self.weights[step], self.shares[step]
        if self._before is None:
            softmax = self._softmax[step].copy_(weights)
            scale = (self._offsets[step] / self._window).square_().mul_(-2).exp_()
            torch.mul(softmax, scale, out=shares)
            torch.div(shares, shares.sum(-1, keepdim=True), out=weights)
        return shares

    def start_backward(self) -> None:
        """Allocates the gradients."""
        super().start_backward()
        if self._before is None:
            self._d_hidden = torch.empty_like(self._hidden)
            self._d_sums = torch.empty_like(self._sigmoids)

    def _d_energies_of(self, step: int, d_shares: Tensor, d_weights: Tensor | None) -> Tensor:
        """Also the gradient of the predicted position: the derivative of a share is share * offset / sigma^2."""
        if self._before is not None:
            return super()._d_energies_of(step, d_shares, d_weights)
        shares = self.shares[step]
        if d_weights is not None:
            mean = (d_weights * self.weights[step]).sum(-1, keepdim=True)
            d_shares = d_shares + (d_weights - mean) / shares.sum(-1, keepdim=True)
        total = shares * d_shares
        d_position = (total * self._offsets[step]).sum(-1, keepdim=True) * (4 / self._window**2)
        sigmoid, hidden = self._sigmoids[step], self._hidden[step]
        d_sum = torch.mul(d_position * self._real, sigmoid - sigmoid * sigmoid, out=self._d_sums[step])
        torch.mul(d_sum * self._position_vector, one_minus_square(hidden), out=self._d_hidden[step])
        return total - self._softmax[step] * total.sum(-1, keepdim=True)

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """As in `AttentionPass`; the predicted position depends on the state, too."""
        d_row = super().backward(step, d_weights)
        if self._before is not None:
            return d_row
        return d_row + self._d_hidden[step].to(self._position_weight.dtype) @ self._position_weight

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of W_p and v_p, too."""
        if self._before is not None:
            return super().d_parameters(rows)
        d_vector = (self._d_sums * self._hidden).sum((0, 1))
        return *super().d_parameters(rows), over_steps(self._d_hidden.to(rows.dtype), rows), d_vector


class LocalDotPass(LocalPass, DotAttentionPass):
    """Local attention with the scores dot and general."""


class LocalAdditivePass(LocalPass, AdditiveAttentionPass):
    """Local attention with the additive score."""


LOCAL_PASSES: Mapping[type[AttentionPass], type[LocalPass]] = {
    DotAttentionPass: LocalDotPass,
    AdditiveAttentionPass: LocalAdditivePass,
}


class PositionPredictor(Initialised):
    """The parameters of the predicted position of local-p: W_p (n', n) and v_p (n')."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": Role.MATRIX, "vector": Role.ENERGY}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.attention_hidden, config.hidden))
        self.vector = nn.Parameter(torch.empty(config.attention_hidden))

    def parameters_in(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """W_p in the dtype of the products; v_p wide, so that a rounded position does not jump by words."""
        return self.weight.to(dtype), self.vector.to(wide(dtype))


class CoverageAttentionPass(AdditiveAttentionPass):
    """Attention steps that depend on the coverage (N, Tx) that the steps before have left; PyTorch on a GPU too."""

    def __init__(self, inputs: AttentionInputs) -> None:
        super().__init__(inputs)
        *_, self._coverage_vector, shares = inputs.parameters
        self._shares = shares if self.rows_each == 1 else shares.repeat_interleave(self.rows_each, 0)
        self._coverage = self.weights.new_zeros(inputs.steps + 1, *self._shares.shape)
        if inputs.coverage is not None:
            self._coverage[0] = inputs.coverage

    def forward(self, step: int, row: Tensor) -> None:
        """As in `AttentionPass`; the coverage grows by the weights, each product rounded before it is added."""
        super().forward(step, row)
        torch.add(self._coverage[step], self.weights[step] * self._shares, out=self._coverage[step + 1])

    def new_coverage(self, step: int) -> Tensor | None:
        """The coverage (N, Tx) after a step."""
        return self._coverage[step + 1]

    def start_backward(self) -> None:
        """Allocates the gradients."""
        super().start_backward()
        self._d_coverage = torch.zeros_like(self._shares)  # of the coverage after a step
        self._d_shares = torch.zeros_like(self._shares)
        self._both_vectors = self.vector * self._coverage_vector
        self._d_coverage_vector = torch.zeros_like(self.vector, dtype=self.weights.dtype)

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """The gradient (B, n) of the state of a step, once `d_contexts[step]` is complete."""
        self._d_shares.addcmul_(self._d_coverage, self.weights[step])
        through = self._d_coverage * self._shares
        return super().backward(step, through if d_weights is None else through.add_(d_weights))

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of W_a and v_a, of V_c (n',) and of the shares (B, Tx).

        V_c's is v_a times the sum of d_energy * coverage * (1 - tanh^2) over steps and positions.
        """
        d_coverage_vector = (self._d_coverage_vector * self.vector).to(self.vector.dtype)
        return *super().d_parameters(rows), d_coverage_vector, self._d_shares

    def _sums(self, step: int, sentences: slice, rows: slice) -> Tensor:
        total = super()._sums(step, sentences, rows)
        coverage = self._coverage[step].view(self.batch, self.rows_each, -1)[sentences, rows, :, None]
        # Two operations: fused into one, the last elements of a tensor may be rounded differently from the others.
        return total.add_(coverage.to(total.dtype) * self._coverage_vector)

    def _coverage_backward(self, step: int, d_energies: Tensor, squares: Tensor) -> None:
        """The coverage before the step has the gradient d_energy * sum of v_a * V_c * (1 - tanh^2), added up."""
        flat = squares.view(-1, squares.shape[-1])
        slopes = (self._both_vectors.sum() - flat @ self._both_vectors).view(d_energies.shape)
        self._d_coverage.addcmul_(d_energies, slopes.to(d_energies.dtype))
        covered = d_energies * self._coverage[step]
        self._d_coverage_vector += covered.sum() - (covered.to(squares.dtype).view(1, -1) @ flat)[0]


class Coverage(Initialised):
    """The parameters of linguistic coverage: V_c turns coverage into energies, U_f gives the fertility."""

    roles: ClassVar[Mapping[str, Role]] = {"coverage_weight": Role.ATTENTION, "fertility_weight": Role.ATTENTION}

    def __init__(self, annotation_size: int, size: int) -> None:
        super().__init__()
        self.coverage_weight = nn.Parameter(torch.empty(size, 1))  # V_c
        self.fertility_weight = nn.Parameter(torch.empty(1, annotation_size))  # U_f

    def shares(self, annotations: Tensor) -> Tensor:
        """1 / Phi_j, what a weight of 1 adds to a word's coverage: (B, Tx, 2n) to (B, Tx), float32 or float64."""
        weight = self.fertility_weight.to(annotations.dtype)
        products = (annotations.flatten(0, 1) @ weight.t()).to(wide(annotations.dtype))
        return (1 + products.neg().exp()).div(FERTILITY_LIMIT).view(annotations.shape[:2])

    def vector(self, dtype: torch.dtype) -> Tensor:
        """V_c (n',) in a dtype."""
        return self.coverage_weight.to(dtype).squeeze(1)
