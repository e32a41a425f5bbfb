"""Parsers made of functions: click's and Typer's commands, Fire's components."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tfjob_magic.core.parsers.parser import Call, Parser, escapes, mentioned, text_of
from tfjob_magic.core.syntax import Unit

if TYPE_CHECKING:
    from tfjob_magic.core.syntax import Module, Program


def click(program: Program, calls: list[Call]) -> Parser | None:
    """Return the parser of click's command.

    Where there is a group it is the group's: the cluster flags come before the command's name.
    """
    units = [(module, node) for module, node in program.nodes() if isinstance(node, Unit)]
    groups = [unit for module, unit in units if _decorated(program, module, unit, "click.group")]
    commands = [
        unit for module, unit in units if _decorated(program, module, unit, "click.command")
    ]
    if not groups and not commands:
        return None
    wanted = {id(d) for unit in groups or commands for d in unit.decorator_list}
    others = {id(d) for _, unit in units for d in unit.decorator_list} - wanted
    parser = Parser("click")
    takes_more = ignores = False
    for call in calls:
        if id(call.node) in others:  # another command's
            continue
        if call.name == "click.option":
            parser.declared |= {o.strip() for text in call.options for o in text.split("/")}
            parser.guessed = parser.guessed or not call.options
        elif call.name == "click.argument":
            takes_more = takes_more or call.keyword("nargs") is not None
        elif id(call.node) in wanted:
            ignores = ignores or "ignore_unknown_options" in _context(call)
            takes_more = takes_more or "allow_extra_args" in _context(call)
    parser.strict = bool(groups) or not (ignores and takes_more)
    parser.guessed = parser.guessed or escapes(program, "click.option".__eq__)
    if parser.guessed:
        parser.declared |= mentioned(program)
    return parser


def _decorated(program: Program, module: Module, unit: Unit, name: str) -> bool:
    targets = [d.func if isinstance(d, ast.Call) else d for d in unit.decorator_list]
    return any(program.resolve(module, target) == name for target in targets)


def _context(call: Call) -> set[str]:
    """Return what a command's `context_settings` switch on."""
    settings = call.keyword("context_settings")
    pairs: list[tuple[str | None, ast.expr]] = []
    if isinstance(settings, ast.Dict):
        keys = [text_of(key) for key in settings.keys]
        pairs = list(zip(keys, settings.values, strict=True))
    elif isinstance(settings, ast.Call):
        pairs = [(keyword.arg, keyword.value) for keyword in settings.keywords]
    return {str(key) for key, value in pairs if isinstance(value, ast.Constant) and value.value}


def typer(program: Program, calls: list[Call]) -> Parser | None:
    """Return Typer's parser: it makes `--job-name` of a parameter, so only names written out count.

    As with click, the options that the cluster flags could meet are those before a command.
    """
    if not any(call.name in {"typer.run", "typer.Typer"} for call in calls):
        return None
    options = [call for call in calls if call.name == "typer.Option"]
    settings = [_context(call) for call in calls]
    lenient = any({"ignore_unknown_options", "allow_extra_args"} <= s for s in settings)
    declared = {option for call in options for option in call.options}
    guessed = escapes(program, "typer.Option".__eq__)
    declared |= mentioned(program) if guessed else set()
    return Parser("typer", declared, strict=not lenient, guessed=guessed)


def fire(program: Program, calls: list[Call]) -> Parser | None:
    """Return Fire's parser: the parameters of the function, or of the class's constructor."""
    for call in calls:
        if call.name == "fire.Fire":
            component = call.given(0, "component")
            found = program.unit(call.module, component) if component is not None else None
            return _parameters(found[1] if found else None)
    return None


def _parameters(unit: Unit | None) -> Parser:
    if isinstance(unit, ast.ClassDef):
        makers = (n for n in unit.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
        unit = next(makers, None)
    if unit is None:  # a name of a command comes first
        return Parser("fire")
    named = [*unit.args.posonlyargs, *unit.args.args, *unit.args.kwonlyargs]
    declared = {f"--{argument.arg}" for argument in named}
    return Parser("fire", declared, strict=unit.args.kwarg is None)
