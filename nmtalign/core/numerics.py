"""What all layers compute with: device and precision, products, small functions, and the roles of parameters.

Products are in fp32, bf16 or int8; states, sums and probabilities stay float32. The roles of parameters decide which
of them are narrowed, and how they are initialised (appendix B.1 and two other rules).
"""

import contextlib
import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from enum import Enum
from functools import cache, cached_property, wraps
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nmtalign.errors import ResourceError, is_out_of_memory
from nmtalign.processor import bf16_is_fast, cpu_facts, fastest_precision
from nmtalign.settings.definition import Device, InferencePrecision, Precision
from nmtalign.settings.training_settings import Initialisation

F_ = TypeVar("F_", bound=Callable[..., Any])
_CACHED_ELEMENTS = 1 << 19  # elements whose tanh is computed together: they stay in the processor's cache
_PARTIAL_SUMS = 16
LEAST = 1e-30  # smaller probabilities are imprecise; it replaces smaller divisors and arguments of a logarithm
BF16_UNITS = 512  # units of a hidden layer; smaller models train no faster in bf16 on a CPU


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of states, sums and probabilities beside products in `dtype`: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def product(
    rows: Tensor, weight: "Tensor | SharedWeight", addend: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """`rows W^T (+ addend)`, in `out` if given: rows (B, in) with weight (out, in), or (D, B, in) with (D, out, in)."""
    if isinstance(weight, SharedWeight):
        return weight.product(rows, addend)
    if isinstance(weight, Int8Weight) and not _needs_gradient(rows):
        return weight.product(rows, addend, out)
    if addend is None:
        return torch.matmul(rows, weight.mT, out=out)
    if weight.dim() == 2:
        return torch.addmm(addend, rows, weight.t(), out=out)
    return torch.baddbmm(addend, rows, weight.mT, out=out)


class SharedWeight:
    """A weight that many steps multiply. Its gradient is one product over all steps, not the sum of one per step.

    Each product has the same token, a zero, as an input, so that autograd computes the gradient after the last step.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight, self._steps = weight.detach(), list[tuple[Tensor, Tensor]]()
        self._token = _SharedGradient.apply(self._steps, weight)

    def product(self, rows: Tensor, addend: Tensor | None) -> Tensor:
        """As `product`; an addend has the shape of the result."""
        total: Tensor = _SharedProduct.apply(self._steps, self.weight, self._token, rows, addend)
        return total


class _SharedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, steps: list[tuple[Tensor, Tensor]], weight: Tensor) -> Tensor:
        ctx.steps = steps
        return weight.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[None, Tensor]:
        gradients, rows = zip(*ctx.steps, strict=True)
        ctx.steps.clear()
        return None, torch.cat(gradients, -2).mT @ torch.cat(rows, -2)


class _SharedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, steps: Any, weight: Tensor, token: Tensor, rows: Tensor, addend: Tensor | None) -> Tensor:
        ctx.steps, ctx.has_addend = steps, addend is not None
        ctx.save_for_backward(weight, rows)
        return product(rows, weight, addend)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, rows = ctx.saved_tensors
        ctx.steps.append((gradient, rows))
        return None, None, gradient.new_zeros(()), gradient @ weight, gradient if ctx.has_addend else None


def shared(weight: Tensor) -> Tensor | SharedWeight:
    """A weight for the products of many steps: a `SharedWeight` if it gets a gradient."""
    return SharedWeight(weight) if weight.requires_grad and torch.is_grad_enabled() else weight


def fast_dropout(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """x with a random share of its numbers set to 0 and the others scaled, in a fifth of the time of PyTorch's dropout.

    On a CPU each number takes 16 random bits, so that the share is exact to 1/65,536.
    """
    if not (rate and training) or x.device.type != "cpu":
        return F.dropout(x, rate, training)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = bits[: x.numel()].view(x.shape) >= round(rate * 65_536) - 32_768
    return x * kept.to(x.dtype).mul_(1 / (1 - rate))


def maxout(values: Tensor) -> Tensor:
    """The larger of each pair of adjacent values: (..., 2l) to (..., l)."""
    return torch.maximum(*values.unflatten(-1, (-1, 2)).unbind(-1))


def additive_energies(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """v_a . tanh(queries + keys), (B, R, Tx) wide, of queries (B, R, n') and keys (B, Tx, n'); without a gradient.

    On a CPU a few sentences at a time, so that their tanh stays in the cache.
    """
    (batch, rows, _), length = queries.shape, keys.shape[1]
    energies = keys.new_empty(batch, rows, length, dtype=wide(keys.dtype))
    partial_vectors = in_partial_sums(vector.to(keys.dtype))
    most = max(1, _CACHED_ELEMENTS // (length * keys.shape[2])) if keys.device.type == "cpu" else batch * rows
    sentences, each = max(1, most // rows), min(rows, most)  # sentences with all their rows, if they fit
    for start in range(0, batch, sentences):
        for row in range(0, rows, each):
            part = slice(start, start + sentences), slice(row, row + each)
            sums = tanh_(keys[part[0], None] + queries[part][:, :, None]) @ partial_vectors
            torch.sum(sums, -1, dtype=energies.dtype, out=energies[part])
    return energies


def in_partial_sums(vector: Tensor) -> Tensor:
    """v_a (n',) as (n', P), whose product with a row gives P partial sums of an energy; P = 1 in float32.

    An energy that is rounded to bf16 only once, at the end, was the larger half of the error of bf16 in the
    log-probability of a translation.
    """
    if vector.dtype == wide(vector.dtype):
        return vector[:, None]
    units = torch.arange(len(vector), device=vector.device)
    return vector[:, None] * (units[:, None] % _PARTIAL_SUMS == units[:_PARTIAL_SUMS])


def tanh_(x: Tensor) -> Tensor:
    """tanh of a contiguous tensor, which may be overwritten; without a gradient.

    On a CPU, float32 is accurate to 2e-7 (absolute). With AVX-512, oneDNN's tanh takes a fifth of the time of
    PyTorch's. Without it, tanh(x) = 2 sigmoid(2 x) - 1 takes 0.4 of the time.
    """
    if x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16):
        if x.dtype == torch.float32 and torch.backends.cpu.get_cpu_capability() != "AVX512":
            return x.mul_(2).sigmoid_().mul_(2).sub_(1)
        if _has_onednn(x.dtype):
            return torch.tanh_(x.to_mkldnn()).to_dense()
    return x.tanh_()


@cache
def _has_onednn(dtype: torch.dtype) -> bool:
    """Whether this build and this processor support oneDNN tensors of a dtype."""
    try:
        torch.tanh_(torch.zeros(16, dtype=dtype).to_mkldnn()).to_dense()
    except RuntimeError:
        return False
    return bool(torch.backends.mkldnn.is_available())


def fused(function: F_) -> F_:
    """On a GPU, a function of elementwise operations and sums becomes few kernels, by PyTorch's compiler.

    Elsewhere, and where the compiler is missing or fails, it runs as it is written, with the same results up to
    rounding. It may change its arguments in place. Shapes are free: the first call compiles it for all of them.
    """
    compiled: Any = None

    @wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal compiled
        if not (arguments[0].is_cuda and Fusion.wanted) or Fusion.problem:
            return function(*arguments)
        try:
            # In this process: PyTorch 2.11 may wait 300 seconds for processes that compile when a short program ends.
            compiled = compiled or torch.compile(function, dynamic=True, options={"compile_threads": 1})
            with warnings.catch_warnings(action="ignore"):  # a compiler whose warnings are errors would fail
                return compiled(*arguments)
        except Exception as error:  # a compiler may raise any error
            if is_out_of_memory(error):
                raise
            Fusion.problem = str(error).strip().partition("\n")[0] or type(error).__name__
            return function(*arguments)

    return cast(F_, call)


class Fusion:
    """Whether `fused` functions are compiled on a GPU, and why they cannot be; "" = they can."""

    wanted = True
    problem = ""


def aligned(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both with zeros after their last dimension, to a multiple of 8; a GPU's products are then faster."""
    missing = -x.shape[-1] % 8 if x.is_cuda and x.dtype == torch.bfloat16 else 0
    return (F.pad(x, (0, missing)), F.pad(weight, (0, missing))) if missing else (x, weight)


def take_once(ctx: Any, name: str) -> Any:
    """Returns what a forward pass stored under `name` and frees it; PyTorch itself would keep it with the graph.

    Raises RuntimeError if it was taken before.
    """
    kept = getattr(ctx, name)
    setattr(ctx, name, None)
    if kept is None:
        raise RuntimeError("the gradient of this pass has been taken already; compute the loss again")
    return kept


class Role(Enum):
    """The kind of a parameter, which decides how it is initialised, and whether it is narrowed."""

    BIAS = "bias"
    RECURRENT = "recurrent"  # (*D, 3n, n), blocks that multiply the state
    STACKED = "stacked"  # (*D, 3n, in), blocks of a cell that multiply an input or a context
    EMBEDDING = "embedding"
    ATTENTION = "attention"  # a matrix of the alignment model
    ENERGY = "energy"  # v_a, the vector of the alignment model
    MATRIX = "matrix"
    SOFTMAX = "softmax"  # the matrix of the output words
    SCALE = "scale"  # of a normalisation

    def parameter(self, *shape: int) -> nn.Parameter:
        """A parameter with this role: zeros if it is a bias, ones if a scale; `initialise` fills the others."""
        make = {Role.BIAS: torch.zeros, Role.SCALE: torch.ones}.get(self, torch.empty)
        made = nn.Parameter(make(shape))
        made.role = self  # type: ignore[attr-defined]
        return made


VECTORS = (Role.BIAS, Role.ENERGY, Role.SCALE)  # one per direction may be stacked


class Initialised(nn.Module):
    """A module that notes the role of each of its own parameters."""

    blocks = 1  # of a stacked weight

    def __init__(self) -> None:
        super().__init__()
        self.roles = dict[str, Role]()

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(role := getattr(value, "role", None), Role):
            self.roles[name] = role
        super().__setattr__(name, value)


def matrices(model: nn.Module) -> Iterator[tuple[Initialised, str, nn.Parameter]]:
    """Yields (module, name, parameter) of the matrices that multiply, and of the word vectors.

    Only they are narrower than float32 in bf16 and in eight bits. Vectors stay: biases, v_a, v_p, scales, and matrices
    with one row.
    """
    for module in model.modules():
        owner = cast(Initialised, module)  # `initialise` refuses parameters of other modules
        for name, parameter in list(module.named_parameters(recurse=False)):
            if owner.roles[name] not in VECTORS and parameter.dim() > 1 and parameter.shape[-2] > 1:
                yield owner, name, parameter


def narrowed(model: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """The names and values in `dtype`, with a gradient, of the `matrices` that a pass in `dtype` multiplies.

    Word vectors are narrowed after they are looked up, and the matrix of the softmax in its loss, so that the sums of
    their gradients stay float32.
    """
    narrow = {
        id(parameter): parameter.to(dtype)
        for module, name, parameter in matrices(model)
        if module.roles[name] not in (Role.EMBEDDING, Role.SOFTMAX)
    }
    return {name: narrow[id(each)] for name, each in model.named_parameters() if id(each) in narrow}


def initialise(model: nn.Module, kind: Initialisation) -> None:
    """Fills every parameter of `model` in place, from PyTorch's global generator.

    "paper": recurrent matrices random orthogonal; matrices of the alignment model Gaussian (0, 0.001); v_a and biases
    0; everything else Gaussian (0, 0.01). "lecun": recurrent matrices orthogonal, biases 0, everything else Gaussian
    (0, 1/sqrt(number of inputs)), so that sums start as large as their terms (LeCun et al. 1998, Efficient BackProp,
    4.6); an embedding of size m counts m inputs. "xavier": matrices uniform by Glorot's rule of inputs and outputs,
    v_a uniform, the rest as in "lecun"; the softmax of a large vocabulary then starts small.
    """
    with torch.no_grad():
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if not isinstance(module, Initialised):
                    raise TypeError(f"{type(module).__name__} does not name the role of its parameter {name}")
                _fill(parameter, module.roles[name], kind, module.blocks)


def _fill(parameter: Tensor, role: Role, kind: Initialisation, stacked: int) -> None:
    if role is Role.BIAS or (role is Role.ENERGY and kind == "paper"):
        parameter.zero_()
    elif role is Role.SCALE:
        parameter.fill_(1)
    elif role is Role.RECURRENT:
        for block in parameter.view(-1, parameter.shape[-1], parameter.shape[-1]):
            nn.init.orthogonal_(block)
    elif kind == "lecun" or (kind == "xavier" and role is Role.EMBEDDING):
        parameter.normal_(0, 1 / math.sqrt(parameter.shape[-1]))
    elif kind == "paper":
        parameter.normal_(0, 0.001 if role is Role.ATTENTION else 0.01)
    elif role is Role.ENERGY:
        parameter.uniform_(-1 / math.sqrt(len(parameter)), 1 / math.sqrt(len(parameter)))
    else:
        blocks = stacked if role is Role.STACKED else 1
        for block in parameter.view(-1, parameter.shape[-2] // blocks, parameter.shape[-1]):
            nn.init.xavier_uniform_(block)


M = TypeVar("M", bound=nn.Module)
T = TypeVar("T")
R = TypeVar("R")
_STEPS = 127
_FEWER_STEPS = 63  # steps of a weight on a processor that adds two products in 16 bits
_SMALLEST, _FEWEST_INPUTS = 1 << 16, 128  # numbers and inputs of a weight; smaller ones are as fast in float32
_MISSING = (AttributeError, NotImplementedError, RuntimeError)  # raised by a product that this build of PyTorch lacks
_MIDDLE = 128  # the zero of numbers of eight bits without a sign


class Int8Weight(Tensor):
    """A float32 weight (*D, out, in) whose products by `F.linear` and `product` are in eight bits.

    Each row of outputs has a scale and whole numbers. Where the gradient of the inputs is wanted, the float32 numbers
    are multiplied.
    """

    @classmethod
    def of(cls, weight: Tensor) -> "Int8Weight":
        """The weight; it shares the memory of the float32 numbers."""
        return weight.detach().as_subclass(cls)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Multiplies in eight bits in `F.linear`; every other operation returns ordinary tensors."""
        kwargs = kwargs or {}
        if func is F.linear and isinstance(args[1], cls) and not _needs_gradient(args[0]):
            return args[1].product(args[0], args[2] if len(args) > 2 else kwargs.get("bias"))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    def product(self, x: Tensor, addend: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """x W^T (+ addend) in float32: x (..., in) to (..., out), or x (D, B, in) to (D, B, out) with D matrices.

        An addend has the shape of the result or is one row (out,). Fills and returns `out`, if it is given.
        """
        if self._directions:
            products = torch.stack([weight.product(part) for weight, part in zip(self._directions, x, strict=True)])
            return products if addend is None else products.add_(addend)
        rows = x.reshape(-1, x.shape[-1])
        scale = rows.abs().amax(-1, keepdim=True).div_(_STEPS).clamp_min_(LEAST)
        sums = _packed_product((rows / scale).round_(), *self._packed)
        shape, result = (*x.shape[:-1], sums.shape[1]), sums if out is None else out
        if addend is None or _needs_gradient(addend):
            products = torch.mul(sums, scale, out=result).view(shape)
            return products if addend is None else products.add_(addend)
        added = addend if addend.dim() == 1 else addend.reshape(sums.shape)
        return torch.addcmul(added, sums, scale, out=result).view(shape)

    @cached_property
    def _packed(self) -> tuple[Tensor, Tensor]:
        """The whole numbers in the order of oneDNN, and the scales (out,).

        They are made at the first product: many weights of a model are used only through others.
        """
        weight = self.as_subclass(Tensor)
        scales = weight.abs().amax(-1).div_(weight_steps()).clamp_min_(LEAST)
        return _pack((weight / scales[:, None]).round_().to(torch.int8)), scales

    @cached_property
    def _directions(self) -> tuple["Int8Weight", ...]:
        """The weights of several directions; none for one matrix."""
        return tuple(map(Int8Weight.of, self.as_subclass(Tensor))) if self.dim() > 2 else ()

    @cached_property
    def _parts(self) -> dict[Any, tuple["Int8Weight", ...]]:
        """The results of `split` and `flatten`: the same objects at every call, so that each is packed once."""
        return {}

    def contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> "Int8Weight":
        """The weight itself, whose products in eight bits do not need it."""
        return self

    def split(self, sizes: Sequence[int], dim: int = -2) -> tuple["Int8Weight", ...]:  # type: ignore[override]
        """The blocks of outputs."""
        key = "split", *sizes
        if key not in self._parts:
            self._parts[key] = tuple(map(Int8Weight.of, self.as_subclass(Tensor).split(sizes, dim)))
        return self._parts[key]

    def flatten(self, start_dim: int, end_dim: int) -> "Int8Weight":  # type: ignore[override]
        """Some of the first dimensions as one."""
        key = "flatten", start_dim, end_dim
        if key not in self._parts:
            self._parts[key] = (Int8Weight.of(self.as_subclass(Tensor).flatten(start_dim, end_dim)),)
        return self._parts[key][0]


def _pack(numbers: Tensor) -> Tensor:
    """Whole numbers (out, in), int8, in the order in which oneDNN multiplies them."""
    return cast(Tensor, torch.ops.onednn.qlinear_prepack(numbers, None))


def _packed_product(steps: Tensor, numbers: Tensor, scales: Tensor) -> Tensor:
    """Steps (N, in), whole numbers from -127 to 127, times packed numbers and their scales (out,): (N, out).

    The inputs of oneDNN are not negative.
    """
    products: Tensor = torch.ops.onednn.qlinear_pointwise(
        *((steps + _MIDDLE).to(torch.uint8), 1.0, _MIDDLE),
        *(numbers, scales, torch.zeros(len(scales), dtype=torch.int32)),
        *(None, 1.0, 0, torch.float32, "none", [], ""),
    )
    return products


def _needs_gradient(x: Tensor) -> bool:
    return torch.is_grad_enabled() and x.requires_grad


def in_int8(module: M) -> M:
    """A copy that multiplies its large matrices in eight bits; it shares the memory of the parameters."""
    copied = copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
    for part, name, parameter in list(matrices(copied)):  # an embedding may be the weight of the softmax, too
        if parameter.numel() >= _SMALLEST and parameter.shape[-1] >= _FEWEST_INPUTS:
            delattr(part, name)
            setattr(part, name, Int8Weight.of(parameter))
    return copied


def joined(weights: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The outputs of several weights as those of one, without a gradient; in eight bits if one of the weights is."""
    together = (torch.cat(list(weights)) if len(weights) > 1 else weights[0]).detach().to(dtype)
    return Int8Weight.of(together) if any(isinstance(weight, Int8Weight) for weight in weights) else together


@cache
def weight_steps() -> int:
    """The steps of a weight with which products are exact here: 127, or 63 on a processor that adds in 16 bits.

    The instructions of AVX2 and AVX-512 without VNNI add two products of eight bits in sixteen, which may be too few.
    Raises ResourceError if PyTorch has no exact products of eight bits.
    """
    largest, ones = torch.full((64, 64), float(_STEPS)), torch.ones(64)
    for steps in (_STEPS, _FEWER_STEPS):
        try:
            sums = _packed_product(largest, _pack(torch.full((64, 64), steps, dtype=torch.int8)), ones)
        except _MISSING:
            break
        if bool((sums == 64 * _STEPS * steps).all()):
            return steps
    raise ResourceError("precision int8: this PyTorch has no products in eight bits here; choose the precision fp32")


def pick_device(name: Device) -> torch.device:
    """The device of a name. Raises ResourceError if PyTorch sees no such device.

    "auto" is a GPU with CUDA if there is one, else the CPU. It is never mps, Apple's GPU, which we could not test.
    From then on, products in fp32 on a GPU with CUDA are in TF32, which rounds their factors to 11 bits.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        if not torch.cuda.is_available():
            raise ResourceError("device cuda: PyTorch sees no GPU here; choose the device cpu")
        torch.backends.cuda.matmul.allow_tf32 = True
    if name == "mps" and not torch.backends.mps.is_available():
        raise ResourceError("device mps: PyTorch sees no GPU of Apple here; choose the device cpu")
    return torch.device(name)


def widest(device: torch.device) -> torch.dtype:
    """The most precise dtype of a device: float64, or float32 on mps, which has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def picks_bf16(name: Precision, device: torch.device, units: int) -> bool:
    """Whether hidden layers of `units` train in bf16; "auto" chooses what is faster: fp32 for small ones on a CPU."""
    is_small = device.type == "cpu" and units < BF16_UNITS
    return name == "bf16" or (name == "auto" and not is_small and has_fast_bf16(device))


def inference_precision(name: InferencePrecision, device: torch.device) -> Literal["fp32", "bf16", "int8"]:
    """The precision of products without gradients; "auto" chooses the fastest one of the device.

    Raises ResourceError for int8 where there are no such products: on a GPU, and if PyTorch has none here.
    """
    if name == "auto":
        if device.type == "cpu":
            with contextlib.suppress(ResourceError):
                if (fastest := fastest_precision()) == "int8":
                    weight_steps()
                return fastest
            return "fp32"
        return "bf16" if has_fast_bf16(device) else "fp32"
    if name == "int8" and device.type != "cpu":
        raise ResourceError(f"precision int8: is for the device cpu, and this is {device.type}; choose fp32 or bf16")
    if name == "int8":
        weight_steps()
    return name


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the device computes products of bf16 numbers faster than those of fp32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and bf16_is_fast()


def precision_notices(name: InferencePrecision, device: torch.device) -> list[str]:
    """A warning if a precision is asked for, and fp32 would be faster."""
    if name == "bf16" and device.type == "cpu" and not bf16_is_fast():
        return ["warning: this processor takes longer for products in bf16 than in fp32; leave out precision = bf16"]
    if name == "int8" and "avx2" not in cpu_facts().get("flags", ""):
        return [
            "warning: this processor may take longer for products in int8 than in fp32; compare --set precision=fp32"
        ]
    return []


@contextlib.contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Sets the number of threads of one operation for a block, 0 = no change, and restores it also after an error.

    The number is that of the calling thread, and of all threads that begin later. The caller's autocast is off.
    """
    before = torch.get_num_threads()
    try:
        if threads:
            torch.set_num_threads(threads)
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def keeping_generators(device: torch.device, threads: int = 0) -> Iterator[None]:
    """As `using_threads`, and restores the random generators of the CPU and of a GPU with CUDA.

    New tensors are float32, on the CPU, and record gradients, also where the caller has chosen otherwise.
    """
    devices, before = [device] if device.type == "cuda" else [], torch.get_default_dtype()
    on_cpu = contextlib.nullcontext() if torch.empty(0).device.type == "cpu" else torch.device("cpu")
    try:
        torch.set_default_dtype(torch.float32)
        with using_threads(threads), torch.random.fork_rng(devices), torch.inference_mode(False), on_cpu:
            yield
    finally:
        torch.set_default_dtype(before)


def in_halves(work: Callable[[Sequence[T]], list[R]], items: Sequence[T], too_large: Callable[[T], str]) -> list[R]:
    """The results of `work` for a batch, one per item; if memory runs out, those of its halves, one after the other.

    Raises ResourceError with the text of `too_large` if a single item does not fit into memory.
    """
    check_wanted()
    try:
        return work(items)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    if len(items) == 1:
        raise ResourceError(too_large(items[0]))
    half = len(items) // 2
    return in_halves(work, items[:half], too_large) + in_halves(work, items[half:], too_large)


def split_product(rows: Tensor, weight: Tensor, addend: Tensor) -> tuple[Tensor, Tensor | None]:
    """(`rows W^T + addend`, None), or on a GPU (`rows W^T`, addend), which a `fused` function adds in its kernel."""
    return (product(rows, weight), addend) if rows.is_cuda else (product(rows, weight, addend), None)


def add_product(total: Tensor, gradient: Tensor, weight: Tensor) -> list[Tensor]:
    """`total += gradient W`, accumulated in the dtype of `total`; returns the products that the caller has to add.

    There is one only on a GPU, unless `total` has the dtype of the weight, and this is one matrix.
    """
    in_two = total.dtype == torch.bfloat16 and not total.is_cuda  # one bf16 operation of a CPU takes twice as long
    if total.dtype == weight.dtype and weight.dim() == 2 and not in_two:
        total.addmm_(gradient, weight)
    elif total.is_cuda:
        return [gradient @ weight]
    else:
        total.add_((gradient @ weight).to(total.dtype))
    return []


def over_steps(gradient: Tensor, rows: Tensor) -> Tensor:
    """A weight's gradient (*D, out, in) as one product over all steps: (U, *D, B, out) and (U, *D, B, in)."""
    if gradient.dim() == 3:
        return gradient.flatten(0, 1).t() @ rows.flatten(0, 1)
    return torch.stack([over_steps(*direction) for direction in zip(gradient.unbind(1), rows.unbind(1), strict=True)])


class Abandoned(BaseException):
    """The caller no longer waits for the result. It derives from BaseException, so that no fallback catches it."""


_is_unwanted = ContextVar[Callable[[], bool] | None]("is_unwanted", default=None)


@contextlib.contextmanager
def abandoned_if(is_unwanted: Callable[[], bool]) -> Iterator[None]:
    """A block whose computations end with Abandoned at their next step once `is_unwanted()` is True."""
    token = _is_unwanted.set(is_unwanted)
    try:
        yield
    finally:
        _is_unwanted.reset(token)


def check_wanted() -> None:
    """Raises Abandoned if the caller no longer waits for the result; long computations call this between steps."""
    is_unwanted = _is_unwanted.get()
    if is_unwanted is not None and is_unwanted():
        raise Abandoned
