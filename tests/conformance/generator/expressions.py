"""Expressions of a wanted kind, as source text. Now and then another kind comes out than was wanted: errors are welcome.

One table for each kind; a row is a function of the writer and the depth that is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.conformance.generator import forms
from tests.conformance.generator.writer import KINDS, Writer

Rule = Callable[[Writer, int], str]

_INTS = ("0", "1", "2", "3", "-1", "5", "7", "-3", "10", "100", "255", "-128", "2**31", "2**63 - 1", "-2**63", "2**63", "2**64 + 1",
         "10**30")
_FLOATS = ("0.0", "1.0", "-0.0", "0.5", "-1.5", "2.25", "1e308", "1e-320", "float('inf')", "float('-inf')", "float('nan')", "3.0", "-2.0",
           "0.1")
_STRS = ("''", "'a'", "'b'", "'ab'", "'é'", "'zz'", "'k: {}'", "'12'", "' a b '", "'a,b'")
_SPECS = ("", ":>5", ":<4", "!r", "!s", ":^6")
_COMPARE = ("<", "<=", "==", "!=", ">", ">=")
_TYPES = ("int", "float", "bool", "str", "list", "(int, float)", "torch.Tensor", "tuple", "object")


def expression(w: Writer, kind: str, depth: int = 2) -> str:
    """An expression, mostly of this kind."""
    if w.upto(99) == 99:
        kind = str(w.pick(KINDS))
    known = w.variables(kind)
    if known and (depth <= 0 or w.chance(35)):
        return str(w.pick(known))
    if depth <= 0:
        return _LEAVES[kind](w, 0)
    if w.chance(12):
        return str(w.pick(_ANY)(w, kind, depth - 1))
    return str(w.pick(_RULES[kind])(w, depth - 1))


def small(w: Writer) -> str:
    """A small int, whatever it is made from."""
    return str(w.pick(("0", "1", "2", "-1", "3"))) if w.chance(60) else f"({expression(w, 'int', 1)} & 3)"


def key(w: Writer) -> str:
    """A key of a dict."""
    return str(w.pick(("'a'", "'a'", "'a'", "'b'", "'c'"))) if w.chance(90) else expression(w, "str", 1)


def _binary(kind: str, *signs: str) -> Rule:
    def rule(w: Writer, depth: int) -> str:
        return f"({expression(w, kind, depth)} {w.pick(signs)} {expression(w, kind, depth)})"

    return rule


def fill(w: Writer, form: str, depth: int, **given: str) -> str:
    """A form (see `forms`) with its holes filled."""
    made: list[str] = []
    lazy = " for " in form  # nothing can be assigned in a comprehension's iterable

    def hole(match: re.Match[str]) -> str:
        name = match[1]
        if name == "1":
            return made[0]
        if name in given:
            text = given[name]
        elif name in KINDS:
            text = expression(w, name, depth)
        else:
            text = small(w) if name == "small" else key(w) if name == "key" else w.need(name)
        if text[-1:].isdigit() and form[match.end():match.end() + 1] == ".":
            text = f"({text})"
        made.append(text)
        return text

    w.lazy += lazy
    text = re.sub(r"\$(\w+)", hole, form)
    w.lazy -= lazy
    return text


def _forms(table: tuple[str, ...]) -> Rule:
    return lambda w, depth: fill(w, str(w.pick(table)), depth)


def _literal(values: tuple[str, ...]) -> Rule:
    return lambda w, depth: str(w.pick(values))


def _product(w: Writer, depth: int) -> str:
    """In a loop, numbers must not grow without end."""
    left, right = expression(w, "int", depth), expression(w, "int", depth)
    return f"({left} * {right})" if not w.loops and not w.functions else f"({left} % 1000003 * {right} % 2**66)"


# --------------------------------------------------------------------------------------- forms that all kinds have
def _conditional(w: Writer, kind: str, depth: int) -> str:
    return f"({expression(w, kind, depth)} if {condition(w, depth)} else {expression(w, kind, depth)})"


def _logical(w: Writer, kind: str, depth: int) -> str:
    return f"({expression(w, kind, depth)} {w.pick(('and', 'or'))} {expression(w, kind, depth)})"


def _walrus(w: Writer, kind: str, depth: int) -> str:
    if w.lazy:
        return expression(w, kind, depth)
    value = expression(w, kind, depth)
    name = w.target(kind)
    return f"({name} := {value})"


def _lambda(w: Writer, kind: str, depth: int) -> str:
    name = w.fresh("q")
    value = expression(w, "int", depth)
    w.lazy += 1
    w.scopes.append({k: [] for k in KINDS})
    w.declare("int", name)
    body = expression(w, kind, depth)
    w.scopes.pop()
    w.lazy -= 1
    return f"(lambda {name}: {body})({value})"


def _subscript(w: Writer, kind: str, depth: int) -> str:
    return f"({expression(w, kind, depth)}, {expression(w, kind, depth)})[{w.pick(('0', '1', '-1', '-2', small(w)))}]"


def _by_key(w: Writer, kind: str, depth: int) -> str:
    return f"{{'a': {expression(w, kind, depth)}, 'b': {expression(w, kind, depth)}}}[{key(w)}]"


def _getattr(w: Writer, kind: str, depth: int) -> str:
    name = w.pick(("ghost", "nothing", "a"))
    return f"getattr({expression(w, 'obj', depth)}, {name!r}, {expression(w, kind, depth)})"


_ANY = (_conditional, _logical, _walrus, _lambda, _subscript, _by_key, _getattr)


# ------------------------------------------------------------------------------------------------------ comprehensions
def _over(w: Writer, depth: int) -> tuple[str, str]:
    """Name and iterable of a comprehension."""
    name = w.fresh("c")
    w.lazy += 1
    source = w.pick((
        lambda: f"range({small(w)})", lambda: expression(w, "list", depth), lambda: f"{expression(w, 'tuple', depth)}[:4]",
        lambda: f"map(lambda m: m + 1, {expression(w, 'list', depth)})",
        lambda: f"reversed({expression(w, 'list', depth)})"))()
    w.lazy -= 1
    return name, str(source)


def _comprehension(template: str, kind: str = "int") -> Rule:
    def rule(w: Writer, depth: int) -> str:
        name, source = _over(w, depth)
        w.lazy += 1
        w.loops += 1
        w.scopes.append({k: [] for k in KINDS})
        w.declare("int", name)
        body = expression(w, kind, depth)
        where = f" if {condition(w, depth)}" if w.chance(30) else ""
        w.scopes.pop()
        w.loops -= 1
        w.lazy -= 1
        return template.format(body, f"for {name} in {source}{where}")

    return rule


def _nested_comprehension(w: Writer, depth: int) -> str:
    a, b = w.fresh("c"), w.fresh("c")
    w.lazy += 1
    text = f"[{a} + {b} for {a} in {expression(w, 'list', depth)}[:3] for {b} in ({a}, {expression(w, 'int', 0)}) if {b} != {small(w)}]"
    w.lazy -= 1
    return text


# --------------------------------------------------------------------------------------------------------------- bool
def condition(w: Writer, depth: int = 1) -> str:
    """Something to branch on; mostly, but not only, a bool."""
    return expression(w, "bool", depth) if w.chance(85) else expression(w, str(w.pick(KINDS[:9])), depth - 1)


def _comparison(w: Writer, depth: int) -> str:
    kind = w.pick(("int", "int", "int", "float", "str", "list", "tuple", "set", "obj", "bool"))
    parts = [expression(w, kind, depth)]
    for _ in range(1 + w.chance(25)):
        parts += [w.pick(_COMPARE), expression(w, kind, depth)]
    return f"({' '.join(parts)})"


def _identity(w: Writer, depth: int) -> str:
    kind = w.pick(("list", "dict", "tensor", "obj"))
    left = w.pick(w.variables(kind) or ["None"])
    right = w.pick([*w.variables(kind), "None"])
    return f"({left} {w.pick(('is', 'is not'))} {right})"


def _isinstance(w: Writer, depth: int) -> str:
    return f"isinstance({expression(w, str(w.pick(KINDS)), depth)}, {w.pick(_TYPES)})"


# ---------------------------------------------------------------------------------------------------------------- str
def _fstring(w: Writer, depth: int) -> str:
    kind = w.pick(("int", "float", "str", "bool", "list", "obj", "tuple"))
    value = expression(w, kind, depth).replace('"', "'")
    if "\\" in value or "'" in value or "{" in value or ":=" in value or "lambda" in value:
        name = w.pick(w.variables(kind) or ["None"])
        value = str(name)
    spec = w.pick((":.2f", ":e", ":8.3f", "", "!r")) if kind == "float" else w.pick(_SPECS)
    return f'f"{w.pick(("", "v=", "é"))}{{{value}{spec}}}{w.pick(("", "|", "{{}}"))}"'


# ------------------------------------------------------------------------------------------------------------- tensor
def _tensor_binary(w: Writer, depth: int) -> str:
    a = expression(w, "tensor", depth)
    b = w.pick((
        lambda: a, lambda: expression(w, "tensor", depth), lambda: expression(w, "int", 0), lambda: expression(w, "float", 0),
        lambda: expression(w, "tensor", 0), lambda: f"{expression(w, 'tensor', 0)}.sum()", lambda: expression(w, "bool", 0),
        lambda: f"{a}.mean()"))()
    sign = w.pick(("+", "-", "*", "+", "-", "*", "/", "//", "%", "<", ">", "==", "**", "@", "&"))
    return f"({a} {sign} {b})" if w.chance(75) else f"({b} {sign} {a})"


# ------------------------------------------------------------------------------------------------------------- tables
_LEAVES: dict[str, Rule] = {
    "int": _literal(_INTS), "float": _literal(_FLOATS), "bool": _literal(("True", "False")), "str": _literal(_STRS),
    "list": _literal(("[]", "[1, 2]", "[3, 1, 2]", "[0]")), "dict": _literal(("{}", "{'a': 1}", "{'b': 2, 'a': 3}")),
    "tuple": _literal(("()", "(1, 2)", "(0,)")), "set": _literal(("set()", "{1, 2}", "{3}")),
    "tensor": _literal(("torch.ones(2, 3)", "torch.arange(3.0)", "torch.tensor(2.5)", "torch.zeros(2, 3, dtype=torch.int64)")),
    "obj": lambda w, depth: f"{w.need('Point')}({w.upto(3)})",
    "func": lambda w, depth: str(w.pick(("abs", "int", "(lambda z: z + 1)"))),
}

_OTHER: dict[str, tuple[Rule, ...]] = {
    "int": (_binary("int", "+", "-"), _binary("int", "+", "-"), _product, _binary("int", "//", "%"), _binary("int", "&", "|", "^"),
            _comprehension("sum({0} {1})"), _comprehension("max([{0} {1}], default=0)"), _comprehension("next(({0} {1}), -1)")),
    "float": (_binary("float", "+", "-", "*"), _binary("float", "+", "-", "*"), _binary("float", "/", "//", "%")),
    "bool": (_comparison, _comparison, _comparison, _binary("bool", "and", "or"), _identity, _identity, _isinstance, _isinstance,
             _comprehension("any({0} > 1 {1})"), _comprehension("all({0} {1})")),
    "str": (_fstring, _fstring, _fstring),
    "list": (_comprehension("[{0} {1}]"), _comprehension("[{0} {1}]"), _nested_comprehension),
    "tuple": (_comprehension("tuple({0} {1})"),),
    "set": (_comprehension("{{{0} {1}}}"),),
    "tensor": (*(_forms(forms.TENSOR_UNARY),) * 2, *(_tensor_binary,) * 3, *(_forms(forms.TENSOR_VIEWS),) * 2, _forms(forms.TENSOR_REDUCE),
               *(_forms(forms.TENSOR_FORMS),) * 2),
}

_RULES: dict[str, tuple[Rule, ...]] = {
    kind: (_LEAVES[kind], *_OTHER.get(kind, ()), *(_forms((form,)) for form in forms.EXPRESSIONS.get(kind, ()))) for kind in KINDS
}
