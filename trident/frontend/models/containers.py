"""Methods of lists, tuples, dicts, ranges and strings.

Owns what these methods do on virtual and constant containers. What must hold: see frontend.models.

May import: ir, frontend.{operators,iteration,subscripts,values,models,handlers.build}.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from trident.frontend import iteration, operators, subscripts
from trident.frontend.handlers import build
from trident.frontend.models import Answer, Args, Kwargs, Model, NotModelled, Registry
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.frontend.virtuals import contents_of, view_of
from trident.ir import NULL

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

def _is(value: Value, kind: str) -> bool:
    return type(value) is Virtual and value.kind == kind


# --------------------------------------------------------------------------------------------------------------- lists
def _append(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) != 2 or kwargs:
        return NotModelled
    target = args[0]
    if not _is(target, "list") and not (type(target) is Traced and rec.type_of(target) is list):
        return NotModelled
    build.append(rec, target, args[1])
    return Const(None)


def _extend(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) != 2 or kwargs or not _is(args[0], "list"):
        return NotModelled
    target: Virtual = args[0]  # type: ignore[assignment]
    source = args[1]
    items = rec.known_items(source)
    if items is None or any(subscripts.reaches(rec, item, target) for item in items):
        return NotModelled
    rec.mutation(target, len(target.items))
    rec.execute_part(list.extend, target.obj, [item.obj for item in items])
    target.items.extend(items)
    return Const(None)


def _position(rec: Recorder, value: Value) -> int | None:
    return rec.promote(value, "position in a list") if type(value.obj) is int else None


def _insert(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) != 3 or kwargs or not _is(args[0], "list") or subscripts.reaches(rec, args[2], args[0]):  # type: ignore[arg-type]
        return NotModelled
    target: Virtual = args[0]  # type: ignore[assignment]
    where = _position(rec, args[1])
    if where is None:
        return NotModelled
    rec.mutation(target, subscripts.position(target, where))
    rec.execute(list.insert, target.obj, where, args[2].obj)
    target.items.insert(where, args[2])
    return Const(None)


def _list_pop(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if not 1 <= len(args) <= 2 or kwargs or not _is(args[0], "list"):
        return NotModelled
    target: Virtual = args[0]  # type: ignore[assignment]
    where = -1 if len(args) == 1 else _position(rec, args[1])
    if where is None:
        return NotModelled
    rec.mutation(target, subscripts.position(target, where))
    rec.execute(list.pop, target.obj, where)
    return target.items.pop(where)


def _simple_list(name: str) -> Model:
    """clear and reverse."""
    method = getattr(list, name)

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        if len(args) != 1 or kwargs or not _is(args[0], "list"):
            return NotModelled
        target: Virtual = args[0]  # type: ignore[assignment]
        rec.mutation(target)
        rec.execute(method, target.obj)
        method(target.items)
        return Const(None)

    return model


def _list_copy(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    items = rec.known_items(args[0]) if len(args) == 1 and not kwargs else None
    return NotModelled if items is None else rec.virtual_list(items)


def _index(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    items = rec.known_items(args[0]) if len(args) == 2 and not kwargs else None
    for n, item in enumerate(items or ()):
        item = rec.resolve(item)
        same = operators.equal_item(rec, item, args[1])
        if same is None:
            return NotModelled
        if same:
            return Const(n)
    return NotModelled


def _count(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    items = rec.known_items(args[0]) if len(args) == 2 and not kwargs else None
    if items is None:
        return NotModelled
    total = 0
    for item in items:
        same = operators.equal_item(rec, item, args[1])
        if same is None:
            return NotModelled
        total += bool(same)
    return Const(total)


# --------------------------------------------------------------------------------------------------------------- dicts
def _view(name: str) -> Model:
    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        if len(args) != 1 or kwargs:
            return NotModelled
        owner = args[0]
        if not _is(owner, "dict") and contents_of(owner) is None and not (type(owner) is Const and type(owner.obj) in (dict, OrderedDict)):
            if type(owner) is not Traced or iteration.traced_pairs(rec, owner) is None:
                return NotModelled
        return rec.virtual(view_of(owner.obj, name), "view", [owner], view=name)

    return model


def _get(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if not 2 <= len(args) <= 3 or kwargs or type(args[0].obj) not in (dict, OrderedDict):
        return NotModelled
    found = subscripts.dict_get(rec, args[0], args[1])
    if found is NULL:
        return args[2] if len(args) == 3 else Const(None)
    if found is NotModelled and type(args[0]) is not Virtual and subscripts.hashes_in_c(rec.resolve(args[1])):
        rec.type_of(args[0])
        return rec.write_call(dict.get, args, f"item of {rec.name_of(args[0])}")
    return found  # type: ignore[no-any-return]


def _dict_pop(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if not 2 <= len(args) <= 3 or kwargs or not _is(args[0], "dict") or not subscripts.can_be_key(rec, args[1]):
        return NotModelled
    target: Virtual = args[0]  # type: ignore[assignment]
    key = rec.promote(args[1], "key of a dict")
    if key not in target.obj:  # type: ignore[operator]
        if len(args) == 2:
            rec.abort("raised", f"KeyError: {key!r}")
        return args[2]
    found = subscripts.dict_get(rec, target, Const(key))
    rec.mutation(target)
    rec.execute(type(target.obj).pop, target.obj, key)
    where = next(n for n, known in enumerate(target.keys or ()) if known is key or known == key)
    del target.keys[where], target.items[where]  # type: ignore[index]
    target.state["deleted"] = target.state.get("deleted", 0) + 1
    return found  # type: ignore[no-any-return]


def _setdefault(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if not 2 <= len(args) <= 3 or kwargs or not _is(args[0], "dict") or not subscripts.can_be_key(rec, args[1]):
        return NotModelled
    found = subscripts.dict_get(rec, args[0], args[1])
    if found is not NULL:
        return found  # type: ignore[no-any-return]
    item = args[2] if len(args) == 3 else Const(None)
    target: Virtual = args[0]  # type: ignore[assignment]
    if subscripts.reaches(rec, item, target):
        return NotModelled
    key = rec.promote(args[1], "key of a dict")
    operators.before_set(rec, target, [key])
    rec.execute(type(target.obj).setdefault, target.obj, key, item.obj)
    operators.set_key(target, key, item)
    return item


def _update(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if not 1 <= len(args) <= 2 or not _is(args[0], "dict"):
        return NotModelled
    target: Virtual = args[0]  # type: ignore[assignment]
    pairs: Any = build.ordered_pairs(rec, args[1]) if len(args) == 2 else []
    if pairs is None or any(subscripts.reaches(rec, item, target) for _, item in (*pairs, *kwargs.items())):
        return NotModelled
    operators.before_set(rec, target, [key for key, _ in (*pairs, *kwargs.items())])
    for key, item in (*pairs, *kwargs.items()):
        target.obj[key] = item.obj  # type: ignore[index]
        operators.set_key(target, key, item)
    return Const(None)


def _dict_copy(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) != 1 or kwargs or not _is(args[0], "dict") or type(args[0].obj) is not dict:
        return NotModelled
    rec.fix_order(args[0])  # type: ignore[arg-type]
    return rec.virtual_dict(list(args[0].keys or ()), list(args[0].items))  # type: ignore[attr-defined]


def _dict_clear(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) != 1 or kwargs or not _is(args[0], "dict"):
        return NotModelled
    target: Virtual = args[0]  # type: ignore[assignment]
    rec.mutation(target)
    rec.execute(type(target.obj).clear, target.obj)
    target.items, target.keys = [], []
    return Const(None)


# --------------------------------------------------------------------------------------------------- everything constant
def _pure_method(function: Any) -> Model:
    """A method of an immutable type: computed where all arguments are constants."""

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        if kwargs or not all(operators.is_foldable(arg) for arg in args):
            return NotModelled
        return _as_constant(rec, rec.execute(function, *[arg.obj for arg in args]))

    return model


def _as_constant(rec: Recorder, real: Any) -> Value:
    """A result computed from constants; a new list of constants stays new."""
    return rec.virtual_list([Const(item) for item in real]) if type(real) is list else Const(real)


def _contains(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    return subscripts.contains(rec, args[0], args[1]) if len(args) == 2 and not kwargs else NotModelled


def _getitem(rec: Recorder, args: Args, kwargs: Kwargs) -> Any:
    return subscripts.subscript(rec, args[0], args[1]) if len(args) == 2 and not kwargs else NotModelled


def _iter(rec: Recorder, args: Args, kwargs: Kwargs) -> Any:
    return iteration.get_iterator(rec, args[0]) if len(args) == 1 and not kwargs else NotModelled


def _len(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    return operators.length(rec, args[0]) if len(args) == 1 and not kwargs else NotModelled


_METHODS: dict[Any, Model] = {
    list.append: _append, list.extend: _extend, list.insert: _insert, list.pop: _list_pop, list.clear: _simple_list("clear"),
    list.reverse: _simple_list("reverse"), list.copy: _list_copy, list.index: _index, list.count: _count, tuple.index: _index,
    tuple.count: _count, dict.get: _get, dict.pop: _dict_pop, dict.setdefault: _setdefault, dict.update: _update, dict.copy: _dict_copy,
    dict.clear: _dict_clear, dict.keys: _view("keys"), dict.values: _view("values"), dict.items: _view("items"),
    OrderedDict.pop: _dict_pop, OrderedDict.setdefault: _setdefault, OrderedDict.update: _update, OrderedDict.clear: _dict_clear,
    OrderedDict.keys: _view("keys"), OrderedDict.values: _view("values"), OrderedDict.items: _view("items"),
    dict.__contains__: _contains, dict.__getitem__: _getitem, list.__getitem__: _getitem, tuple.__getitem__: _getitem,
    list.__iter__: _iter, tuple.__iter__: _iter, dict.__iter__: _iter, list.__len__: _len, tuple.__len__: _len, dict.__len__: _len,
}


def _exactly(cls: type, model: Model) -> Model:
    """A model for exact instances of a class: a subclass may mean something else by the operation."""
    def exact(rec: Recorder, args: Args, kwargs: Kwargs) -> Any:
        return model(rec, args, kwargs) if args and type(args[0].obj) is cls else NotModelled

    return exact


_PURE_TYPES = (str, bytes, int, float, complex, range, frozenset)


def register(registry: Registry) -> None:
    """All of the above, and every method of an immutable builtin type."""
    for key, model in _METHODS.items():
        owner, name = key.__objclass__, key.__name__
        overridden = owner is dict and vars(OrderedDict).get(name, key) is not key
        registry.function(key, _exactly(owner, model) if name.startswith("__") or overridden else model)
    for cls in _PURE_TYPES:
        for function in vars(cls).values():
            if type(function).__name__ == "method_descriptor" and registry.find(function) is None:
                registry.function(function, _pure_method(function))
