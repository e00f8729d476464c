"""Expressions of a wanted kind, as source text. Now and then another kind comes out than was wanted: errors are welcome.

One table for each kind; a row is a function of the writer and the depth that is left.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.generator.writer import KINDS, Writer

Rule = Callable[[Writer, int], str]

_INTS = ("0", "1", "2", "3", "-1", "5", "7", "-3", "10", "100", "255", "-128", "2**31", "2**63 - 1", "-2**63", "2**63", "2**64 + 1", "10**30")
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


def _form(text: str, *kinds: str) -> Rule:
    """A text with holes for expressions of these kinds ("small", "key": see above; "NAME": an item of the prelude)."""

    def rule(w: Writer, depth: int) -> str:
        made = []
        for kind in kinds:
            if kind == "small":
                made.append(small(w))
            elif kind == "key":
                made.append(key(w))
            elif kind in KINDS:
                made.append(expression(w, kind, depth))
            else:
                made.append(w.need(kind))
        return text.format(*made)

    return rule


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
def _over(w: Writer, depth: int) -> tuple[str, str, str]:
    """`for` part of a comprehension: name, iterable, optional condition."""
    name = w.fresh("c")
    source = w.pick((
        lambda: f"range({small(w)})", lambda: expression(w, "list", depth), lambda: f"{expression(w, 'tuple', depth)}[:4]",
        lambda: f"map(lambda m: m + 1, {expression(w, 'list', depth)})",
        lambda: f"reversed({expression(w, 'list', depth)})"))()
    return name, str(source), ""


def _comprehension(template: str, kind: str = "int") -> Rule:
    def rule(w: Writer, depth: int) -> str:
        name, source, _ = _over(w, depth)
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
    return f"[{a} + {b} for {a} in {expression(w, 'list', depth)}[:3] for {b} in ({a}, {expression(w, 'int', 0)}) if {b} != {small(w)}]"


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
_UNARY = ("torch.relu({})", "{}.abs()", "-{}", "{}.exp()", "torch.tanh({})", "{}.sin()", "{}.neg()", "{}.float()", "{}.clone()", "{}.detach()",
          "{}.contiguous()", "{}.square()", "torch.sigmoid({})", "{}.clamp(-1, 2)", "{}.sqrt()", "torch.zeros_like({})", "{}.round()",
          "torch.ones_like({})", "{}.softmax(-1)", "{}.cumsum(0)", "{}.double()", "{}.int()", "{}.long()", "{}.half()", "{}.to(torch.bfloat16)",
          "{}.bool()", "torch.nn.functional.gelu({})", "{}.to(torch.float64)", "{}.sign()", "{}.isnan()", "torch.where({0} > 0, {0}, -{0})")
_VIEWS = ("{}[0]", "{}[-1]", "{}[1:]", "{}[..., 0]", "{}[None]", "{}[..., ::2]", "{}.t()", "{}.reshape(-1)", "{}.view(-1)", "{}.flatten()",
          "{}.unsqueeze(0)", "{}.squeeze()", "{}[:, 1]", "{}.T", "{}.transpose(0, -1)", "{}[:, None]", "{}.unsqueeze(-1)", "{}.view(-1, 1)",
          "{}.expand(2, -1, -1)", "{}.narrow(0, 0, 1)", "{}.permute(1, 0)", "{}[0:1]", "{}[[0]]", "{}[{} > 0]", "{}.view({}.shape)",
          "{}.flip(0)", "{}.select(0, 0)", "{}.chunk(2)[0]", "{}.split(1)[0]", "{}.diagonal()", "{}.unbind(0)[0]", "{}[{}.argmax() % 1]")
_REDUCE = ("{}.sum()", "{}.mean()", "{}.sum(0)", "{}.sum(-1, keepdim=True)", "{}.max()", "{}.amax(-1)", "{}.argmax()", "{}.prod()", "{}.std()",
           "{}.any()", "{}.max(0)[0]", "{}.norm()", "{}.min(-1).values", "{}.all()", "{}.var(0)")


def _tensor_unary(w: Writer, depth: int) -> str:
    a = expression(w, "tensor", depth)
    return str(w.pick(_UNARY)).format(a)


def _tensor_view(w: Writer, depth: int) -> str:
    a = expression(w, "tensor", depth if w.chance(40) else 0)
    return str(w.pick(_VIEWS)).format(a, a)


def _tensor_reduce(w: Writer, depth: int) -> str:
    return str(w.pick(_REDUCE)).format(expression(w, "tensor", depth))


def _tensor_binary(w: Writer, depth: int) -> str:
    a = expression(w, "tensor", depth)
    b = w.pick((
        lambda: a, lambda: expression(w, "tensor", depth), lambda: expression(w, "int", 0), lambda: expression(w, "float", 0),
        lambda: expression(w, "tensor", 0), lambda: f"{expression(w, 'tensor', 0)}.sum()", lambda: expression(w, "bool", 0),
        lambda: f"{a}.mean()"))()
    sign = w.pick(("+", "-", "*", "+", "-", "*", "/", "//", "%", "<", ">", "==", "**", "@", "&"))
    return f"({a} {sign} {b})" if w.chance(75) else f"({b} {sign} {a})"


_TENSOR_FORMS = (
    _form("torch.full(({}, 2), {})", "small", "float"), _form("torch.arange({})", "small"), _form("torch.tensor({})", "list"),
    _form("torch.zeros({}, 3)", "small"), _form("torch.cat([{0}, {0}])", "tensor"), _form("torch.stack([{}, {}])", "tensor", "tensor"),
    _form("torch.add({}, {}, alpha=2)", "tensor", "tensor"), _form("{}[{}]", "tensor", "small"), _form("{}[:{}]", "tensor", "small"),
    _form("torch.maximum({0}, {0} * 2)", "tensor"), _form("{}.masked_fill({} > 0, 1.5)", "tensor", "tensor"), _form("{0}({1}, {2})", "gate", "tensor", "small"),
    _form("torch.tensor({})", "float"), _form("torch.tensor([{}, {}])", "float", "float"), _form("{}.to({}.dtype)", "tensor", "tensor"),
    _form("{}.new_ones({})", "tensor", "small"), _form("{}.expand_as({})", "tensor", "tensor"), _form("{}.mul({})", "tensor", "int"),
    _form("({0} + {1}.detach().requires_grad_()).sin()", "tensor", "tensor"), _form("{} * {}.sum().item()", "tensor", "tensor"),
    _form("torch.nn.functional.linear({0}, {0})", "tensor"), _form("sum(r for r in {})", "tensor"), _form("max({}, {}, key=torch.Tensor.numel)", "tensor", "tensor"),
    _form("{}.add_({})", "tensor", "small"), _form("{}.mul_({})", "tensor", "small"), _form("{}.t_()", "tensor"), _form("{}.zero_()", "tensor"),
    _form("torch.promote_types({0}.dtype, torch.float16) and {0}", "tensor"), _form("{0}", "G5"),
)


def _tensor_form(w: Writer, depth: int) -> str:
    return str(w.pick(_TENSOR_FORMS)(w, depth))


# ------------------------------------------------------------------------------------------------------------- tables
_LEAVES: dict[str, Rule] = {
    "int": _literal(_INTS), "float": _literal(_FLOATS), "bool": _literal(("True", "False")), "str": _literal(_STRS),
    "list": _literal(("[]", "[1, 2]", "[3, 1, 2]", "[0]")), "dict": _literal(("{}", "{'a': 1}", "{'b': 2, 'a': 3}")),
    "tuple": _literal(("()", "(1, 2)", "(0,)")), "set": _literal(("set()", "{1, 2}", "{3}")),
    "tensor": _literal(("torch.ones(2, 3)", "torch.arange(3.0)", "torch.tensor(2.5)", "torch.zeros(2, 3, dtype=torch.int64)")),
    "obj": lambda w, depth: f"{w.need('Point')}({w.upto(3)})", "func": lambda w, depth: str(w.pick(("abs", "int", "(lambda z: z + 1)"))),
}

_RULES: dict[str, tuple[Rule, ...]] = {
    "int": (
        _LEAVES["int"], _binary("int", "+", "-"), _binary("int", "+", "-"), _product, _binary("int", "//", "%"), _binary("int", "&", "|", "^"),
        _form("({} << {})", "int", "small"), _form("({} >> {})", "int", "small"), _form("(-{})", "int"), _form("(~{})", "int"),
        _form("abs({})", "int"), _form("({} % 50) ** {}", "int", "small"), _form("int({})", "float"), _form("len({})", "list"), _form("len({})", "str"),
        _form("len({})", "dict"), _form("max({}, {})", "int", "int"), _form("min({}, default=1)", "list"), _form("sum({})", "list"), _form("{}[{}]", "list", "small"), _form("({} or [3, 4])[0]", "list"),
        _form("{}[{}]", "tuple", "small"), _form("({} or {{'a': 4}})[{}]", "dict", "key"), _form("{}.get({}, {})", "dict", "key", "int"), _form("divmod({}, {})[0]", "int", "int"),
        _form("round({})", "float"), _form("{}.find({})", "str", "str"), _form("{}.count({})", "str", "str"), _form("int({} or '4')", "str"), _form("ord({}[:1] or 'z')", "str"),
        _form("{}({}, {})", "helper", "int", "int"), _form("{}({}, k={})", "helper", "int", "int"), _form("{}(*{}[:4], 1)", "helper", "list"),
        _form("{}({}, 1, 2, 3, z={})", "helper", "int", "int"), _form("{}({} % 5)", "down", "int"), _form("{}.a", "obj"), _form("{}.total", "obj"),
        _form("{}.method({})", "obj", "int"), _form("{}[{}]", "obj", "small"), _form("len({})", "obj"), _form("{}.ghost", "obj"), _form("{}({})", "obj", "int"),
        _form("{}.shape[0]", "tensor"), _form("{}.dim()", "tensor"), _form("{}.numel()", "tensor"), _form("int({}.sum())", "tensor"),
        _comprehension("sum({0} {1})"), _comprehension("max([{0} {1}], default=0)"), _comprehension("next(({0} {1}), -1)"),
        _form("functools.partial({}, {})({})", "helper", "int", "int"), _form("functools.reduce(lambda p, r: p - r, {}, {})", "list", "int"),
        _form("{}.index({})", "list", "int"), _form("({} or [2]).pop()", "list"), _form("operator.sub({}, {})", "int", "int"), _form("({} + {})", "bool", "int"),
        _form("{}({})", "func", "int"), _form("{}.bit_length()", "int"), _form("{}()", "bump"), _form("{}({})", "checked", "int"),
        _form("sum({}({}))", "counting", "small"), _form("{}.pop({}, {})", "dict", "key", "int"), _form("{}.setdefault({}, {})", "dict", "key", "int"),
        _form("{}", "G1"), _form("{}[{}]", "G2", "small"), _form("{}['a']", "G3"), _form("{}.count", "Point"), _form("{}.sum().item()", "tensor"), _form("{}.fixed({})", "obj", "int"),
        _form("int({}, 16)", "str"), _form("pow({}, {}, 7)", "int", "int"), _form("math.gcd({}, {})", "int", "int"), _form("{}.size(0)", "tensor"),
        _form("hash({})", "int"), _form("min({}, {}, key=lambda v: -v)", "int", "int"), _form("int({}.reshape(-1)[0].item())", "tensor"),
    ),
    "float": (
        _LEAVES["float"], _binary("float", "+", "-", "*"), _binary("float", "+", "-", "*"), _binary("float", "/", "//", "%"), _form("({} / {})", "int", "int"),
        _form("float({})", "int"), _form("({} * {})", "float", "int"), _form("abs({})", "float"), _form("(-{})", "float"), _form("{} ** 2", "float"),
        _form("max({}, {})", "float", "float"), _form("min({}, {})", "int", "float"), _form("round({}, 1)", "float"), _form("math.sqrt(abs({}))", "float"),
        _form("math.copysign(1.0, {})", "float"), _form("{}.sum().item()", "tensor"), _form("float({}.mean())", "tensor"), 
        _form("math.floor({}) + 0.5", "float"), _form("sum([{}, {}], 0.0)", "float", "float"), _form("{}.max().item()", "tensor"), _form("math.fmod({}, {})", "float", "float"),
        _form("({} - {})", "bool", "float"), _form("divmod({}, {})[1]", "float", "float"), _form("float({})", "bool"), _form("math.pow({}, {})", "float", "small"),
        _form("{} ** {}", "float", "small"), _form("({} % {})", "float", "int"),
    ),
    "bool": (
        _comparison, _comparison, _comparison, _form("(not {})", "bool"), _binary("bool", "and", "or"), _form("({} in {})", "int", "list"), _form("({} not in {})", "key", "dict"),
        _form("({} in {})", "str", "str"), _form("({} in {})", "int", "set"), _form("({} in {})", "int", "obj"), _identity, _identity, _isinstance, _isinstance, _form("bool({})", "int"),
        _form("bool({})", "float"), _form("bool({})", "obj"), _form("{}.startswith({})", "str", "str"), _form("{}.requires_grad", "tensor"), _form("{}.is_contiguous()", "tensor"),
        _form("({}.sum() > {})", "tensor", "int"), _form("bool(({} > 0).any())", "tensor"), _comprehension("any({0} > 1 {1})"), _comprehension("all({0} {1})"),
        _form("({} == {})", "dict", "dict"), _form("hasattr({}, 'ghost')", "obj"), _form("hasattr({}, 'zip')", "obj"), _form("({} ^ {})", "bool", "bool"), _form("({} & {})", "bool", "bool"),
        _form("({}.shape == {}.shape)", "tensor", "tensor"), _form("({}.dtype == torch.float32)", "tensor"), _form("callable({})", "func"), _form("{}.isdigit()", "str"),
        _form("({} == {})", "int", "float"), _form("({} is None)", "int"), _form("issubclass({}, Exception)", "Err"), _form("({} < {} < {})", "int", "int", "int"),
        _form("torch.equal({}, {})", "tensor", "tensor"), _form("torch.is_grad_enabled()"), _form("({} <= {})", "set", "set"), _form("({}.dim() == 2)", "tensor"), _LEAVES["bool"],
    ),
    "str": (
        _LEAVES["str"], _fstring, _fstring, _fstring, _form("({} + {})[:20]", "str", "str"), _form("({} * {})[:12]", "str", "small"), _form("{}.upper()", "str"), _form("{}[1:]", "str"),
        _form("{}[{}]", "str", "small"), _form("str({})", "int"), _form("repr({})", "float"), _form("repr({})", "str"), _form("', '.join(map(str, {}))", "list"), _form("{}.replace('a', {})", "str", "str"),
        _form("('%d' % {})", "int"), _form("type({}).__name__", "int"), _form("{}.strip()", "str"), _form("{}.format({})", "str", "int"), _form("''.join(sorted({}))", "str"),
        _form("str({})", "obj"), _form("('%s/%r' % ({}, {}))", "int", "str"), _form("{}.join([{}, 'x'])", "str", "str"), _form("chr({} + 97)", "small"), _form("format({}, '>4')", "int"),
        _form("{}.zfill(3)", "str"), _form("str({}.dtype)", "tensor"), _form("{}[::-1]", "str"), _form("hex({})", "int"), _form("str({})", "bool"), _form("{}", "G4"), _form("str({})", "dict"),
    ),
    "list": (
        _form("[{}, {}]", "int", "int"), _form("[{}]", "int"), _comprehension("[{0} {1}]"), _comprehension("[{0} {1}]"), _nested_comprehension, _form("sorted({})", "list"),
        _form("list(range({}))", "small"), _form("{}[{}:]", "list", "small"), _form("{}[:{}]", "list", "small"), _form("({} + {})[:6]", "list", "list"), _form("list(map(abs, {}))", "list"),
        _form("[*{}, {}][:6]", "list", "int"), _form("list({}.values())", "dict"), _form("list(reversed({}))", "list"), _form("list({})", "tuple"), _form("({} * {})[:6]", "list", "small"),
        _form("sorted({}, reverse=True)", "list"), _form("sorted({}, key=lambda v: (v % 3, v))", "list"), _form("list({})", "obj"), _form("list(filter(None, {}))", "list"), _form("{}.copy()", "list"),
        _form("list({}({}))", "counting", "small"), _form("list({}.shape)", "tensor"), _form("{}.tolist()", "tensor"), _form("{}[::-1]", "list"), _form("[p + q for p, q in zip({}, {})]", "list", "list"),
        _form("[n * v for n, v in enumerate({})]", "list"), _form("sorted({})", "set"), _form("{}", "G2"), _form("list(zip(*[{}]))", "list"), _form("[{}] * {}", "int", "small"), _form("[len(str(v)) for v in {}.items()]", "dict"),
    ),
    "dict": (
        _form("{{'a': {}, 'b': {}}}", "int", "int"), _form("{{{}: {}}}", "key", "int"), _form("{{**{}, 'c': {}}}", "dict", "int"), _form("dict(zip('ab', {}))", "list"), _form("({} | {})", "dict", "dict"),
        _form("dict(a={})", "int"), _form("dict.fromkeys('ab', {})", "int"), _form("{{k: v + 1 for k, v in {}.items()}}", "dict"), _form("{}.copy()", "dict"), _form("dict({}, b={})", "dict", "int"),
        _form("dict(sorted({}.items()))", "dict"), _form("{}", "G3"), _form("vars({})", "obj"), _form("{{v: k for k, v in {}.items()}}", "dict"),
    ),
    "tuple": (
        _form("({}, {})", "int", "int"), _form("({},)", "int"), _form("tuple({})", "list"), _form("divmod({}, {})", "int", "int"), _form("(*{}, {})[:5]", "list", "int"), _form("{}[1:]", "tuple"),
        _form("({} + {})[:5]", "tuple", "tuple"), _form("tuple(sorted({}))", "tuple"), _form("tuple({}.shape)", "tensor"), _form("{}.shape", "tensor"), _comprehension("tuple({0} {1})"), _form("({}, {})", "int", "float"),
        _form("tuple({})", "dict"), _form("({} * {})[:4]", "tuple", "small"), _form("max({}, {})", "tuple", "tuple"), _form("{}.partition('b')", "str"),
    ),
    "set": (
        _form("{{{}, {}}}", "int", "int"), _form("set({})", "list"), _comprehension("{{{0} {1}}}"), _form("({} | {})", "set", "set"), _form("({} - {})", "set", "set"), _form("({} & {})", "set", "set"),
        _form("{}.union({})", "set", "list"), _form("set({})", "tuple"), _form("{{*{}, 1}}", "list"),
    ),
    "tensor": (_tensor_unary, _tensor_unary, _tensor_binary, _tensor_binary, _tensor_binary, _tensor_view, _tensor_view, _tensor_reduce, _tensor_form, _tensor_form),
    "obj": (
        _form("{}({})", "Point", "int"), _form("{}({}, {})", "Point", "int", "int"), _form("{}({}, b={})", "Child", "int", "int"), _form("({} + {})", "obj", "obj"), _form("({} + {})", "obj", "int"),
        _form("({} + {})", "int", "obj"), _form("(-{})", "obj"), _form("{}.make({})", "Point", "int"), _form("{}.make({})", "Child", "int"), _form("max({}, {})", "obj", "obj"),
    ),
    "func": (
        _form("(lambda z: z + {})", "int"), _form("functools.partial({}, {})", "helper", "int"), _form("functools.partial({}, b={})", "helper", "int"), _form("{}.method", "obj"), _form("{}", "helper"),
        _form("{}.__add__", "int"), _form("{}.append", "list"), _form("(lambda z, *y, w={}: (z, y, w)[{}])", "int", "small"), _form("{}.get", "dict"), _form("{}", "down"), _form("{}", "obj"), _form("operator.itemgetter({})", "small"),
    ),
}
