"""Parsers whose options are written out as texts: getopt and docopt."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from tfjob_magic.core.parsers.parser import Call, Parser, mentioned, text_of

if TYPE_CHECKING:
    from tfjob_magic.core.syntax import Program


def getopt(program: Program, calls: list[Call]) -> Parser | None:
    """Return getopt's parser: the long options of its third argument."""
    for call in calls:
        if call.name in {"getopt.getopt", "getopt.gnu_getopt"}:
            given = call.given(2, "longopts")
            if given is not None and not isinstance(given, ast.List | ast.Tuple):
                return Parser("getopt", mentioned(program), abbreviates=True, guessed=True)
            texts = [text_of(part) or "" for part in given.elts] if given is not None else []
            return Parser("getopt", {f"--{t.rstrip('=')}" for t in texts}, abbreviates=True)
    return None


def docopt(program: Program, calls: list[Call]) -> Parser | None:
    """Return docopt's parser: the options that the program's texts name."""
    if not any(call.name == "docopt.docopt" for call in calls):
        return None
    texts = [text_of(node) or "" for _, node in program.nodes()]
    declared = {option for text in texts for option in re.findall(r"--[\w-]+", text)}
    return Parser("docopt", declared, abbreviates=True)
