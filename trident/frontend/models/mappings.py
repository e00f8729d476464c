"""Instances of subclasses of dict and OrderedDict that the trace makes (outputs of models, for example), and their instance dicts.

Owns what the methods of dict and OrderedDict do on the contents of such an instance (see `virtuals.CONTENTS`), and `dict.get` and the
like on `vars(instance)`. What must hold: the contents, the instance's own concrete contents and the parts of the virtual dict change
together.

May import: ir, frontend.{iteration,subscripts,operators,values,virtuals,models}.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from trident.frontend import iteration, operators, subscripts
from trident.frontend.models import Answer, Args, Kwargs, Model, NotModelled, Registry
from trident.frontend.values import Const, Virtual
from trident.frontend.virtuals import contents_of, dict_base
from trident.ir import NULL

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


def _on_contents(otherwise: Model | None) -> Model:
    """A method that changes nothing."""

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        contents = contents_of(args[0]) if args else None
        if otherwise is None:
            return NotModelled
        return otherwise(rec, args if contents is None else [contents, *args[1:]], kwargs)

    return model


def _iter(otherwise: Model | None) -> Model:
    """Iterators hold the instance, as views do (`dict.keys` and so on are models of `containers`)."""

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        if len(args) == 1 and not kwargs and contents_of(args[0]) is not None:
            return iteration.sequence_iterator(rec, iteration.keys_of(rec, args[0]))
        return NotModelled if otherwise is None else otherwise(rec, args, kwargs)

    return model


def _setitem(base: Any) -> Model:
    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        contents = contents_of(args[0]) if len(args) == 3 and not kwargs else None
        if contents is None or not subscripts.can_be_key(rec, args[1]) or subscripts.reaches(rec, args[2], args[0]):  # type: ignore[arg-type]
            return NotModelled
        owner: Virtual = args[0]  # type: ignore[assignment]
        own: object = dict_base(type(owner.obj))
        if own != base:
            return NotModelled
        key = rec.promote(args[1], "key of a dict")
        rec.mutation(owner)
        operators.before_set(rec, contents, [key])
        store = base.__setitem__
        rec.execute(store, owner.obj, key, args[2].obj)
        store(contents.obj, key, args[2].obj)
        operators.set_key(contents, key, args[2])
        return Const(None)

    return model


def _init(base: Any) -> Model:
    """Without arguments: it leaves the contents as they are."""

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        return Const(None) if len(args) == 1 and not kwargs and contents_of(args[0]) is not None else NotModelled

    return model


def _vars_get(otherwise: Model) -> Model:
    """`vars(instance).get(name)`"""

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        owner = args[0] if args else None
        if type(owner) is not Virtual or owner.kind != "vars":
            return otherwise(rec, args, kwargs)
        if not 2 <= len(args) <= 3 or kwargs:
            return NotModelled
        found = subscripts.dict_get(rec, owner, args[1]) if subscripts.can_be_key(rec, args[1]) else NotModelled
        if found is NULL:
            return args[2] if len(args) == 3 else Const(None)
        return found  # type: ignore[no-any-return]

    return model


_READERS: tuple[Any, ...] = (
    dict.get, dict.__getitem__, dict.__contains__, dict.__len__,
)  # fmt: skip


def register(registry: Registry) -> None:
    """All of the above."""
    for function in dict.fromkeys(_READERS):
        registry.function(function, _on_contents(registry.find(function)))
    for base in (dict, OrderedDict):
        registry.function(base.__iter__, _iter(registry.find(base.__iter__)))
        registry.function(base.__setitem__, _setitem(base))
        registry.function(base.__init__, _init(base))
    getter = registry.find(dict.get)
    assert getter is not None
    registry.function(dict.get, _vars_get(getter))
