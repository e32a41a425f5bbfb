"""Parsers that are objects, to which options are added: argparse, optparse and their kin."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tfjob_magic.core.parsers.parser import Call, Parser, escapes, mentioned, text_of

if TYPE_CHECKING:
    from tfjob_magic.core.syntax import Program

_PARSE_STRICTLY = {"parse_args", "parse_intermixed_args", "parse_args_into_dataclasses"}
_PARSE_KNOWN = {"parse_known_args", "parse_known_intermixed_args"}
_ADD = {"add_argument", "add_option", "make_option", "add"}


def find(program: Program, calls: list[Call]) -> Parser | None:
    """Return the parser of all such objects together; None where nothing is parsed.

    A subcommand's options do not count: the cluster flags come before its name.
    """
    parses = [call for call in calls if _parses(program, call)]
    if not parses:
        return None
    parser = Parser("argparse", abbreviates=True)
    parser.strict = any(call.last in _PARSE_STRICTLY for call in parses)
    subcommands = _subcommands(program)
    for call in calls:
        _settle(parser, call)
        if call.last in _ADD and (call.module.path, call.owner) not in subcommands:
            _add(parser, call)
    parser.guessed = parser.guessed or escapes(program, _adds)
    if parser.guessed:
        parser.declared |= mentioned(program)
    return parser


def reads_argv(given: ast.expr | None) -> bool:
    """Say whether what is parsed is the command line, not a list written in the code."""
    if isinstance(given, ast.List | ast.Tuple):
        return not all(isinstance(part, ast.Constant) for part in given.elts)
    return True


def _adds(name: str) -> bool:
    return name.rpartition(".")[2] in _ADD - {"add"}  # an `add` may be any set's


def _parses(program: Program, call: Call) -> bool:
    return (
        call.last in _PARSE_STRICTLY | _PARSE_KNOWN
        and isinstance(call.node.func, ast.Attribute)
        and program.unit(call.module, call.node.func) is None  # the program's own function
        and reads_argv(call.given(0, "args"))
        and not call.has("return_remaining_strings", value=True)
    )


def _settle(parser: Parser, call: Call) -> None:
    """Take note of what a call says about the parser as a whole."""
    if call.name == "optparse.OptionParser":
        parser.kind = "optparse"
    elif call.last == "add_subparsers":
        parser.swallows = True
    elif call.last == "HfArgumentParser":  # its options are the fields of dataclasses
        parser.guessed = True
    if call.last.endswith("Parser") and call.has("allow_abbrev", value=False):
        parser.abbreviates = False


def _add(parser: Parser, call: Call) -> None:
    """Add the options of one call."""
    parser.declared.update(call.options)
    if call.last == "add":  # of a set, more often than of ConfigArgParse
        return
    if any(text_of(argument) is None for argument in call.node.args):
        parser.guessed = True
    elif call.node.args and not call.options:
        parser.swallows = True


def _subcommands(program: Program) -> set[tuple[str, str]]:
    """Return the variables, with their modules, that hold a subcommand's parser."""
    return {
        (module.path, target.id)
        for module, node in program.nodes()
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "add_parser"
        for target in node.targets
        if isinstance(target, ast.Name)
    }
