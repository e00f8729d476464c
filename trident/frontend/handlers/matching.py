"""Structural pattern matching.

May import: frontend.*, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trident.frontend import subscripts
from trident.frontend.aborts import Leave
from trident.frontend.analysis import Instruction
from trident.frontend.frames import RecordedFrame
from trident.frontend.handlers import handles
from trident.frontend.models import NotModelled, registry
from trident.frontend.values import Const, Value
from trident.ir import NULL

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

_SEQUENCE, _MAPPING, _MATCH_SELF = 1 << 5, 1 << 6, 1 << 22  # Py_TPFLAGS_*


def _top(rec: Recorder, frame: RecordedFrame) -> Value:
    top = frame.stack[-1]
    assert isinstance(top, Value)
    return rec.resolve(top)


@handles("MATCH_SEQUENCE", "MATCH_MAPPING")
def match_kind(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push whether the subject's type is a sequence or a mapping; the subject stays."""
    subject = _top(rec, frame)
    flag = _SEQUENCE if ins.name == "MATCH_SEQUENCE" else _MAPPING
    frame.stack.append(Const(bool(rec.type_of(subject).__flags__ & flag)))


@handles("MATCH_KEYS")
def match_keys(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push the values under the keys on top, or None if one is absent; subject and keys stay."""
    keys = rec.known_items(_top(rec, frame))
    subject = frame.stack[-2]
    assert isinstance(subject, Value)
    concrete = [key.obj for key in keys or ()]
    if keys is None or any(key in concrete[:n] for n, key in enumerate(concrete)):
        raise Leave("raised", "a mapping pattern that names a key twice")
    values: list[Value] = []
    for key in keys:
        found: Any = subscripts.dict_get(rec, subject, key) if type(subject.obj) is dict else NotModelled
        if found is NotModelled:
            raise Leave("unsupported", f"a mapping pattern on a {type(subject.obj).__name__}")
        if found is NULL:
            frame.stack.append(Const(None))
            return
        values.append(found)
    frame.stack.append(rec.virtual_tuple(values))


@handles("MATCH_CLASS")
def match_class(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Replace subject, class and keyword names by the tuple of attributes, or by None if the pattern does not match."""
    names: Any = frame.pop_value().obj
    cls, subject = rec.resolve(frame.pop_value()), rec.resolve(frame.pop_value())
    is_instance = registry().find(isinstance)
    assert is_instance is not None
    answer = is_instance(rec, [subject, cls], {})
    if not isinstance(answer, Const):
        raise Leave("unsupported", "a class pattern whose class checks instances in its own way")
    if not answer.obj:
        frame.stack.append(Const(None))
        return
    attributes = _positional(rec, cls, subject, ins.arg, names)
    if attributes is not None:
        for name in names:
            value = _attribute(rec, subject, name)
            if value is None:
                attributes = None
                break
            attributes.append(value)
    frame.stack.append(Const(None) if attributes is None else rec.virtual_tuple(attributes))


def _positional(rec: Recorder, cls: Value, subject: Value, count: int, others: tuple[str, ...]) -> list[Value] | None:
    """Attributes of positional sub-patterns; None where the pattern does not match. others: the names of the keyword ones."""
    if not count:
        return []
    found = rec.lookup(cls, "__match_args__")
    if found.how == "absent" and cls.obj.__flags__ & _MATCH_SELF and count == 1:  # type: ignore[attr-defined]
        return [subject]
    names = rec.resolve(found.value).obj if found.how == "value" else None
    if type(names) is not tuple or count > len(names) or not all(type(name) is str for name in names):
        raise Leave("raised", "positional sub-patterns that the class does not have")
    if len({*names[:count], *others}) != count + len(others):
        raise Leave("raised", "a class pattern that names an attribute twice")
    values: list[Value] = []
    for name in names[:count]:
        value = _attribute(rec, subject, name)
        if value is None:
            return None
        values.append(value)
    return values


def _attribute(rec: Recorder, subject: Value, name: str) -> Value | None:
    """The attribute, None if there is none."""
    found = rec.lookup(subject, name)
    if found.how == "absent":
        return None
    if found.how == "call":
        value = rec.try_pure(found.value, list(found.args))
        if value is None:
            raise Leave("unsupported", f"the attribute {name} in a class pattern")
        return value
    if found.how == "opaque":
        raise Leave("unsupported", f"the attribute {name} in a class pattern")
    return rec.access(found, subject, name)  # type: ignore[no-any-return]
