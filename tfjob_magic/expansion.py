"""A magic line as words: quoted as in a shell, `{expressions}` in the job parameters alone."""

from __future__ import annotations

import ast
import builtins
import io
import re
import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING

from tfjob_magic.core.words import lexer
from tfjob_magic.errors import InvalidJobError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

_QUANTIFIER = re.compile(r"\d*,?\d*")  # {8} or {2,5}: of a regular expression, not of Python
_JSON_NAMES = frozenset({"true", "false", "null"})
_LONGEST_SHOWN = 80  # characters of an expression in a message
_HELD = re.compile("\0(\\d+)\0")  # an argument holds no NUL, so that one can stand for a value


def halves(line: str) -> tuple[list[str], str | None]:
    """Split a line into the words before a lone `--` and the text after it, None without one."""
    text = io.StringIO(line)
    words: list[str] = []
    try:
        for word in lexer(text):
            if word == "--":
                return words, text.read()
            words.append(word)
    except ValueError as error:
        raise _unclosed(error) from None
    return words, None


def parameters(text: str, namespace: Mapping[str, object]) -> list[str]:
    """Split job parameters as a shell would, and evaluate the `{expressions}` in them.

    A value is one argument, or a part of one, whatever spaces and quotes it has. `{{` and `}}`
    are braces; so are those around digits (a regular expression's) and around JSON.
    """
    held: list[str] = []

    def hold(value: str) -> str:
        held.append(value)
        return f"\0{len(held) - 1}\0"

    pieces: list[str] = []
    quote = ""
    begins = True  # whether a word begins here
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\" and quote != "'":
            begins = False
            pieces.append(text[position : position + 2])
            position += 2
            continue
        if text[position : position + 2] in {"{{", "}}"}:
            begins = False
            pieces.append(hold(character))
            position += 2
            continue
        if character == "{":
            begins = False
            value, position = _braced(text, position, quote, namespace)
            pieces.append(hold(value))
            continue
        if character == quote:
            quote = ""
        elif character in "'\"" and not quote:
            quote = character
        elif character == "#" and begins:
            raise _comment(text[position:])
        begins = not quote and character.isspace()
        pieces.append("" if character == "\0" else character)
        position += 1
    try:
        words = shlex.split("".join(pieces))
    except ValueError as error:
        raise _unclosed(error) from None
    return [_HELD.sub(lambda number: held[int(number[1])], word) for word in words]


def _braced(text: str, start: int, quote: str, namespace: Mapping[str, object]) -> tuple[str, int]:
    """Return what stands for the brace at `start`, and where the text goes on."""
    end = text.find("}", start)
    while end >= 0:
        inner = text[start + 1 : end]
        if quote == '"':
            inner = re.sub(r'\\(["\\$`])', r"\1", inner)
        if _QUANTIFIER.fullmatch(inner) or _is_json(inner):
            return "{" + inner + "}", end + 1
        if _is_expression(inner):
            return _value(inner, namespace), end + 1
        end = text.find("}", end + 1)
    shown = text[start : text.find("}", start) + 1] or text[start:]
    raise _mistake(
        f"`{_short(shown)}` is not a Python expression in braces; write {{{{ for a brace itself"
    )


def _is_expression(inner: str) -> bool:
    try:
        ast.parse(inner.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return False
    except (RecursionError, MemoryError):  # too long; `_value` says so
        return True
    return True


def _is_json(inner: str) -> bool:
    try:
        display = ast.parse("{" + inner + "}", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return isinstance(display, ast.Dict) and all(
        node.id in _JSON_NAMES for node in ast.walk(display) if isinstance(node, ast.Name)
    )


def _value(inner: str, namespace: Mapping[str, object]) -> str:
    """Evaluate an expression. Whatever it raises is a refusal, except an interrupt."""
    shown = _short("{" + inner + "}")
    try:
        code = compile(inner.strip(), "<job parameters>", "eval")
        return str(eval(code, dict(namespace)))  # noqa: S307 - the user's code in the user's kernel
    except KeyboardInterrupt:
        raise
    except NameError as error:
        name = error.name or inner
        near = get_close_matches(name, [*namespace, *vars(builtins)], n=1)
        remedy = f"did you mean {near[0]}?" if near else "define it in a cell before"
        raise _mistake(f"`{shown}` needs `{name}`, which is not defined; {remedy}") from None
    except BaseException as error:  # noqa: BLE001 - SystemExit too: a line ends no kernel
        raise _mistake(f"`{shown}` could not be evaluated: {_said(error)}") from None


def _said(error: BaseException) -> str:
    """Say an exception in a line, as the last line of a traceback does."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - it is the user's class
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _comment(rest: str) -> InvalidJobError:
    word = _short(rest.split(maxsplit=1)[0])
    return _mistake(
        f"`{word}` looks like a comment, and this line has none; remove it, or quote it if it is "
        f"meant: '{word}'"
    )


def _mistake(message: str) -> InvalidJobError:
    return InvalidJobError([Problem("parameters", message)])


def _unclosed(error: ValueError) -> InvalidJobError:
    what = "ends in a backslash" if "escaped" in str(error) else "has a quote that is never closed"
    remedy = "close it, or put a backslash before a quote that is meant as such"
    return InvalidJobError([Problem("line", f"the line {what}; {remedy}")])
