"""Selection: the native decision tree that says which of many specializations can answer a call.

Without it a call tries one specialization after the other. The tree evaluates each guard that they share once, and branches where
they differ: on an argument's type or identity, on the value of an int, on the outcome of a condition.

Owns the tree and its code, `ptr select(ptr bound)`: the address of a list (a count, then numbers of specializations in the order in
which to try them). What must hold: it only leaves out specializations of which a guard of the entry region fails, for they check their
guards themselves; an expression is evaluated only after the guards that make it safe; nothing is changed and no Python code runs.

May import: ir, backend.lowering.*, native.frame, native.pin_layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from torch_mlir import ir

from trident.backend.lowering.analysis import STATE
from trident.backend.lowering.function import Function
from trident.backend.lowering.rules import LoweringError, rule_of
from trident.backend.lowering.values import Op, Place, Value
from trident.backend.native import frame, pin_layout, torch_layouts
from trident.ir.dialect import kind_of
from trident.ir.ops import COMPARISONS, FLOAT_ARITHMETIC, INT_ARITHMETIC
from trident.ir.trace import Trace

# Operations that own nothing, change nothing and run no Python code.
_OPERATIONS: Final = frozenset({
    "torch.constant.int", "torch.constant.float", "torch.constant.bool",
    *(f"trident.{name}" for name in (
        "constant", "type_is", "is", "is_constant", "str_is", "device_is", "int_fits", "unbox_tensor", "unbox_int", "unbox_float",
        "unbox_bool", "tuple_len", "tuple_item", "list_len", "dict_len", "rank", "size", "stride", "numel", "storage_offset", "dtype",
        "device_type", "device_index", "requires_grad", "is_contiguous", "grad_enabled", "inference_mode", "torch_function_modes",
        "truediv_int", "int_to_float", "float_to_int", "bool_to_int", "int_to_bool", "float_to_bool", "not",
        *INT_ARITHMETIC, *FLOAT_ARITHMETIC, *(f"{c}_{kind}" for c in COMPARISONS for kind in ("int", "float")))),
})
_NAMES_CONSTANT: Final = frozenset(f"trident.{name}" for name in ("constant", "type_is", "is_constant", "str_is", "device_is"))
_SWITCHES: Final = {"trident.type_is": "type", "trident.is_constant": "is", "trident.eq_int": "value"}
_NODES_PER_ROOT, _MORE_NODES = 8, 64

Key = tuple[Any, ...]


@dataclass(eq=False, slots=True)
class _Expression:
    """One value of an entry region. key: equal for equal expressions of all traces. arguments: numbers of those it depends on."""

    key: Key
    trace: Trace
    mlir: ir.Operation | None
    operands: tuple[_Expression, ...]
    kind: str
    arguments: frozenset[int]
    constant: int | None = None


@dataclass(frozen=True, slots=True)
class _Test:
    """A guard: the switch or condition `key` on `subject` must give `value`."""

    key: Key
    subject: _Expression
    value: int
    text: str


@dataclass(slots=True)
class _Node:
    """A branch of the tree, or a leaf (no test): the specializations to try."""

    roots: list[int]
    test: _Test | None = None
    cases: dict[int, _Node] = field(default_factory=dict)
    default: _Node | None = None

    def lines(self, names: Sequence[str], indent: str = "") -> list[str]:
        if self.test is None or self.default is None:
            return [f"{indent}try {', '.join(names[n] for n in self.roots) or 'none'}"]
        what = {"type": "type of", "is": "identity of", "value": "value in"}.get(str(self.test.key[0]), "outcome of")
        found = [f"{indent}{what}: {self.test.text}"]
        for number, case in enumerate(self.cases.values()):
            found += [f"{indent}  case {number}:", *case.lines(names, indent + "    ")]
        return [*found, f"{indent}  otherwise:", *self.default.lines(names, indent + "    ")]


def _attributes(trace: Trace, op: ir.Operation) -> tuple[Any, ...]:
    if op.name in _NAMES_CONSTANT:
        return (id(trace.constants[int(op.attributes["index"].value)]),)
    return tuple(str(op.attributes[n]) for n in range(len(op.attributes)))


def _tests(trace: Trace) -> list[_Test]:
    """The guards of a trace's entry region that the tree may evaluate, in order."""
    known: dict[ir.Value, _Expression] = {}
    for n, argument in enumerate(trace.block.arguments):
        known[argument] = _Expression(("argument", n), trace, None, (), "object", frozenset({n}))
    tests = []
    for view in trace.block.operations:
        op = view.operation
        if op.name == STATE:
            break
        operands = [known.get(operand) for operand in op.operands]
        if None in operands:
            continue
        parts: tuple[_Expression, ...] = tuple(operands)  # type: ignore[arg-type]
        if op.name == "trident.guard":
            info = trace.guards[int(op.attributes["info"].value)]
            tests.append(_test(parts[0], bool(op.attributes["expected"].value), f"{info.text} ({info.file}:{info.line})"))
        elif op.name in _OPERATIONS and len(op.results) == 1:
            key = (op.name, *_attributes(trace, op), *(part.key for part in parts))
            arguments = frozenset().union(*(part.arguments for part in parts))
            constant = int(op.attributes["value"].value) if op.name == "torch.constant.int" else None
            known[op.results[0]] = _Expression(key, trace, op, parts, kind_of(op.results[0]), arguments, constant)
    return tests


def _test(condition: _Expression, expected: bool, text: str) -> _Test:
    """A switch where one specialization wants one value and others want others, else the condition itself."""
    op = condition.mlir
    if op is not None and expected and op.name in _SWITCHES:
        if op.name != "trident.eq_int":
            return _Test((_SWITCHES[op.name], condition.operands[0].key), condition.operands[0], condition.key[1], text)
        for subject, other in (condition.operands, condition.operands[::-1]):
            if other.constant is not None and subject.constant is None:
                return _Test(("value", subject.key), subject, other.constant, text)
    return _Test(("condition", condition.key), condition, int(expected), text)


class Selection:
    """The tree over some root traces, which have the numbers of their places in the sequence. names: how to print them."""

    def __init__(self, traces: Sequence[Trace], names: Sequence[str] = ()) -> None:
        self._names = names or [str(n) for n in range(len(traces))]
        self._tests = [_tests(trace) for trace in traces]
        self._wanted = [{test.key: test for test in tests} for tests in self._tests]
        self._left = _NODES_PER_ROOT * len(traces) + _MORE_NODES
        self.tree = self._build(list(range(len(traces))), frozenset())

    def __str__(self) -> str:
        return "\n".join(self.tree.lines(self._names))

    def _build(self, roots: list[int], known: frozenset[Key]) -> _Node:
        test = self._choose(roots, known) if len(roots) > 1 and self._left > 0 else None
        if test is None:
            return _Node(roots)
        self._left -= 1
        known |= {test.key}
        wanted = {n: self._wanted[n].get(test.key) for n in roots}
        values = dict.fromkeys(found.value for found in wanted.values() if found is not None)
        cases = {value: self._build([n for n in roots if (found := wanted[n]) is None or found.value == value], known) for value in values}
        return _Node(roots, test, cases, self._build([n for n in roots if wanted[n] is None], known))

    def _choose(self, roots: list[int], known: frozenset[Key]) -> _Test | None:
        """The test that divides best, or the first of those that must come before it."""
        found: dict[Key, dict[int, int]] = {}
        for n in roots:
            for test in self._tests[n]:
                if test.key not in known:
                    values = found.setdefault(test.key, {})
                    values[test.value] = values.get(test.value, 0) + 1
        dividing = {key: sum(values.values()) for key, values in found.items() if len(values) > 1}
        if not dividing:
            return None
        best = max(dividing, key=lambda key: dividing[key])  # the first of several
        first = next(n for n in roots if best in self._wanted[n])
        for test in self._tests[first]:
            if test.key == best or test.key not in known and test.subject.arguments & self._wanted[first][best].subject.arguments:
                return test
        return None

    def text(self) -> str:
        """The LLVM IR of `select`."""
        return _Writer(self).write()


class _Writer(Function):
    """Writes the tree with the rules of the lowering; where an operation would leave the trace, all specializations are to be tried."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        super().__init__(None, torch_layouts.current().tensor)  # type: ignore[arg-type]

    def write(self) -> str:
        tree = self._selection.tree
        self._node(tree, {})
        self.block("giveup")
        self._leaf(tree.roots)
        words = frame.SLOTS // 8 + len(self.slot_kinds)
        head = ["define ptr @select(ptr %args) {", "entry:", f"%frame = alloca [{words} x i64], align 16",
                f"call void @llvm.memset.p0.i64(ptr align 16 %frame, i8 0, i64 {8 * words}, i1 false)",
                f"%scratch = alloca [{max(self.scratch, 1)} x i64], align 16", "br label %b0", "b0:"]
        declared = [*self.declarations.values(), "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"]
        return "\n".join([*self.globals, *declared, *head, *self.lines, "}", ""])

    def _node(self, node: _Node, placed: dict[Key, Value]) -> None:
        if node.test is None or node.default is None:
            self._leaf(node.roots)
            return
        word = self._subject(node.test, placed)
        labels = {value: self.new_label() for value in node.cases}
        default = self.new_label()
        cases = " ".join(f"i64 {value}, label %{label}" for value, label in labels.items())
        self.line(f"switch i64 {word}, label %{default} [ {cases} ]")
        for value, case in node.cases.items():
            self.block(labels[value])
            self._node(case, dict(placed))
        self.block(default)
        self._node(node.default, dict(placed))

    def _leaf(self, roots: list[int]) -> None:
        self.line(f"ret ptr {self.constant([len(roots), *roots])}")

    def _subject(self, test: _Test, placed: dict[Key, Value]) -> str:
        """What the test switches on, as an i64."""
        value = self._expression(test.subject, placed)
        match test.key[0]:
            case "type":
                return self.value(f"ptrtoint ptr {self.load(self.object(value), pin_layout.OB_TYPE)} to i64")
            case "is":
                return self.value(f"ptrtoint ptr {self.object(value)} to i64")
            case "value":
                return self.scalar(value)
        return self.value(f"zext i1 {self.scalar(value)} to i64")

    def _expression(self, expression: _Expression, placed: dict[Key, Value]) -> Value:
        found = placed.get(expression.key)
        if found is not None:
            return found
        result = placed[expression.key] = Value(expression.kind)
        if expression.mlir is None:
            result.place, result.index, result.steady = Place.ARG, expression.key[1], True
            return result
        operands = [self._expression(operand, placed) for operand in expression.operands]
        self.trace = expression.trace
        rule_of(expression.mlir.name).emit(self, Op(expression.mlir.name, operands, [result], expression.mlir, 0))
        self._scratch_used = 0
        if result.owned:
            raise LoweringError(f"{expression.mlir.name} owns its result")
        return result

    def site(self, what: str, **_: Any) -> int:
        return 0

    def leave_if(self, condition: str, site: int, way: str = "") -> None:
        on = self.new_label()
        self.line(f"br i1 {condition}, label %giveup, label %{on}")
        self.block(on)

    def leave_unless(self, condition: str, site: int, way: str = "") -> None:
        on = self.new_label()
        self.line(f"br i1 {condition}, label %{on}, label %giveup")
        self.block(on)
