"""Absl's registry of flags, one per process, which TensorFlow's `flags` wraps."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tfjob_magic.core.parsers.objects import reads_argv
from tfjob_magic.core.parsers.parser import Call, Parser, escapes, mentioned, text_of
from tfjob_magic.core.syntax import Module, Program, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KIND = "absl"
KIND_OF_THE_REST = "absl, on what argparse left"


def find(program: Program, calls: list[Call]) -> Parser | None:
    """Return the registry, by whichever door it is parsed; None where it is not.

    `absl.app.run` and `FLAGS(argv)` refuse what is not declared. `tf.compat.v1.app.run` does not,
    unless a flag is read before it: TensorFlow's `FLAGS` then parses at once, strictly.
    """
    runs = [call for call in calls if _runs(call)]
    direct = [call for call in calls if _is_flags(call.name) and reads_argv(call.given(0, "argv"))]
    reads = list(_reads(program, program.nodes()))
    strict = [call.owner.startswith("absl") for call in runs]
    strict += [not call.has("known_only", value=True) for call in direct]
    wrapped = any(
        (program.resolve(module, node.value) or "").startswith("tensorflow")
        for module, node in reads
    )
    if wrapped and (not strict or any(_reads(program, _before_run(program)))):
        strict.append(True)
    if not strict:
        return None
    parser = Parser(KIND, declared(calls), strict=any(strict))
    parser.declared |= {f"--{node.attr}" for _, node in reads}  # may be a library's
    computed = any(_defines(call) and _name(call) is None for call in calls)
    if computed or escapes(program, _is_define):
        parser.declared |= mentioned(program)
        parser.guessed = True
    if any(call.given(1, "argv") is not None for call in runs):
        parser.kind = KIND_OF_THE_REST
    return parser


def _defines(call: Call) -> bool:
    return _is_define(call.name)


def _is_define(name: str) -> bool:
    owner, _, last = name.rpartition(".")
    return last.startswith("DEFINE") and owner.endswith("flags")


def _name(call: Call) -> str | None:
    """Return the name of the flag that a call defines; None for a computed one."""
    at = int(call.last in {"DEFINE", "DEFINE_flag"})
    return text_of(call.given(at, "name")) or text_of(call.keyword("flag_name"))


def declared(calls: list[Call]) -> set[str]:
    """Return the flags that are defined under a name written out."""
    return {f"--{name}" for call in calls if _defines(call) and (name := _name(call))}


def _runs(call: Call) -> bool:
    """Say whether a call is absl's or TensorFlow's `app.run`, parsing more than a program name."""
    if not (call.owner.endswith("app") and call.last in {"run", "parse_flags_with_usage"}):
        return False
    argv = call.given(1, "argv")
    only_name = isinstance(argv, ast.List) and len(argv.elts) <= 1
    return call.keyword("flags_parser") is None and not only_name


def _is_flags(name: str) -> bool:
    return name.endswith("flags.FLAGS")


def _reads(
    program: Program, nodes: Iterable[tuple[Module, ast.AST]]
) -> Iterator[tuple[Module, ast.Attribute]]:
    """Yield the nodes that read one flag's value, `FLAGS.job_name`; a method call does not."""
    called: set[int] = set()
    for module, node in nodes:
        if isinstance(node, ast.Call):
            called.add(id(node.func))
        elif (
            isinstance(node, ast.Attribute)
            and id(node) not in called
            and isinstance(node.ctx, ast.Load)
            and _is_flags(program.resolve(module, node.value) or "")
        ):
            yield module, node


def _before_run(program: Program) -> Iterator[tuple[Module, ast.AST]]:
    """Yield the nodes that run before or without `app.run`: on import, and what that calls."""
    seen: set[int] = set()
    waiting: list[tuple[Module, ast.AST]] = []
    for module in program.modules.values():
        units = [unit for same in module.units.values() for unit in same]
        at_once = [part for unit in units for part in _at_definition(unit)]
        waiting.extend((module, node) for node in (*module.statements, *at_once))
    while waiting:
        module, node = waiting.pop()
        yield module, node
        if isinstance(node, ast.Call):
            found = program.unit(module, node.func)
            if found is not None and id(found[1]) not in seen:
                seen.add(id(found[1]))
                waiting.extend((found[0], statement) for statement in found[1].body)
        if isinstance(node, Unit):
            waiting.extend((module, part) for part in _at_definition(node))
        elif not isinstance(node, ast.Lambda):
            waiting.extend((module, child) for child in ast.iter_child_nodes(node))


def _at_definition(unit: Unit) -> list[ast.AST]:
    """Return what runs when a function or class is defined, not when it is called."""
    if isinstance(unit, ast.ClassDef):
        return [*unit.decorator_list, *unit.body]
    defaults = [default for default in unit.args.kw_defaults if default is not None]
    return [*unit.decorator_list, *unit.args.defaults, *defaults]
