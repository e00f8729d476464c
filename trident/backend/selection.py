"""Selection: the native decision tree that says which of many specializations can answer a call.

Without it a call tries one specialization after the other. The tree evaluates each guard that they share once, and branches where
they differ: on an argument's type or identity, on the value of a number or the hash of a str, on the outcome of a condition.

Owns the tree and its code, `ptr select(ptr bound)`: the address of a list (a count, then numbers of specializations in the order in
which to try them). What must hold: it only leaves out specializations of which a guard of the entry region fails, for they check their
guards themselves; an expression is evaluated only after the guards that make it safe; nothing is changed and no Python code runs.

May import: ir, backend.lowering.*, native.{dict_runtime,frame,pin_layout,torch_layouts}.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from torch_mlir import ir

from trident.backend.lowering.analysis import STATE
from trident.backend.lowering.function import Function
from trident.backend.lowering.rules import LoweringError, rule_of
from trident.backend.lowering.values import Op, Place, Value
from trident.backend.native import dict_runtime, frame, pin_layout, torch_layouts
from trident.ir.dialect import kind_of
from trident.ir.ops import COMPARISONS, FLOAT_ARITHMETIC, INT_ARITHMETIC
from trident.ir.trace import Trace

_MIRRORED: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
# Of a number, as the left or the right operand, with a constant.
_COMPARISONS: Final = {f"trident.{c}_{kind}": (getattr(operator, c), getattr(operator, _MIRRORED.get(c, c)))
                       for c in COMPARISONS for kind in ("int", "float")}
# Operations that own nothing, change nothing and run no Python code.
_OPERATIONS: Final = frozenset({
    "torch.constant.int", "torch.constant.float", "torch.constant.bool",
    *(f"trident.{name}" for name in (
        "constant", "type_is", "is", "is_constant", "str_is", "device_is", "int_fits", "unbox_tensor", "unbox_int", "unbox_float",
        "unbox_bool", "tuple_len", "tuple_item", "list_len", "dict_len", "rank", "size", "stride", "numel", "storage_offset", "dtype",
        "device_type", "device_index", "requires_grad", "is_contiguous", "grad_enabled", "inference_mode", "torch_function_modes",
        "truediv_int", "int_to_float", "float_to_int", "bool_to_int", "int_to_bool", "float_to_bool", "not",
        *INT_ARITHMETIC, *FLOAT_ARITHMETIC)),
}) | _COMPARISONS.keys()
_NAMES_CONSTANT: Final = frozenset(f"trident.{name}" for name in ("constant", "type_is", "is_constant", "str_is", "device_is"))
# Comparisons of one subject with constants: which word of the subject tells them apart (`_Writer._subject`), and how the tree is printed.
_SWITCHES: Final = {"trident.type_is": "type", "trident.is_constant": "is", "trident.str_is": "text", "trident.eq_int": "value",
                    "trident.eq_float": "bits"}
_SAID: Final = {"type": "type of", "is": "identity of", "text": "text in", "value": "value in", "bits": "value in",
                "condition": "outcome of"}
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
    constant: int | float | None = None


def _anything(_: int | float) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Test:
    """A guard: the switch or condition `key` on `subject` must give `value`.

    about: key of the number whose value alone decides it; admits: whether a value of that number passes the guard."""

    key: Key
    subject: _Expression
    value: int
    text: str
    about: Key | None = None
    admits: Callable[[int | float], bool] = _anything


@dataclass(slots=True)
class _Node:
    """A branch of the tree, or a leaf (no test): the specializations to try."""

    roots: list[int]
    test: Test | None = None
    cases: dict[int, _Node] = field(default_factory=dict)
    default: _Node | None = None

    def lines(self, names: Sequence[str], indent: str = "") -> list[str]:
        if self.test is None or self.default is None:
            return [f"{indent}try {', '.join(names[n] for n in self.roots) or 'none'}"]
        found = [f"{indent}{_SAID[self.test.key[0]]}: {self.test.text}"]
        for number, case in enumerate(self.cases.values()):
            found += [f"{indent}  case {number}:", *case.lines(names, indent + "    ")]
        return [*found, f"{indent}  otherwise:", *self.default.lines(names, indent + "    ")]


def _attributes(trace: Trace, op: ir.Operation) -> tuple[Any, ...]:
    if op.name in _NAMES_CONSTANT:
        return (id(trace.constants[int(op.attributes["index"].value)]),)
    return tuple(str(op.attributes[n]) for n in range(len(op.attributes)))


def tests_of(trace: Trace) -> list[Test]:
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
            constant = op.attributes["value"].value if op.name in ("torch.constant.int", "torch.constant.float") else None
            known[op.results[0]] = _Expression(key, trace, op, parts, kind_of(op.results[0]), arguments, constant)
    return tests


def _test(condition: _Expression, expected: bool, text: str) -> Test:
    """A switch where one specialization wants one value and others want others, else the condition itself."""
    op = condition.mlir
    kind = _SWITCHES.get(op.name) if op is not None and expected else None
    if kind in ("type", "is"):
        return Test((kind, condition.operands[0].key), condition.operands[0], condition.key[1], text)
    if op is not None and kind == "text":
        wanted = hash(condition.trace.constants[int(op.attributes["index"].value)])
        return Test((kind, condition.operands[0].key), condition.operands[0], wanted, text)
    about, admits = None, _anything
    if op is not None and op.name in _COMPARISONS:
        for subject, other, compare in zip(condition.operands, condition.operands[::-1], _COMPARISONS[op.name], strict=True):
            if subject.constant is None and other.constant is not None:
                about, admits = subject.key, partial(_admits, compare, other.constant, expected)
                word = _word_of(other.constant)
                if kind is not None and word is not None:
                    return Test((kind, about), subject, word, text, about, admits)
    return Test(("condition", condition.key), condition, int(expected), text, about, admits)


def _admits(compare: Callable[[Any, Any], bool], constant: int | float, expected: bool, number: int | float) -> bool:
    return compare(number, constant) is expected


def _number_of(kind: str, word: int) -> int | float:
    """The number behind the word of a switch."""
    return struct.unpack("<d", struct.pack("<q", word))[0] if kind == "bits" else word


def _word_of(number: int | float | None) -> int | None:
    """The word that a run-time number has if and only if it equals this one; None where there is no such (zeros, NaN)."""
    if type(number) is not float:
        return None if number is None else int(number)
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits if number == number and number != 0.0 else None


class Selection:
    """The tree over some root traces, which have the numbers of their places in the sequence. tests: of each; names: how to print them."""

    def __init__(self, tests: Sequence[list[Test]], names: Sequence[str]) -> None:
        self._names, self._tests = names, tests
        self._wanted = [{test.key: test for test in found} for found in tests]
        self._left = _NODES_PER_ROOT * len(tests) + _MORE_NODES
        self.tree = self._build(list(range(len(tests))), frozenset())

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
        suited = {value: [n for n in roots if (found := wanted[n]) is None or found.value == value] for value in values}
        cases = {value: self._case(test, value, suited[value], known) for value in values}
        return _Node(roots, test, cases, self._build([n for n in roots if wanted[n] is None], known))

    def _case(self, test: Test, value: int, roots: list[int], known: frozenset[Key]) -> _Node:
        """What comes where a test gives this value. If that is a number, all other guards that it decides are known too."""
        if test.about is None or test.key[0] == "condition":
            return self._build(roots, known)
        number = _number_of(test.key[0], value)
        alike = {n: [other for other in self._tests[n] if other.about == test.about] for n in roots}
        left = [n for n in roots if all(other.admits(number) for other in alike[n])]
        return self._build(left, known.union(other.key for n in left for other in alike[n]))

    def _choose(self, roots: list[int], known: frozenset[Key]) -> Test | None:
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
        return self._with_what_it_needs(next(n for n in roots if best in self._wanted[n]), best, known)

    def _with_what_it_needs(self, root: int, best: Key, known: frozenset[Key]) -> Test:
        """The first unknown one of a root's tests that make this one safe to evaluate, those that make them safe included, or itself.

        Those about the same number are as safe as it is."""
        chosen = self._wanted[root][best]
        about, arguments = chosen.about, chosen.subject.arguments
        tests = self._tests[root]
        for test in reversed(tests[: next(n for n, test in enumerate(tests) if test.key == best)]):
            if test.subject.arguments & arguments and (about is None or test.about != about):
                arguments |= test.subject.arguments
                if test.key not in known:
                    chosen = test
        return chosen

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

    def _subject(self, test: Test, placed: dict[Key, Value]) -> str:
        """What the test switches on, as an i64."""
        value = self._expression(test.subject, placed)
        match test.key[0]:
            case "type":
                return self.value(f"ptrtoint ptr {self.load(self.object(value), pin_layout.OB_TYPE)} to i64")
            case "is":
                return self.value(f"ptrtoint ptr {self.object(value)} to i64")
            case "text":
                dict_runtime.load()
                return self.call(dict_runtime.STR_HASH, "i64", f"ptr {self.object(value)}")
            case "value":
                return self.scalar(value)
            case "bits":
                return self.value(f"bitcast double {self.scalar(value)} to i64")
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
