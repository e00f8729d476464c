"""Which modules of CPython's `test` package are run, and what may come out differently when everything in them is recorded.

Owns the tables. What must hold: a difference that is not listed here fails the run; each that is has a reason.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

# The part that runs in CI: short, and of every kind.
QUICK = tuple("augassign with unpack dictcomps scope keywordonlyarg contains dictviews".split())

MODULES = tuple("""
    grammar syntax opcodes peepholer compile code codeop dis dynamic global scope named_expressions
    int_literal string_literals utf8source fstring type_comments type_annotations type_aliases type_params future
    exceptions baseexception exception_hierarchy exception_variations exception_group except_star raise traceback with
    generators generator_stop genexps listcomps setcomps dictcomps yield_from coroutines asyncgen contextlib contextlib_async
    call extcall keywordonlyarg positional_only_arg decorators funcattrs property class classes metaclass subclassinit
    genericclass genericalias descr descrtut super abc enum dataclasses typing types type_cache
    dict dictviews list set frozenset tuple deque defaultdict ordered_dict userdict userlist userstring collections
    string str unicode bytes memoryview array struct bool int long float complex fractions numeric_tower decimal math cmath
    slice range enumerate iter iterlen itertools functools operator index hash compare richcmp isinstance sort
    unpack unpack_ex patma augassign binop pow contains builtin print format typechecks
    heapq bisect random statistics weakref weakset copy copyreg pickle reprlib pprint context module frame
    textwrap shlex json difflib configparser ast tokenize calendar datetime graphlib optparse getopt argparse posixpath
    fnmatch urlparse ipaddress html htmlparser cmd string_template warnings inspect re keyword bdb
    sys_settrace sys_setprofile monitoring
""".split())

REASONS: dict[str, str] = {
    "frame": "the test looks for the frames of functions that are compiled and so have none, or counts them",
    "lifetime": "objects that a trace holds die at their last use, constants of a trace with its function",
    "builtins": "the test replaces builtins that Trident itself calls",
    "identity": "`f(*args)` passes a new tuple of the same items",
    "suggestion": "an AttributeError from a `__getattr__` that is inlined has no `name` and `obj`, so no suggestion",
    "depth": "the recorder stands deeper in the C stack than the code that it executes",
    "gc": "a tuple is made where it is first needed, behind the collection that the test waits for",
    "evaluator": "with any PEP 523 evaluator in place CPython's own calls of Python functions take C stack (and are calls of C functions "
                 "to a tool of sys.monitoring), and that a generator or coroutine ends is an exception to a tracer",
    "entered": "to a tracer that a compiled function has installed, a frame that CPython continues with an exception is entered anew",
    "vectorcall": "the test replaces the C function behind a Python function",
    "traceback": "the frames in the traceback of an exception that a hit has caught have no locals, no `f_back`, and stay at their line",
    "adaptive": "the test looks at CPython's specialization of code that is compiled and so is not executed",
    "bytecode": "the test executes bytecode that no compiler makes, which is undefined",
    "time": "the test measures time or memory",
    "state": "the test is not repeatable: it fails or passes by what ran before it",
}


@dataclass(frozen=True, slots=True)
class Expected:
    """A difference that is known. test: pattern of the test's name without its module ("Class.method*"). reason: of REASONS."""

    module: str
    test: str
    reason: str

    @property
    def modes(self) -> tuple[str, ...]:
        """In which it may be seen: with every frame declined, only what differs between two plain runs too."""
        return ("declined", "recorded") if self.reason in ("time", "state", "evaluator") else ("recorded",)


EXPECTED: tuple[Expected, ...] = tuple(Expected(module, test, why) for module, why, tests in (
    ("exceptions", "suggestion", "AttributeErrorTests.test_getattr_suggestions_*"),
    ("exceptions", "lifetime", "ExceptionTests.test_*_cleanup ExceptionTests.test_generator_*_cleanup_exc_state"),
    ("exceptions", "frame", "ExceptionTests.testSettingException"),
    ("generators", "frame", "GeneratorStackTraceTest.*"),
    ("generators", "state", "SignalAndYieldFromTest.test_raise_and_yield_from"),
    ("generators", "lifetime", "FinalizationTest.test_refcycle"),
    ("tuple", "gc", "TupleTest.test_track_*"),
    ("scope", "lifetime", "ScopeTests.testLeaks"),
    ("call", "evaluator", "TestRecursion.test_super_deep"),
    ("call", "vectorcall", "TestPEP590.test_setvectorcall*"),
    ("warnings", "frame", "CFilterTests.test_error_after_default CFilterTests.test_ignore CWarnTests.test_filename "
                          "CWarnTests.test_skip_file_prefixes CWarnTests.test_stacklevel "
                          "*WarnTests.test_stacklevel_import"),
    ("code", "bytecode", "CodeTest.test_invalid_bytecode"),
    ("functools", "lifetime", "*.test_lru_cache_weakrefable"),
    ("contextlib", "lifetime", "ContextManagerTestCase.test_nokeepref"),
    ("int", "time", "*.test_denial_of_service_*"),
    ("descr", "lifetime", "ClassPropertiesAndMethods.test_slots ClassPropertiesAndMethods.test_cycle_through_dict"),
    ("dict", "lifetime", "DictTest.test_oob_indexing_dictiter_iternextitem DictTest.test_container_iterator"),
    ("set", "lifetime", "*.test_container_iterator"),
    ("deque", "lifetime", "*.test_container_iterator"),
    ("struct", "lifetime", "StructTest.test__struct_reference_cycle_cleaned_up"),
    ("call", "identity", "TestPEP590.test_vectorcall_override"),
    ("coroutines", "lifetime", "CoroutineTest.test_for_[2346]"),
    ("coroutines", "frame", "OriginTrackingTest.*"),
    ("array", "lifetime", "*.test_bug_782369"),
    ("ast", "lifetime", "AST_Tests.test_AST_garbage_collection"),
    ("sys_settrace", "entered", "*.test_09_settrace_and_raise"),  # 3.12
    ("memoryview", "lifetime", "*.test_gc *.test_getbuffer *.test_getitem"),
    ("ordered_dict", "lifetime", "*.test_reference_loop *.test_free_after_iterating *.test_highly_nested_subclass"),
    ("typing", "frame", "ProtocolTests.*"),
    ("dis", "evaluator", "*.test_loop_quicken"),
    ("dis", "adaptive", "*.test_show_caches* *.test_super_instructions"),
    ("exceptions", "traceback", "PEP626Tests.test_lineno_after_other_except PEP626Tests.test_lineno_in_try"),
    ("raise", "traceback", "TestTracebackType.test_attrs"),
    ("traceback", "frame", "TestStack.test_walk_stack TestStack.test_format_locals TestStack.test_custom_format_frame"),
    ("traceback", "traceback", "TestTracebackException.test_print TestTracebackException.test_comparison_params_variations "
                               "MiscTracebackCases.test_clear"),
    ("traceback", "lifetime", "TestTracebackException.test_no_refs_to_exception_and_traceback_objects"),
    ("sys_settrace", "evaluator", "*.test_20_async_for_loop"),  # 3.12
    ("monitoring", "evaluator", "ExceptionMonitoringTest.test_implicit_stop_iteration MonitoringEventsTest.test_caught "
                                "MonitoringEventsTest.test_just_call MonitoringEventsTest.test_just_pass "
                                "MonitoringEventsTest.test_nested_call SimulateProfileTest.* TestLoadSuperAttr.* TestManyEvents.*"),
    ("frame", "traceback", "ClearTest.test_clear_executing FrameAttrsTest.test_locals ReprTest.test_repr"),
    ("weakref", "lifetime", "MappingTestCase.test_weak_keyed_cascading_deletes MappingTestCase.test_weak_keys "
                            "MappingTestCase.test_weak_values MappingTestCase.test_weak_*_destroy_while_iterating "
                            "ReferencesTestCase.test_callback_in_cycle_resurrection ReferencesTestCase.test_callbacks_on_callback "
                            "WeakMethodTestCase.test_callback_when_method_dead WeakMethodTestCase.test_method_dead"),
    ("pickle", "lifetime", "*.test_custom_pickler_dispatch_table_memleak"),
    ("module", "lifetime", "ModuleTests.test_clear_dict_in_ref_cycle"),
) for test in tests.split())

# Tests that are left out in every mode, because the process cannot go on after them: module -> {part of a name: reason}.
OMITTED: dict[str, dict[str, str]] = {
    "ast": {"test_sys_modules": "builtins"},
    "dynamic": {"test_modify_builtins": "builtins"},
    "iter": {"test_reduce_mutating_builtins_iter": "builtins"},
    "exceptions": {"test_recursion_in_except_handler": "depth"},
    "builtin": {"test_envar_good_path_builtin": "builtins"},
    "functools": {"test_lru_reentrancy_with_len": "builtins"},
    "monitoring": {"test_c_return_count": "evaluator"},  # it fails, and its tool stays
}


def expected(module: str, test: str, mode: str) -> Expected | None:
    """The entry that says why a difference in this test is expected, None if there is none."""
    name = test.removeprefix(f"test.test_{module}.")
    return next((e for e in EXPECTED if e.module == module and mode in e.modes and fnmatch.fnmatchcase(name, e.test)), None)
