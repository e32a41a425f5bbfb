"""A Parser: one reading of the command line by a program; and the calls that make one."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_magic.core.syntax import Module, Program


@dataclass
class Parser:
    """One reading of the command line: the options it declares and how it treats others.

    `declared` holds options as written (`--job_name`). A `strict` parser refuses others;
    `abbreviates`: a unique prefix will do; `swallows`: an unknown flag's value would be taken for
    a positional argument; `guessed`: some options have computed names, and `declared` holds those
    whose names the code mentions.
    """

    kind: str
    declared: set[str] = field(default_factory=set)
    strict: bool = True
    abbreviates: bool = False
    swallows: bool = False
    guessed: bool = False

    def takes(self, flag: str) -> bool:
        """Say whether the parser would neither refuse nor misread `flag` and its value."""
        if flag in self.declared:
            return True
        longer = [option for option in self.declared if option.startswith(flag)]
        if self.abbreviates and longer:
            return len(longer) == 1
        return not self.strict and not self.swallows


@dataclass(frozen=True)
class Call:
    """A call in code that may run, and the dotted name of what is called.

    Of what has no name, as in `make().parse_args()`, the name is the attribute's: `.parse_args`.
    """

    module: Module
    node: ast.Call
    name: str

    @property
    def owner(self) -> str:
        """What the name's last part belongs to."""
        return self.name.rpartition(".")[0]

    @property
    def last(self) -> str:
        """The name's last part."""
        return self.name.rpartition(".")[2]

    def given(self, position: int, *keywords: str) -> ast.expr | None:
        """Return the argument at a position, or of the first of the keywords that is there."""
        if len(self.node.args) > position:
            return self.node.args[position]
        return self.keyword(*keywords)

    def keyword(self, *names: str) -> ast.expr | None:
        """Return the argument of the first of these keywords that is there."""
        return next((k.value for k in self.node.keywords if k.arg in names), None)

    def has(self, keyword: str, value: object) -> bool:
        """Say whether a keyword is given this constant."""
        return any(
            k.arg == keyword and isinstance(k.value, ast.Constant) and k.value.value == value
            for k in self.node.keywords
        )

    @property
    def options(self) -> list[str]:
        """The options among its arguments, `-n` and `--name`."""
        texts = [text_of(argument) for argument in self.node.args]
        return [text for text in texts if text is not None and text.startswith("-")]


def calls(program: Program) -> list[Call]:
    """Return every call in the code that may run."""
    return [
        Call(module, node, program.resolve(module, node.func) or _attribute(node.func))
        for module, node in program.nodes()
        if isinstance(node, ast.Call)
    ]


def _attribute(node: ast.expr) -> str:
    return f".{node.attr}" if isinstance(node, ast.Attribute) else ""


def escapes(program: Program, declares: Callable[[str], bool]) -> bool:
    """Say whether what declares an option is used as a value: then who calls it is unknown.

    `declares` judges a dotted name. A plain `add = parser.add_argument` does not count, since
    calls of `add` are followed; `partial(parser.add_argument, …)` and a getattr do.
    """
    followed: set[int] = set()
    for module, node in program.nodes():
        if isinstance(node, ast.Call):
            followed.add(id(node.func))
        elif isinstance(node, ast.Assign) and all(
            isinstance(target, ast.Name) and declares(program.resolve(module, target) or "")
            for target in node.targets
        ):
            followed.add(id(node.value))
        elif isinstance(node, ast.Attribute | ast.Name) and id(node) not in followed:
            loaded = isinstance(node.ctx, ast.Load)
            if loaded and declares(program.resolve(module, node) or _attribute(node)):
                return True
        elif (text := text_of(node)) is not None and declares(f".{text}"):
            return True
    return False


def text_of(node: ast.AST | None) -> str | None:
    """Return the value of a string constant."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def mentioned(program: Program) -> set[str]:
    """Return, as options, the names that strings, fields and attributes in the code mention."""
    found = set()
    for _, node in program.nodes():
        if (text := text_of(node)) is not None:
            found.add(text.lstrip("-").rstrip("="))
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {f"--{name}" for name in found if name.isidentifier()}
