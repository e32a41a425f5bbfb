"""How a program reads its command line, found in its text.

What each library refuses was measured on absl 2.5, argparse, optparse and getopt of Python 3.11,
click 8, Typer, Fire, docopt and TensorFlow 2.21; the tests run such programs for real.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_magic.core.parsers import functions, objects, registry, texts
from tfjob_magic.core.parsers.parser import Parser, calls

if TYPE_CHECKING:
    from tfjob_magic.core.syntax import Program

__all__ = ["Parser", "find"]


def find(program: Program) -> list[Parser]:
    """Return every reading of the command line by the program; empty when it has no parser."""
    made = calls(program)
    added, flags = objects.find(program, made), registry.find(program, made)
    if added is not None and any(call.owner.endswith("argparse_flags") for call in made):
        added.declared |= registry.declared(made)
    if added is not None and flags is not None and flags.kind == registry.KIND_OF_THE_REST:
        flags.declared |= added.declared
    every = (
        added,
        flags,
        functions.click(program, made),
        functions.typer(program, made),
        functions.fire(program, made),
        texts.getopt(program, made),
        texts.docopt(program, made),
    )
    return [parser for parser in every if parser is not None]
