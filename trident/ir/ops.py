"""The op table: every `trident.*` operation, declared once.

Owns the vocabulary that recorder, passes, reference executor and lowering share. `dialect.py` turns the table into an
IRDL dialect; the lowering and the reference executor each hold one rule per entry, and a test walks all three.

What must hold: effects are truthful. `PURE` ops depend on nothing but their operands (or on immutable facts of them), so
MLIR may merge, move and delete them. `READ` ops read Python or tensor state. `WRITE` ops change it. `OPAQUE` ops run
arbitrary code. `may_exit` ops can leave the trace at the last `trident.state` before them (or, in the entry region of a
root trace, report a miss). `may_raise` ops can raise a Python exception, delivered at that same state.

May import: nothing of trident.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Effect(Enum):
    """What an operation does to state outside its results."""

    PURE = "pure"
    READ = "read"
    WRITE = "write"
    OPAQUE = "opaque"


# Ops that make a new object of Python's at each execution, which somebody may change or compare by identity.
ALLOCATING = frozenset({"build_tuple", "build_list", "build_dict", "build_slice"})

JUMP = "jump"
"""The reason of an `exit` that a trace ends with because another one continues at the header of a loop."""

# Names of operand and result types, and how they print in MLIR. A `value` is any of the others behind a `trident.pack`,
# because an IRDL variadic group must be homogeneous.
TYPES: dict[str, str] = {
    "object": "!trident.object",  # a Python object, never NULL
    "value": "!trident.value",
    "tensor": "!torch.tensor",  # an at::Tensor
    "int": "!torch.int",  # an int64_t that is a Python int of the same value
    "float": "!torch.float",  # a double
    "bool": "!torch.bool",
    "tensors": "!torch.list<tensor>",  # a std::vector<at::Tensor>
}


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One row of the table.

    operands/results: keys of `TYPES`, or `any` (each `any` stands for itself). An operand `values*` is a variadic group
    of `value`, a result `tensors*` one of `tensor`. attrs: attribute names that must be present.
    """

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    attrs: tuple[str, ...]
    effect: Effect
    doc: str
    may_exit: bool = False
    may_raise: bool = False


def _row(
    name: str, operands: str, results: str, attrs: str, effect: Effect, doc: str, *, exits: bool = False, raises: bool = False
) -> OpSpec:
    split = lambda text: tuple(text.split())  # noqa: E731
    return OpSpec(name, split(operands), split(results), split(attrs), effect, doc, exits, raises)


P, R, W, O = Effect.PURE, Effect.READ, Effect.WRITE, Effect.OPAQUE  # noqa: E741

INT_ARITHMETIC = ("add_int", "sub_int", "mul_int", "floordiv_int", "mod_int", "neg_int", "and_int", "or_int", "xor_int",
                  "shl_int", "shr_int", "invert_int", "abs_int", "pow_int", "min_int", "max_int")
INT_UNARY = ("neg_int", "invert_int", "abs_int")
FLOAT_ARITHMETIC = ("add_float", "sub_float", "mul_float", "div_float", "neg_float", "abs_float", "pow_float", "floordiv_float",
                    "mod_float")
FLOAT_UNARY = ("neg_float", "abs_float")
COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")

_ARITHMETIC = (
    *(
        _row(n, "int" if n in INT_UNARY else "int int", "int", "", P,
             "Python's int operation; exits where the result (or an intermediate) does not fit int64, or Python would raise", exits=True)
        for n in INT_ARITHMETIC
    ),
    *(
        _row(n, "float" if n in FLOAT_UNARY else "float float", "float", "", P,
             "Python's float operation; exits where Python would raise (division by zero) or leave float (pow to complex)", exits=True)
        for n in FLOAT_ARITHMETIC
    ),
    *(_row(f"{c}_int", "int int", "bool", "", P, "comparison of two ints") for c in COMPARISONS),
    *(_row(f"{c}_float", "float float", "bool", "", P, "comparison of two floats (IEEE, as Python's)") for c in COMPARISONS),
    _row("truediv_int", "int int", "float", "", P, "Python's int / int; exits on zero and where |operand| > 2**53", exits=True),
    _row("int_to_float", "int", "float", "", P, "float(int); exits where |operand| > 2**53", exits=True),
    _row("float_to_int", "float", "int", "", P, "int(float): truncation; exits outside int64, on inf and nan", exits=True),
    _row("bool_to_int", "bool", "int", "", P, "int(bool)"),
    _row("int_to_bool", "int", "bool", "", P, "bool(int)"),
    _row("float_to_bool", "float", "bool", "", P, "bool(float)"),
    _row("not", "bool", "bool", "", P, "not bool"),
)

OPS: tuple[OpSpec, ...] = (
    # constants and structure
    _row("constant", "", "object", "index", P, "Trace.constants[index], kept alive by the trace"),
    _row("pack", "any", "value", "", P, "erases a type, for variadic groups"),
    _row("state", "values*", "", "snapshot", W,
         "from here to the next state, exits and exceptions resume at Trace.snapshots[snapshot], whose slots are the operands"),
    # guards
    _row("guard", "bool", "", "expected kind info", R,
         "leaves the trace unless the operand equals `expected`; Trace.guards[info] says what the Python was", exits=True),
    _row("pin", "", "", "indices", R, "leaves the trace unless each of Trace.pins[indices] still holds (see trace.Pin)", exits=True),
    _row("exit", "", "", "reason", O,
         "leaves the trace unconditionally; a terminator in spirit, followed by a dummy return. With the reason JUMP it goes on in the "
         "bridge, and serves signals and other threads before, which may raise", exits=True, raises=True),
    # loops: `carry`s, then `loop`; everything from there to `back` is executed again and again
    _row("carry", "any", "any", "", O, "a value that changes from one iteration to the next: the operand at first"),
    _row("loop", "", "", "", O, "the header; what is defined before it stays as it is for all iterations"),
    _row("back", "values*", "", "", O,
         "the next iteration: the operands are the values of the carries then, in order; a terminator in spirit. Signals and other "
         "threads are served, which may raise", exits=True, raises=True),
    # facts about objects
    _row("type_is", "object", "bool", "index", P, "type(x) is Trace.constants[index] (__class__ assignment is guarded by exactness)"),
    _row("is", "object object", "bool", "", P, "identity"),
    _row("is_constant", "object", "bool", "index", P, "x is Trace.constants[index]"),
    _row("str_is", "object", "bool", "index", P, "an exact str that equals Trace.constants[index]"),
    _row("device_is", "object", "bool", "index", P, "a torch.device (type guarded before) that equals Trace.constants[index]"),
    _row("int_fits", "object", "bool", "", P, "an exact int whose value fits int64"),
    # unboxing and boxing
    _row("unbox_tensor", "object", "tensor", "", P, "the at::Tensor inside a tensor object (type guarded before)"),
    _row("unbox_int", "object", "int", "", P, "value of an exact int (guarded by int_fits)"),
    _row("unbox_float", "object", "float", "", P, "value of an exact float"),
    _row("unbox_bool", "object", "bool", "", P, "x is True (type guarded before)"),
    _row("box", "any", "object", "", R, "the Python object of a tensor (identity kept), int, float or bool"),
    # tensor metadata (READ: resize_, set_ and the like change it)
    _row("rank", "tensor", "int", "", R, "tensor.dim()"),
    _row("size", "tensor", "int", "dim", R, "tensor.size(dim), 0 <= dim < rank guarded before"),
    _row("stride", "tensor", "int", "dim", R, "tensor.stride(dim), in elements, 0 <= dim < rank guarded before"),
    _row("numel", "tensor", "int", "", R, "tensor.numel()"),
    _row("storage_offset", "tensor", "int", "", R, "tensor.storage_offset(), in elements"),
    _row("dtype", "tensor", "int", "", R, "c10::ScalarType of the tensor"),
    _row("device_type", "tensor", "int", "", R, "c10::DeviceType of the tensor"),
    _row("device_index", "tensor", "int", "", R, "index of the tensor's device, -1 for none"),
    _row("requires_grad", "tensor", "bool", "", R, "tensor.requires_grad"),
    _row("is_contiguous", "tensor", "bool", "", R, "tensor.is_contiguous()"),
    _row("data_ptr", "tensor", "int", "", R, "tensor.data_ptr()"),
    # numbers as tensors
    _row("wrapped_number", "any", "tensor", "", R,
         "the tensor that a binding makes of a number given for a tensor: of the number's own type, giving way in type promotion"),
    _row("number_tensor", "any", "tensor", "dtype", R,
         "a new CPU tensor of no dimensions and that c10::ScalarType, cast from a number as indexing does it", raises=True),
    # environment
    _row("grad_enabled", "", "bool", "", R, "torch.is_grad_enabled()"),
    _row("set_grad_enabled", "bool", "", "", W, "torch._C._set_grad_enabled"),
    _row("inference_mode", "", "bool", "", R, "torch.is_inference_mode_enabled()"),
    _row("torch_function_modes", "", "int", "", R,
         "number of active TorchFunctionModes; -1 while __torch_function__ is disabled or torch.jit.trace works"),
    # Python objects
    _row("build_tuple", "values*", "object", "", R, "a new tuple"),
    _row("build_list", "values*", "object", "", R, "a new list"),
    _row("build_dict", "values*", "object", "", R, "a new dict of key, value, key, value, …"),
    _row("build_slice", "object object object", "object", "", R, "slice(start, stop, step)"),
    _row("tuple_len", "object", "int", "", P, "len of an exact tuple (or subclass)"),
    _row("tuple_item", "object", "object", "item", P, "item of a tuple, 0 <= item < len guarded before"),
    _row("tuple_at", "object int", "object", "", P, "item of a tuple at a run-time index; exits unless 0 <= index < len", exits=True),
    _row("list_at", "object int", "object", "", R, "item of an exact list at a run-time index; exits unless 0 <= index < len", exits=True),
    _row("list_len", "object", "int", "", R, "len of an exact list"),
    _row("list_item", "object", "object", "item", R, "item of an exact list, 0 <= item < len guarded before"),
    _row("instance_dict", "object", "object", "", R, "the instance dict of an object whose class has ordinary ones"),
    _row("dict_len", "object", "int", "", R, "len of an exact dict or OrderedDict"),
    _row("dict_has", "object", "bool", "index", R, "Trace.constants[index] (a str) in a dict whose lookups are dict's own"),
    _row("dict_keys_are", "object", "bool", "index", R, "its keys are, in order, the str of Trace.constants[index], a tuple"),
    _row("odict_keys_are", "object", "bool", "index", R,
         "the same of an OrderedDict (also of a subclass that iterates as it does), in its own order; keys that are no str by identity",
         exits=True),
    _row("dict_item", "object", "object", "index", R, "value under the str Trace.constants[index] (guarded by dict_has)"),
    _row("cell_get", "object", "object", "", R, "contents of a cell; exits if empty", exits=True),
    _row("cell_set", "object object", "", "", W, "cell.cell_contents = value"),
    _row("call", "object values*", "object", "kwnames reason", O,
         "opaque call: vectorcall of the first operand; the last len(kwnames) values are keyword arguments", raises=True),
    _row("call_raises", "object values*", "object bool", "kwnames reason", O,
         "an opaque call that is expected to raise: the exception (normalised) and true, or the call's result and false", raises=True),
    _row("keep", "object", "", "", W, "nothing: the program holds a reference to the object up to here"),
    # exceptions in flight (see ir.exceptions)
    _row("push_handled", "object", "object", "", W, "PUSH_EXC_INFO: makes an exception the handled one; gives the one before, or None"),
    _row("pop_handled", "object", "", "", W, "POP_EXCEPT: makes an exception, or None, the handled one again"),
    _row("add_context", "object", "", "", W, "what `raise` does to an exception: the handled one becomes its __context__"),
    _row("add_traceback", "object", "", "code globals lasti line", W,
         "an entry in front of an exception's traceback: a frame of the code Trace.constants[code], stopped at byte offset lasti"),
    _row("traceback", "object", "object", "", R, "__traceback__ of an exception, or None"),
    # kernels
    _row("launch", "values*", "", "site", O,
         "launches Trace.launches[site]; the operands are grid x, y, z and then the run-time arguments", raises=True),
    # graphs
    _row("replay", "values*", "tensors*", "site", O,
         "replays a graph of Trace.replays[site], which stands for all operators and launches of a root trace: the operands are the "
         "tensors and run-time numbers that these take, the results the tensors that they give. Nothing has happened where it exits",
         exits=True, raises=True),
    # operator results
    _row("list_size", "tensors", "int", "", P, "number of tensors in an operator's list result"),
    _row("list_get", "tensors", "tensor", "item", P, "a tensor of an operator's list result, 0 <= item < size guarded before"),
    *_ARITHMETIC,
)

BY_NAME: dict[str, OpSpec] = {f"trident.{op.name}": op for op in OPS}

GUARD_KINDS: dict[str, str] = {
    "type": "exact type of an object",
    "identity": "a particular object",
    "value": "value of an int, float, bool or str that was promoted to a constant",
    "branch": "outcome of a condition",
    "raises": "that an operation raises again",
    "length": "length of a container",
    "key": "presence of a key",
    "dtype": "dtype of a tensor",
    "device": "device of a tensor",
    "rank": "number of dimensions of a tensor",
    "size": "size of a dimension",
    "metadata": "another property of a tensor",
    "environment": "grad mode, modes and other thread state",
}


def may_leave(name: str) -> bool:
    """Whether an op of this full name can leave the trace: exit, or raise. ATen ops can always raise."""
    spec = BY_NAME.get(name)
    if spec is None:
        return name.startswith(("torch.aten.", "torch.operator", "torch.prims."))
    return spec.may_exit or spec.may_raise
