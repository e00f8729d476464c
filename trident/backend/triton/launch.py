"""Launch sites: the state behind each `kernel[grid](...)` of a trace, and the launches that go through Python.

Owns `SiteState`: the tables that native code looks keys up in, everything that their addresses lie in, and `miss`, which launches
through Triton itself and then teaches the table what it saw. What must hold: a table is complete before its address is stored,
and neither it nor anything it names is freed while the state lives; a state lives as long as native code that has its address
(until `release`). Triton's own `run` makes every launch that native code does not, so results, hooks, autotuning and exceptions
of those are Triton's.

May import: triton, ir.trace, native.launch_layout, native.launch_runtime, specialize, guards, configs, boundary, log, errors.
"""

from __future__ import annotations

import ctypes
import inspect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from trident import locks, log
from trident.backend.native import launch_layout as layout
from trident.backend.native import launch_runtime
from trident.backend.triton import configs, guards
from trident.backend.triton.specialize import NULL, Unsuitable, operands_of, plan_of
from trident.boundary import UsersCall, carry_out, describe_error
from trident.errors import NativeError
from trident.ir.trace import LaunchSite

Words = Any  # a ctypes array of c_uint64
FIRST_CAPACITY: Final = 4
# Where learning from a launch failed, or a table's guards had to be renewed, PATIENCE times in a row, with not even FEW_HITS native
# launches in between, it is tried ever more rarely, in the end every LONGEST_PAUSE launches.
FEW_HITS: Final = 4
PATIENCE: Final = 8
LONGEST_PAUSE: Final = 1024

_numbers = itertools.count()
_alive: dict[int, SiteState] = {}


@dataclass(frozen=True, slots=True)
class Entry:
    """A specialization that native code can launch: its key and device, Triton's kernel, and the words of the entry."""

    key: bytes
    device: int
    compiled: Any
    words: tuple[int, ...]
    alive: tuple[Any, ...]


def words(values: Sequence[int]) -> Words:
    """A block of 8-byte words (at least one, so that it has an address)."""
    return (ctypes.c_uint64 * max(len(values), 1))(*(value & guards.ALL for value in values))


class SiteState:
    """What native code and Python know of one launch site.

    targets: those that its launches may be for. operands: None where every launch goes through Python, and `reason` says why.
    """

    def __init__(self, site: LaunchSite, kinds: Sequence[str]) -> None:
        self.site = site
        self.kinds = tuple(kinds)
        self.number = next(_numbers)
        self.reason = ""
        self.targets: tuple[str, ...] = (layout.CPU_TARGET,)
        self.operands: tuple[layout.Operand, ...] | None = None
        self.entries: list[Entry] = []
        self._lock = locks.lock()
        self._table: Words = None
        self._rows: Words = None
        self._word_guards: Words = None
        self._dict_guards: Words = None
        self._taken: guards.Guards | None = None
        self._capacity = 0
        self._snapshot: tuple[object, ...] = ()
        self._futile = self._skip = 0
        self._hits_seen = self._faults = 0
        self._kept: list[Any] = []
        self._run = _caller(site)
        self._miss = self.miss  # one bound method, whose address the header holds
        self._key_words = (len(self.kinds) + 7) // 8
        kind_codes = bytes(layout.KINDS[kind] for kind in self.kinds)
        self._kind_codes = ctypes.create_string_buffer(kind_codes, max(len(kind_codes), 1))
        header = [0] * layout.STATE_WORDS
        header[layout.STATE_MISS] = id(self._miss)
        header[layout.STATE_OPERANDS] = len(self.kinds)
        header[layout.STATE_KINDS] = ctypes.addressof(self._kind_codes)
        header[layout.STATE_KEY_BYTES] = 8 * self._key_words
        self._header = words(header)
        self._decide()

    # ------------------------------------------------------------------------------------------------------- facts

    @property
    def address(self) -> int:
        """Address of the state's words, for native code."""
        return ctypes.addressof(self._header)

    @property
    def name(self) -> str:
        """The kernel's name and the line of the launch."""
        kernel = self.site.kernel
        return f"{getattr(kernel, '__name__', type(kernel).__name__)} ({self.site.file}:{self.site.line})"

    @property
    def hits(self) -> int:
        """Launches made natively (approximate where several threads launch at once)."""
        return self._header[layout.STATE_HITS]

    @property
    def misses(self) -> int:
        """Launches made through Python."""
        return self._header[layout.STATE_MISSES]

    def entry_address(self, index: int) -> int:
        """Address of an entry's words, for benchmarks."""
        return ctypes.addressof(self._rows) + index * self._stride

    @property
    def _stride(self) -> int:
        return 8 * (layout.ENTRY_WORDS + self._key_words)

    def keep(self) -> SiteState:
        """Keep the state until `release`."""
        _alive[self.number] = self
        return self

    def release(self) -> None:
        """The native code that has this state's address is gone."""
        _alive.pop(self.number, None)

    # ---------------------------------------------------------------------------------------------------- decisions

    def _decide(self) -> None:
        """Whether and for what there are native launches."""
        launch_runtime.install(layout.CPU_TARGET)  # the way to Python, whatever comes
        try:
            _suitable_kernel(self.site)
            operands = operands_of(self.site, self.kinds)
            targets = configs.available() if "tensor" in self.kinds else (_default_target(),)
            for target in targets:
                launch_runtime.install(target)
            self.operands, self.targets = operands, targets
        except (Unsuitable, NativeError) as error:
            self.reason = str(error)

    # -------------------------------------------------------------------------------------------- launch through Python

    def miss(self, gx: int, gy: int, gz: int, args: tuple[Any, ...], key: bytes) -> None:
        """Launch through Triton. key: as native code computed it; empty where it could not."""
        call = UsersCall(lambda: self._run((gx, gy, gz), args))
        carry_out(call, lambda: self._launch(call, key), self._faulted)

    def _launch(self, call: UsersCall, key: bytes) -> None:
        """Learn from the launch, where that may pay."""
        if self.operands is None or not self._due(key):
            return
        from triton.runtime import driver

        before = guards.snapshot(self.site)
        device = driver.active.get_current_device()  # what matters for CUDA only
        compiled = call.execute()
        if call.raised:
            return
        # Another thread, or a finalizer that launches while this thread learns: what they saw is learnt another time.
        if self._lock.acquire(blocking=False):
            try:
                self._learn(compiled, key, device, before)
                self.reason = ""
            except Unsuitable as error:
                self.reason = str(error)
                self._throttle(0)
            finally:
                self._lock.release()

    def _faulted(self, error: Exception) -> None:
        """Trident itself failed: the launches go through Python, for good if that goes on."""
        self.reason = f"an error in Trident itself: {describe_error(error)}"
        log.write("aborts", f"launch of {self.site.kernel}: {self.reason}")
        self._faults += 1
        self._skip = LONGEST_PAUSE
        if self._faults >= PATIENCE:
            self.operands = None

    def _due(self, key: bytes) -> bool:
        """Whether to learn from this launch."""
        if len(key) != 8 * self._key_words:
            return False
        if self._skip > 0:
            self._skip -= 1
            return False
        return True

    def _learn(self, compiled: Any, key: bytes, device: int, before: tuple[object, ...]) -> None:
        """Make the launch that was just made one that native code can repeat."""
        from triton.runtime.jit import JITFunction

        taken = guards.take(self.site)
        guards.unpatched(type(self.site.kernel).run, JITFunction)
        now = guards.snapshot(self.site)
        if before != now:
            raise Unsuitable("knobs changed during the launch")
        entry = self._entry(compiled, key, device)
        device = entry.device
        taken.class_of(compiled)
        taken.class_of(compiled.run)
        same = next((e for e in self.entries if (e.key, e.device) == (key, device)), None)
        if now == self._snapshot and self._fresh():
            if same is None:
                self._append(entry)
            return  # or this launch had another reason to come here
        if same is not None:
            self._throttle(self.hits - self._hits_seen)
        kernels = {id(k) for caches in list(self.site.kernel.device_caches.values()) for k in list(caches[0].values())}
        right = [e for e in self.entries
                 if now == self._snapshot and id(e.compiled) in kernels and (e is not same or e.compiled is compiled)]
        if len(right) == len(self.entries) and self._refresh(taken):
            if same is None:
                self._append(entry)
            return
        self._publish([*(e for e in right if e is not same), entry], taken, now)

    def _entry(self, compiled: Any, key: bytes, device: int) -> Entry:
        from triton.compiler import CompiledKernel

        if not isinstance(compiled, CompiledKernel):
            raise Unsuitable("the kernel is still being compiled")
        guards.unpatched(type(compiled).launch_metadata, CompiledKernel)
        guards.unpatched(type(compiled.run).__call__, type(compiled.run))
        assert self.operands is not None
        target = compiled.metadata.target.backend
        if target not in self.targets:
            raise Unsuitable(f"no native launch for {target}")
        config = configs.CONFIGS[target](compiled)
        if target == layout.CPU_TARGET:
            device = layout.CPU_DEVICE
        plan, alive = plan_of(self.site, self.operands, key, compiled.src.signature)
        plan += [ctypes.addressof(NULL)] * config.extra
        plan_words = words(plan)
        attrs = ctypes.create_string_buffer(config.attrs, max(len(config.attrs), 1))
        return self.entry(config, key, device, compiled, plan_words, len(plan), attrs, (plan_words, attrs, *alive))

    @staticmethod
    def entry(config: configs.LaunchConfig, key: bytes, device: int, compiled: Any, plan: Words, params: int, attrs: Any,
              alive: tuple[Any, ...]) -> Entry:
        """The words of an entry, in the order of launch_layout.ENTRY_*."""
        row = [0] * layout.ENTRY_WORDS
        row[layout.ENTRY_FUNCTION] = config.function
        row[layout.ENTRY_DEVICE] = device
        row[layout.ENTRY_BLOCK_SHARED] = config.block | config.shared << 32
        row[layout.ENTRY_CTAS] = config.ctas
        row[layout.ENTRY_ATTRS] = ctypes.addressof(attrs)
        row[layout.ENTRY_ATTR_COUNT] = len(config.attrs) // configs.CU_ATTRIBUTE_SIZE
        row[layout.ENTRY_PARAM_COUNT] = params
        row[layout.ENTRY_PLAN] = ctypes.addressof(plan)
        key_words = [int.from_bytes(key[i:i + 8], "little") for i in range(0, len(key), 8)]
        return Entry(key, device, compiled, (*row, *key_words), alive)

    # -------------------------------------------------------------------------------------------------------- tables

    def _fresh(self) -> bool:
        """Whether there is a table and its guards still hold."""
        return self._taken is not None and self._taken.hold()

    def _refresh(self, taken: guards.Guards) -> bool:
        """Write what the guards' words are now into the table, if they are the same guards.

        Readers may see some old and some new words; an old one differs from memory, so they take the way through Python.
        """
        if self._taken is None or not taken.same_guards(self._taken):
            return False
        for i, (_, _, expected) in enumerate(taken.words):
            self._word_guards[i * layout.WORD_GUARD_WORDS + layout.WORD_GUARD_WORDS - 1] = expected
        for i, (_, tag, *_) in enumerate(taken.dicts):
            self._dict_guards[i * layout.DICT_GUARD_WORDS + 1] = tag
        self._taken = taken
        return True

    def _append(self, entry: Entry) -> None:
        """Add an entry to the table, or to a larger copy of its rows."""
        count = len(self.entries)
        if count == self._capacity:
            self._grow([*self.entries, entry])
            self._table[layout.TABLE_ENTRIES] = ctypes.addressof(self._rows)
        else:
            start = count * self._stride // 8
            self._rows[start:start + len(entry.words)] = entry.words
        self.entries.append(entry)
        self._table[layout.TABLE_ENTRY_COUNT] = count + 1  # last: readers see the entry only now

    def _grow(self, entries: Sequence[Entry]) -> None:
        """New rows with room for more. The old ones stay: native code may be reading them."""
        self._capacity = max(FIRST_CAPACITY, 2 * len(entries))
        rows = words([0] * (self._capacity * self._stride // 8))
        flat = [word for entry in entries for word in entry.words]
        rows[:len(flat)] = [word & guards.ALL for word in flat]
        self._rows = rows
        self._kept.append(rows)

    def _publish(self, entries: list[Entry], taken: guards.Guards, snapshot: tuple[object, ...]) -> None:
        """Replace the table: new guard words, and the entries that are right under them."""
        self._kept += [self.entries, taken]
        self.entries = entries
        self._grow(entries)
        word_guards = words([value for record in taken.words for value in record])
        dict_guards = words([value for record in taken.dicts for value in record])
        table = [0] * layout.TABLE_WORDS
        table[layout.TABLE_WORD_COUNT] = len(taken.words)
        table[layout.TABLE_WORD_GUARDS] = ctypes.addressof(word_guards)
        table[layout.TABLE_DICT_COUNT] = len(taken.dicts)
        table[layout.TABLE_DICT_GUARDS] = ctypes.addressof(dict_guards)
        table[layout.TABLE_ENTRY_COUNT] = len(entries)
        table[layout.TABLE_ENTRIES] = ctypes.addressof(self._rows)
        table[layout.TABLE_STRIDE] = self._stride
        table[layout.TABLE_KEY_WORDS] = self._key_words
        self._table = words(table)
        self._snapshot, self._taken = snapshot, taken
        self._word_guards, self._dict_guards = word_guards, dict_guards
        self._kept += [word_guards, dict_guards, self._table]
        self._header[layout.STATE_TABLE] = ctypes.addressof(self._table)  # last: everything above is in place

    def _throttle(self, used: int) -> None:
        """Learning costs more than a launch: learn ever more rarely while what was learnt is hardly used. used: how often."""
        self._hits_seen = self.hits
        self._futile = 0 if used > FEW_HITS else self._futile + 1
        self._skip = 0 if self._futile <= PATIENCE else min(1 << self._futile - PATIENCE, LONGEST_PAUSE)


def _suitable_kernel(site: LaunchSite) -> None:
    from triton.runtime.jit import JITFunction

    if not configs.TRITON_FROM <= configs.triton_version() < configs.TRITON_BEFORE:
        raise Unsuitable(f"Triton {'.'.join(map(str, configs.triton_version()))} is not one whose launches are known")
    kernel = site.kernel
    if not isinstance(kernel, JITFunction) or "run" in vars(kernel):
        raise Unsuitable(f"the kernel is a {type(kernel).__name__}, not a JITFunction")
    guards.unpatched(type(kernel).run, JITFunction)


def _default_target() -> str:
    """Where a kernel without tensors runs."""
    from triton.runtime import driver

    try:
        target: str = driver.active.get_current_target().backend
    except RuntimeError as error:
        raise Unsuitable(str(error)) from error
    if target not in configs.available():
        raise Unsuitable(f"no native launch for {target}")
    return target


def _caller(site: LaunchSite) -> Any:
    """A function (grid, operands) -> the compiled kernel that Triton launched."""
    kernel = site.kernel
    options = dict(site.options)
    signature = getattr(kernel, "signature", None)
    kinds = {p.name: p.kind for p in signature.parameters.values()} if isinstance(signature, inspect.Signature) else {}
    named = getattr(kernel, "arg_names", None) or list(kinds)
    # By position as long as the parameters are the kernel's first ones, as users write it; by name from then on.
    leading = 0
    for param, name in zip(site.params, named):
        if param.name != name or kinds.get(name) is inspect.Parameter.KEYWORD_ONLY:
            break
        leading += 1
    params = site.params
    starred = next((i for i, p in enumerate(params[:leading]) if kinds.get(p.name) is inspect.Parameter.VAR_POSITIONAL), None)

    def run(grid: tuple[int, int, int], operands: tuple[Any, ...]) -> Any:
        rest = iter(operands)
        values: list[Any] = [param.value if param.constexpr else next(rest) for param in params]
        keywords = {param.name: value for param, value in zip(params[leading:], values[leading:])}
        positional = values[:leading]
        if starred is not None:
            positional[starred:starred + 1] = positional[starred]
        return kernel.run(*positional, grid=grid, warmup=False, **keywords, **options)

    return run


def make_site_state(site: LaunchSite, kinds: Sequence[str]) -> SiteState:
    """The state of a launch site, kept alive until its `release`."""
    return SiteState(site, kinds).keep()
