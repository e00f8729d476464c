"""Statements, written line by line. One table with weights; a row is a function of the writer."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.generator import forms
from tests.conformance.generator.expressions import condition, expression, fill
from tests.conformance.generator.writer import Writer

_CLASSES = ("ValueError", "KeyError", "(TypeError, ValueError)", "LookupError", "ZeroDivisionError", "Exception", "Err", "Sub",
            "RuntimeError", "ArithmeticError", "(Err, IndexError)", "AttributeError", "BaseException", "NameError",
            "AssertionError", "StopIteration")
_DATA = ("int", "int", "int", "float", "bool", "str", "list", "dict", "tuple", "set", "tensor", "tensor", "tensor", "obj", "func")


def body(w: Writer, most: int = 3) -> None:
    """Some statements."""
    for _ in range(1 + w.upto(most - 1)):
        statement(w)


def statement(w: Writer) -> None:
    """One statement; once the budget is spent only a simple one."""
    w.budget -= 1
    deep = w.budget > 0 and w.indent < 6
    rule = w.pick(_COMPOUND) if deep and w.chance(45) else w.pick(_SIMPLE)
    rule(w)


# --------------------------------------------------------------------------------------------------------------- simple
def _assign(w: Writer) -> None:
    kind = str(w.pick(_DATA))
    value = expression(w, kind, 3)
    w.line(f"{w.declare(kind, w.target(kind))} = {value}")


def _chain(w: Writer) -> None:
    kind = str(w.pick(_DATA))
    value = expression(w, kind)
    names = [w.target(kind), w.fresh(kind[0])]
    w.line(" = ".join([*names, value]))
    for name in names:
        w.declare(kind, name)


def _own(w: Writer, kind: str) -> str:
    """A variable that may be assigned to; made if there is none."""
    own = [name for name in w.variables(kind) if name in w.own[-1]]
    if own:
        return str(w.pick(own))
    value = expression(w, kind, 1)
    name = w.fresh(kind[0])
    w.own[-1].add(name)
    w.line(f"{w.declare(kind, name)} = {value}")
    return name


def _known(w: Writer, kind: str) -> str:
    """A variable, whosesoever; made if there is none."""
    known = w.variables(kind)
    return str(w.pick(known)) if known else _own(w, kind)


def _augmented(w: Writer) -> None:
    kind = str(w.pick(("int", "int", "float", "str", "list", "tensor", "tensor", "set", "obj", "dict", "tuple")))
    name = _own(w, kind)
    sign = w.pick({"int": ("+=", "-=", "//=", "%=", "&=", "|=", "^=", ">>="), "float": ("+=", "-=", "*=", "/="),
                   "tensor": ("+=", "-=", "*=", "/="), "set": ("|=", "-=", "&="), "dict": ("|=",)}.get(kind, ("+=",)))
    limited = {"str": "[:5]", "list": "[:2]", "tuple": "[:2]"}.get(kind, "")
    value = expression(w, kind if kind not in ("tensor", "obj") or w.chance(40) else "int", 2)
    w.line(f"{name} {sign} {value}{limited}")


def _unpack(w: Writer) -> None:
    a, b = _own(w, "int"), _own(w, "int")
    form, rest = str(w.pick(forms.UNPACKINGS)), w.fresh("l")
    w.line(fill(w, form, 2, a=a, b=b, rest=rest))
    if "$rest" in form:
        w.own[-1].add(rest)
        w.declare("list", rest)


_MUTATIONS = {"list": forms.LISTS, "dict": forms.DICTS, "set": forms.SETS, "obj": forms.OBJECTS, "tensor": forms.TENSORS}


def _mutation(w: Writer) -> None:
    kind = str(w.pick(("list", "list", "dict", "set", "obj", "obj", "tensor", "tensor", "tensor")))
    form = str(w.pick(_MUTATIONS[kind]))
    name = _known(w, kind)
    w.line(fill(w, form, 1 if kind == "tensor" else 2, v=name))


def _delete(w: Writer) -> None:
    kind = str(w.pick(("int", "list", "str", "tensor")))
    name = _own(w, kind)
    w.line(f"del {name}")
    if w.chance(75):
        for scope in w.scopes:
            if name in scope[kind]:
                scope[kind].remove(name)


def _print(w: Writer) -> None:
    kind = str(w.pick(("int", "str", "list", "float", "dict", "tuple", "bool")))
    more = f", {expression(w, 'int', 1)}, sep='~'" if w.chance(25) else ""
    w.line(f"print({expression(w, kind)}{more})")


def _raise(w: Writer) -> None:
    if not w.chance(35):
        return _assert(w) if w.chance(30) else _assign(w)
    value = fill(w, str(w.pick(forms.RAISED)), 1)
    guard = f"if {condition(w)}: " if w.chance(60) else ""
    cause = w.pick(("", "", "", " from None", " from KeyError('cause')")) if not w.handlers else w.pick(("", " from error", " from None"))
    w.line(f"{guard}raise {value}{cause}")


def _assert(w: Writer) -> None:
    message = f", {expression(w, 'str', 1)}" if w.chance(50) else ""
    w.line(f"assert {condition(w)}{message}")


def _global(w: Writer) -> None:
    w.line(fill(w, str(w.pick(forms.GLOBALS)), 1))


def _jump(w: Writer) -> None:
    if w.loops and w.chance(70):
        w.line(f"if {condition(w)}: {w.pick(('break', 'continue'))}")
    elif w.chance(35):
        kind = str(w.pick(_DATA[:11]))
        guard = f"if {condition(w)}: " if w.chance(85) else ""
        w.line(f"{guard}return {expression(w, kind, 1)}")
    else:
        _assign(w)


def _walrus(w: Writer) -> None:
    value = expression(w, "int")
    name = w.target("int")
    w.line(f"({w.declare('int', name)} := {value})")


def _expression(w: Writer) -> None:
    w.line(expression(w, str(w.pick(_DATA)), 3))


# -------------------------------------------------------------------------------------------------------------- compound
def _if(w: Writer) -> None:
    with w.block(f"if {condition(w, 2)}:"):
        body(w)
    while w.chance(25):
        with w.block(f"elif {condition(w, 2)}:"):
            body(w)
    if w.chance(45):
        with w.block("else:"):
            body(w)


def _loop_body(w: Writer, first: str = "") -> None:
    w.loops += 1
    if first:
        w.line(first)
    body(w)
    w.loops -= 1


def _else_of_loop(w: Writer) -> None:
    if w.chance(25):
        with w.block("else:"):
            body(w, 2)


def _for(w: Writer) -> None:
    form, i, j = str(w.pick(forms.LOOPS)), w.target("int"), w.fresh("i")
    name = _known(w, "list") if "$v" in form else ""
    with w.block(f"{fill(w, form, 1, i=i, j=j, v=name)}:"):
        w.declare("int", i)
        if "$j" in form and "*" not in form:
            w.declare("int", j)
        _loop_body(w, f"if len({name}) > 5: break" if name else "")
    _else_of_loop(w)


def _for_other(w: Writer) -> None:
    """Over what does not hold ints."""
    form = w.pick(("str", "items", "rows", "keys", "chunks", "tensors", "growing"))
    if form == "str":
        name = w.fresh("s")
        with w.block(f"for {name} in {expression(w, 'str', 1)}[:3]:"):
            w.declare("str", name)
            _loop_body(w)
    elif form in ("items", "keys", "growing"):
        k, v = w.fresh("s"), w.fresh("i")
        name = _known(w, "dict")
        head = {"items": f"{k}, {v} in {name}.items()", "keys": f"{k} in list({name})", "growing": f"{k} in {name}"}[form]
        with w.block(f"for {head}:"):
            w.declare("str", k)
            if form == "items":
                w.declare("int", v)
            if form == "growing" and w.chance(40):
                w.line(f"{name}[{k} + 'x'] = 1")
            _loop_body(w)
    else:
        t = w.fresh("t")
        source = {"rows": "{}", "chunks": "{}.chunk(2)", "tensors": "({0}, {0} + 1)"}[form].format(expression(w, "tensor", 1))
        with w.block(f"for {t} in {source}:"):
            w.declare("tensor", t)
            _loop_body(w)
    _else_of_loop(w)


def _while(w: Writer) -> None:
    n = w.fresh("n")
    w.line(f"{n} = 0")
    with w.block(f"while {n} < {1 + w.upto(2)} and {condition(w, 2)}:" if w.chance(75) else "while True:"):
        w.declare("int", n)
        w.line(f"{n} += 1")
        _loop_body(w, f"if {n} > 3: break")
    _else_of_loop(w)


def _try(w: Writer) -> None:
    with w.block("try:"):
        body(w)
        if w.chance(50):
            _raise(w)
    handlers = w.upto(2)
    for _ in range(handlers):
        classes = str(w.pick(_CLASSES))
        w.used.update(name for name in ("Err", "Sub") if name in classes)
        named = w.chance(60)
        with w.block(f"except {classes}{' as error' if named else ''}:"):
            w.handlers += named
            if named and w.chance(40):
                w.line(w.pick(forms.ABOUT_ERRORS))
            body(w, 2)
            if w.chance(15):
                w.line("raise")
            w.handlers -= named
    if handlers and w.chance(30):
        with w.block("else:"):
            body(w, 2)
    if not handlers or w.chance(35):
        with w.block("finally:"):
            body(w, 2)


def _with(w: Writer) -> None:
    log = _known(w, "list")
    name = w.fresh("m")
    head = str(w.pick(forms.CONTEXTS))
    with w.block(f"with {fill(w, head, 1, v=log, name=name)}:"):
        if "manager($v) as" in head:
            w.declare("int", name)
        body(w)
        if w.chance(30):
            _raise(w)


def _match(w: Writer) -> None:
    kind = str(w.pick(("int", "list", "dict", "tuple", "obj", "str", "float", "tensor")))
    w.need("Point")
    with w.block(f"match {expression(w, kind, 2)}:"):
        for _ in range(1 + w.upto(3)):
            text = fill(w, str(w.pick(forms.PATTERNS)), 1, x=w.fresh("x"), y=w.fresh("y"))
            with w.block(f"case {text}:"):
                body(w, 2)
        if w.chance(60):
            with w.block("case _:"):
                body(w, 2)


def _function(w: Writer) -> None:
    """A local function (a closure, maybe with nonlocal), called on the spot and afterwards."""
    name = w.fresh("f")
    a, b = w.fresh("i"), w.fresh("i")
    head = w.pick(("{a}", "{a}, {b}=2", "{a}, *{b}", "{a}, *, {b}=3", "{a}, /, {b}=1, **more", "{a}, {b}={d}"))
    default = expression(w, "int", 1)
    outer = [n for n in w.variables("int") if n in w.own[-1]]
    rebinds = str(w.pick(outer)) if outer and w.chance(40) else ""
    generator = w.chance(12)
    loops, w.loops, w.functions = w.loops, 0, w.functions + 1
    with w.block(f"def {name}({head.format(a=a, b=b, d=default)}):"):
        w.own.append({a})
        w.declare("int", a)
        if f"*{b}" in head.format(a=a, b=b, d=""):
            w.declare("tuple", b)
        else:
            w.declare("int", b)
        if rebinds:
            w.line(f"nonlocal {rebinds}")
            w.own[-1].add(rebinds)
            w.line(f"{rebinds} = {expression(w, 'int', 1)}")
        body(w)
        w.line(f"{'yield' if generator else 'return'} {expression(w, 'int', 2)}")
        w.own.pop()
    w.loops, w.functions = loops, w.functions - 1
    if not generator:
        w.declare("func", name)
    value = expression(w, "int", 1)
    result = w.target("int")
    call = w.pick(("{f}({v})", "{f}({v})", "{f}({v}, 4)", "{f}(*[{v}])", "{f}({v}, **{{'{b}': 5}})")).format(f=name, v=value, b=b)
    w.line(f"{w.declare('int', result)} = {f'sum({call})' if generator else call}")


def _class(w: Writer) -> None:
    name = w.fresh("K")
    base = w.pick(("", "(Point)", "(list)", "(dict)"))
    w.need("Point")
    with w.block(f"class {name}{base}:"):
        w.line(f"size = {expression(w, 'int', 1)}")
        with w.block("def twice(self):"):
            w.line("return self.size * 2")
    result = w.fresh("i")
    w.own[-1].add(result)
    w.line(f"{result} = {name}({'1' if base == '(Point)' else ''}).twice()")
    w.declare("int", result)


_SIMPLE: tuple[Callable[[Writer], None], ...] = (
    *(_assign,) * 8, _chain, *(_augmented,) * 5, *(_unpack,) * 2, *(_mutation,) * 9, _delete, *(_print,) * 2, *(_raise,) * 2, _assert,
    *(_global,) * 2, *(_jump,) * 3, _walrus, *(_expression,) * 2)
_COMPOUND: tuple[Callable[[Writer], None], ...] = (
    *(_if,) * 6, *(_for,) * 5, *(_for_other,) * 2, *(_while,) * 2, *(_try,) * 5, *(_with,) * 3, *(_match,) * 2, *(_function,) * 3, _class)
