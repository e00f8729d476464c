"""Where torch keeps what native code reads: offsets inside a Python tensor, a TensorImpl and a Scalar, each found by planting.

Owns every struct offset of torch. What must hold: `current()` returns a layout only after each fact has been found true with
planted values in this very process; everything else takes offsets from here. A mismatch is UnsupportedTorch, never a guess.

May import: errors, native.{symbols,aside}. Uses torch.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch

from trident.backend.native import engine, symbols
from trident.backend.native.aside import aside
from trident.errors import UnsupportedTorch

REFCOUNT: Final = 8
"""intrusive_ptr_target: the vtable, then one word: strong count (32 bits), weak count (31 bits), has-a-PyObject (top bit)."""
ONE_STRONG: Final = 1
ONE_WEAK: Final = 1 << 32
HAS_PYOBJECT: Final = 1 << 63

# Virtual functions of TensorImpl and of every intrusive_ptr_target, as words of the vtable.
VTABLE_DELETE: Final = 1
VTABLE_RELEASE_RESOURCES: Final = 2

SCALAR_SIZE: Final = 32
SCALAR_TAG: Final = 0
SCALAR_VALUE: Final = 16
SCALAR_DOUBLE, SCALAR_INT, SCALAR_BOOL = 0, 1, 4

SYMINT_LIMIT: Final = -(1 << 62) - 1
"""An int at or below this is no plain SymInt: those bit patterns are pointers to symbolic expressions."""

INLINE_DIMENSIONS: Final = 5

# c10::List: a ListImpl behind an intrusive_ptr, with a std::vector<IValue> after the counts. An IValue: payload, then tag.
LIST_SIZE: Final = 56
IVALUE_SIZE: Final = 16
IVALUE_NONE, IVALUE_TENSOR = 0, 1
# c10::IListRef: a union of 16 bytes, then the tag.
ILIST_SIZE: Final = 24
ILIST_TAG: Final = 16
ILIST_UNBOXED: Final = 0

# c10::ScalarType and c10::DeviceType are part of torch's serialisation format and of its public C++ API.
_SCALAR_TYPES: Final = {"uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6, "float64": 7,
                        "complex64": 9, "bool": 11, "bfloat16": 15}
_META_DEVICE: Final = 14


@dataclass(frozen=True, slots=True)
class TorchLayout:
    """Byte offsets. `tensor` is inside the Python object, the others inside TensorImpl.

    sizes: the word that holds the rank; the sizes follow it, or a pointer to sizes and then strides where there are more than
    INLINE_DIMENSIONS. policy/policy_mask: the byte (and bits in it) that are zero where sizes and strides are the plain fields;
    device_policy likewise for the device. contiguous is bit 0 of its byte. wrapped/wrapped_mask: the byte and the bit in it that
    mark a number made a tensor; the mask is 0 where they were not found.
    """

    tensor: int
    sizes: int
    storage_offset: int
    numel: int
    dtype: int
    device_type: int
    device_index: int
    contiguous: int
    policy: int
    policy_mask: int
    device_policy: int
    device_policy_mask: int
    wrapped: int = 0
    wrapped_mask: int = 0

    @property
    def inline_strides(self) -> int:
        return self.sizes + 8 + 8 * INLINE_DIMENSIONS


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _byte(address: int) -> int:
    return ctypes.c_uint8.from_address(address).value


def _check(what: str, holds: bool) -> None:
    if not holds:
        raise UnsupportedTorch(f"the layout of {what} in this torch is not the known one")


def _find(what: str, candidates: range, accept: Callable[[int], bool]) -> int:
    """The one offset that fits."""
    found = [offset for offset in candidates if accept(offset)]
    if len(found) != 1:
        raise UnsupportedTorch(f"cannot locate {what}: {len(found)} places fit")
    return found[0]


def _tensor_offset(torch: Any) -> int:
    planted = [torch.zeros(n) for n in (1, 2)]
    return _find("the tensor in its Python object", range(16, 64, 8),
                 lambda at: all(_word(id(t) + at) == t._cdata for t in planted))


def _sizes(torch: Any) -> int:
    """Plant unlikely sizes and strides, of a rank that is stored inline and of one that is not."""
    small = torch.empty_strided((3, 1), (1009, 2003))
    large = torch.empty_strided((1, 1, 1, 1, 1, 1, 1), (11, 12, 13, 14, 15, 16, 17))

    def accept(at: int) -> bool:
        a, b = small._cdata + at, large._cdata + at
        inline = [_word(a + 8 * n) for n in (0, 1, 2, 6, 7)] == [2, 3, 1, 1009, 2003]
        if not inline or _word(b) != 7:
            return False
        out_of_line = _word(b + 8)
        return [_word(out_of_line + 8 * n) for n in range(14)] == [1] * 7 + [11, 12, 13, 14, 15, 16, 17]

    return _find("sizes and strides", range(16, 112, 8), accept)


def _word_field(what: str, tensors: list[tuple[Any, int]]) -> int:
    return _find(what, range(16, 176, 8), lambda at: all(_word(t._cdata + at) == value for t, value in tensors))


def _dtype(torch: Any) -> int:
    planted = [(torch.empty(1, dtype=getattr(torch, name)), code) for name, code in _SCALAR_TYPES.items()]

    def accept(at: int) -> bool:
        return all(ctypes.c_uint16.from_address(t._cdata + at).value == code for t, code in planted)

    return _find("the dtype", range(16, 174, 2), accept)


def _policies(torch: Any, after: int) -> tuple[int, int, int, int]:
    """The byte and mask of the sizes-and-strides policy, and of the device policy."""
    class Wrapper(torch.Tensor):  # type: ignore[misc, name-defined]
        __torch_dispatch__ = classmethod(lambda cls, function, types, args=(), kwargs=None: NotImplemented)

    def wrapper(**options: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(Wrapper, (2, 3), **options)

    plain, strides, sizes = wrapper(), wrapper(dispatch_sizes_strides_policy="strides"), wrapper(dispatch_sizes_strides_policy="sizes")
    device = wrapper(dispatch_device=True)
    sparse = torch.zeros(2).to_sparse()

    def two_bits(at: int, shift: int) -> list[int]:
        return [_byte(t._cdata + at) >> shift & 3 for t in (plain, strides, sizes, sparse)]

    # Two fields move together with what was asked for: Python's wish and the combination of all wishes. A sparse tensor has
    # its strides refused by C++ and not by Python, so only the combination shows it.
    found = [(at, shift) for at in range(after, after + 5) for shift in range(7) if two_bits(at, shift) == [0, 1, 2, 1]]
    _check("the sizes policy", len(found) == 1)
    changed = [(at, _byte(device._cdata + at) & ~_byte(plain._cdata + at)) for at in range(after, after + 5)]
    changed = [(at, mask) for at, mask in changed if mask]
    # dispatch_device sets the wish of Python and the combination; the latter comes first in memory.
    _check("the device policy", len(changed) >= 1)
    at, shift = found[0]
    lowest = changed[0][1] & -changed[0][1]
    return at, 3 << shift, changed[0][0], lowest


def _contiguous(torch: Any, after: int) -> int:
    base = torch.zeros(2, 3)
    shapes = [(base, 1), (base.t(), 0), (torch.zeros(4), 1), (torch.zeros(4, 4)[:, 1], 0)]
    return _find("the contiguity flag", range(after, after + 5),
                 lambda at: all(_byte(t._cdata + at) & 1 == flag for t, flag in shapes))


def _plain_number(torch: Any, number: float) -> Any:
    """A tensor of the number's own type."""
    dtype = {bool: torch.bool, int: torch.int64, float: torch.float64}[type(number)]
    return torch.scalar_tensor(number, dtype=dtype, device="cpu")


def _wrapped_bit(torch: Any, after: int) -> tuple[int, int]:
    """Compare numbers that the binding of `*` has wrapped, as autograd has saved them, with plain tensors; then set the bit of a
    plain tensor and see it behave. (0, 0) where that fails."""
    leaf, numbers = torch.zeros((), dtype=torch.float64, requires_grad=True), (2, 2.5, True, 7, -1.5)
    with torch.enable_grad():
        wrapped = [(leaf * number).grad_fn._saved_other for number in numbers]
    plain = [_plain_number(torch, number) for number in numbers]
    if any(type(t) is not torch.Tensor for t in wrapped):
        return 0, 0
    found = []
    for at in range(after, after + 4):
        mask = 0xFF
        for marked, other in zip(wrapped, plain, strict=True):
            mask &= _byte(marked._cdata + at) & ~_byte(other._cdata + at)
        found += [(at, 1 << bit) for bit in range(8) if mask >> bit & 1]
    if len(found) != 1:
        return 0, 0
    at, mask = found[0]
    half = torch.zeros((), dtype=torch.float16)
    before = torch.result_type(half, plain[1])
    _mark(plain[1], at, mask)
    return found[0] if before is torch.float64 and torch.result_type(half, plain[1]) is torch.float16 else (0, 0)


def _mark(tensor: Any, at: int, mask: int) -> None:
    byte = ctypes.c_uint8.from_address(tensor._cdata + at)
    byte.value |= mask


def wrapped_number(number: float) -> Any:
    """The tensor that a binding makes of a number, as a Python object; usable in and out of inference mode."""
    layout = current()
    _check("a wrapped number", layout.wrapped_mask != 0)
    tensor = aside(lambda: _plain_number(torch, number))
    _mark(tensor, layout.wrapped, layout.wrapped_mask)
    return tensor


DEVICE_PAYLOAD: Final = 16
"""THPDevice: the object head, then a c10::Device (its type and its index, a byte each)."""


@cache
def check_device_object() -> None:
    """UnsupportedTorch unless a torch.device holds its device where it is looked for."""
    for name, code in (("cpu", 0xFF00), ("cuda:3", 0x0301), ("cuda", 0xFF01), ("meta", 0xFF00 | _META_DEVICE)):
        device = torch.device(name)
        held = ctypes.c_uint16.from_address(id(device) + DEVICE_PAYLOAD).value
        _check("torch.device", held == code)


def _check_counts(torch: Any) -> None:
    """The word of counts, and the virtual functions that act at its transitions."""
    fresh = torch.zeros(3)
    _check("the reference count", _word(fresh._cdata + REFCOUNT) == HAS_PYOBJECT | ONE_WEAK | ONE_STRONG)
    parameter, grad = torch.zeros(3, requires_grad=True), torch.zeros(3)
    parameter.grad = grad
    _check("the reference count", _word(grad._cdata + REFCOUNT) == HAS_PYOBJECT | ONE_WEAK | 2 * ONE_STRONG)
    vtable = _word(fresh._cdata)
    for what, symbol, index in (("destructor", "_ZN3c1010TensorImplD0Ev", VTABLE_DELETE),
                                ("release_resources", "_ZN3c1010TensorImpl17release_resourcesEv", VTABLE_RELEASE_RESOURCES)):
        _check(f"TensorImpl's {what}", _word(vtable + 8 * index) == engine.find_symbol(symbol) != 0)


def _check_scalar(torch: Any) -> None:
    """Ask the dispatcher for Scalars of known values."""
    folder = symbols.library_directory()
    library = ctypes.CDLL(str(folder / "libtorch_cpu.so"))
    entry = symbols.operator_entries().get("_local_scalar_dense", "")
    _check("_local_scalar_dense", hasattr(library, entry))
    function = getattr(library, entry)
    function.restype, function.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p]
    buffer = (ctypes.c_uint64 * 8)()
    out = (ctypes.addressof(buffer) + 15) & ~15
    cell = ctypes.c_uint64()
    for value, tag, bits in ((torch.tensor(-(2**61) + 5), SCALAR_INT, (2**64 - 2**61) + 5),
                             (torch.tensor(1.5, dtype=torch.float64), SCALAR_DOUBLE, 0x3FF8000000000000),
                             (torch.tensor(True), SCALAR_BOOL, 1)):
        cell.value = value._cdata
        function(out, ctypes.addressof(cell))
        _check("Scalar", ctypes.c_uint32.from_address(out + SCALAR_TAG).value == tag)
        stored = _word(out + SCALAR_VALUE)
        _check("Scalar", (stored & 0xFF if tag == SCALAR_BOOL else stored) == bits)


# Facts that no value shows: they are read in the headers that the wheel carries.
_HEADER_FACTS: Final = (
    ("ATen/core/ivalue.h", r"#define TORCH_FORALL_TAGS\(_\)\s*\\\s*_\(None\)\s*\\\s*_\(Tensor\)"),
    ("ATen/core/IListRef.h", r"#define TORCH_ILISTREF_FORALL_TAGS\(_, \.\.\.\)\s*\\\s*_\(Unboxed, ##__VA_ARGS__\)"),
    ("ATen/core/IListRef.h", r"Payload payload_;\s*IListRefTag tag_;"),
)


def _check_headers() -> None:
    for name, pattern in _HEADER_FACTS:
        try:
            text = (symbols.library_directory().parent / "include" / name).read_text()
        except OSError:
            raise UnsupportedTorch(f"this torch carries no {name}") from None
        _check(name, re.search(pattern, text) is not None)


@cache
def current() -> TorchLayout:
    """The verified layout of this process's torch; UnsupportedTorch where one fact does not hold."""
    symbols.load_libraries()
    return aside(_probe)


def _probe() -> TorchLayout:
    with torch.no_grad(), torch.inference_mode(False), torch._C.DisableTorchFunction():
        tensor = _tensor_offset(torch)
        _check_headers()
        _check_counts(torch)
        _check_scalar(torch)
        sizes = _sizes(torch)
        base = torch.zeros(4000)
        views = [(base[1234:], 1234, 2766), (base[77:99], 77, 22)]
        dtype = _dtype(torch)
        device = dtype + 2
        meta, host = torch.empty(1, device="meta"), torch.empty(1)
        _check("the device", [_byte(meta._cdata + device + n) for n in range(3)] == [_META_DEVICE, 0xFF, 1])
        _check("the device", [_byte(host._cdata + device + n) for n in range(3)] == [0, 0xFF, 1])
        contiguous = _contiguous(torch, device + 3)
        policy = _policies(torch, device + 3)
        return TorchLayout(
            tensor, sizes, _word_field("storage_offset", [(t, offset) for t, offset, _ in views]),
            _word_field("numel", [(t, n) for t, _, n in views] + [(torch.empty(7, 11, 13), 1001)]), dtype, device, device + 1,
            contiguous, *policy, *_wrapped_bit(torch, device + 2))
