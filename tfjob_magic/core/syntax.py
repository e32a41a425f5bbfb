"""Python sources as values: their trees, what they import, and which of their code runs."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Unit = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def tree(text: str) -> ast.Module | None:
    """Parse a text; None for what this Python cannot read (Python 2, say)."""
    with warnings.catch_warnings():  # an odd escape in the user's string is not our output
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def module_name(path: str) -> str:
    """Return the dotted name under which the file at a relative path is imported."""
    parts = path.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package(path: str) -> str:
    """Return the package that a file's relative imports start from; empty at the top."""
    return ".".join(path.split("/")[:-1])


def _origin(node: ast.ImportFrom, inside: str) -> str | None:
    """Return the module that a `from … import` reads; None where it leaves the code dir."""
    if not node.level:
        return node.module or ""
    parts = inside.split(".") if inside else []
    if node.level - 1 > len(parts):
        return None
    kept = parts[: len(parts) - (node.level - 1)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def imported(module: ast.Module, inside: str) -> list[str]:
    """Return the dotted names that a module of the package `inside` may import, in order.

    `from a import b` gives both `a` and `a.b`, since b may be a module.
    """
    found: dict[str, None] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found.update((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (origin := _origin(node, inside)) is not None:
            found.update({origin: None} if origin else {})
            dotted = (f"{origin}.{alias.name}".strip(".") for alias in node.names)
            found.update((name, None) for name in dotted if not name.endswith("*"))
    return list(found)


def chain(node: ast.expr) -> str | None:
    """Return `a.b.c` as text; None for anything but names and attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def is_main_guard(node: ast.stmt) -> bool:
    """Say whether this is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


@dataclass(frozen=True)
class Module:
    """One source: its statements that run on import, its functions and classes, its names.

    `names` maps a name to the dotted thing it stands for, through imports and plain assignments;
    `stars` are the modules of which everything is imported.
    """

    path: str
    statements: tuple[ast.stmt, ...]
    units: dict[str, list[Unit]]
    names: dict[str, str]
    stars: tuple[str, ...]

    def dotted(self, node: ast.expr) -> str | None:
        """Return what an expression names, with this module's aliases resolved."""
        return _through(self.names, node)


_MOST_IMPORTS = 8  # of a name from module to module; a cycle ends here


def _through(names: dict[str, str], node: ast.expr) -> str | None:
    text = chain(node)
    if text is None:
        return None
    head, dot, rest = text.partition(".")
    return names.get(head, head) + dot + rest


def _module(path: str, parsed: ast.Module, *, boot: bool) -> Module:
    units: dict[str, list[Unit]] = {}
    statements: list[ast.stmt] = []
    for statement in parsed.body:
        if isinstance(statement, Unit):
            units.setdefault(statement.name, []).append(statement)
        elif boot or not is_main_guard(statement):
            statements.append(statement)
    imports = [node for node in ast.walk(parsed) if isinstance(node, ast.ImportFrom)]
    origins = [(_origin(node, package(path)) or "", node) for node in imports]
    stars = [origin for origin, node in origins if node.names[0].name == "*"]
    names = dict(_imports(parsed, origins))
    for node in ast.walk(parsed):
        if isinstance(node, ast.Assign) and (value := _through(names, node.value)) is not None:
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id != value.partition(".")[0]:
                    names.setdefault(target.id, value)
    for name in units:  # a definition of the module's own hides an import of the name
        names.pop(name, None)
    return Module(path, tuple(statements), units, names, tuple(stars))


def _imports(
    parsed: ast.Module, origins: list[tuple[str, ast.ImportFrom]]
) -> Iterator[tuple[str, str]]:
    """Yield the names that a module's imports bind, and what they stand for."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
    for origin, imported_from in origins:
        for alias in imported_from.names:
            yield alias.asname or alias.name, f"{origin}.{alias.name}".strip(".")


@dataclass(frozen=True)
class Program:
    """The modules of a boot file (its own is `__main__`), and of each the code that may run."""

    modules: dict[str, Module]
    live: dict[str, list[ast.stmt]]

    def nodes(self) -> Iterator[tuple[Module, ast.AST]]:
        """Yield every node of the code that may run, with its module."""
        for name, statements in self.live.items():
            for statement in statements:
                for node in ast.walk(statement):
                    yield self.modules[name], node

    def resolve(self, module: Module, node: ast.expr) -> str | None:
        """Return what an expression names, followed through the program's own modules."""
        text = module.dotted(node)
        for _ in range(_MOST_IMPORTS):
            owner, _, name = (text or "").rpartition(".")
            holder = self.modules.get(owner)
            if holder is None or name not in holder.names:
                return text
            text = holder.names[name]
        return text

    def unit(self, module: Module, node: ast.expr) -> tuple[Module, Unit] | None:
        """Return the program's own function or class that an expression names."""
        owner, _, name = (self.resolve(module, node) or "").rpartition(".")
        holder = self.modules.get(owner) if owner else module
        return (holder, holder.units[name][-1]) if holder and name in holder.units else None


def program(boot_file: str, sources: Mapping[str, str]) -> Program | None:
    """Return the program that `boot_file` starts; None where it cannot be read as Python 3.

    A function counts as running when code that runs names it, so that the parser in another
    module's `if __name__ == "__main__":` is not taken for the boot file's.
    """
    modules: dict[str, Module] = {}
    for path, text in sources.items():
        parsed = tree(text)
        if parsed is not None:
            boot = path == boot_file
            modules["__main__" if boot else module_name(path)] = _module(path, parsed, boot=boot)
    if "__main__" not in modules:
        return None
    result = Program(modules, {name: list(m.statements) for name, m in modules.items()})
    for name, module in modules.items():
        units = [unit for same in module.units.values() for unit in same]
        result.live[name] += [unit for unit in units if _runs_by_itself(module, unit)]
    _spread(result)
    return result


def _runs_by_itself(module: Module, unit: Unit) -> bool:
    """Say whether a decorator (other than click's own) may register the unit to be called."""
    decorators = [d.func if isinstance(d, ast.Call) else d for d in unit.decorator_list]
    return any(not (module.dotted(d) or "").startswith("click.") for d in decorators)


def _spread(of: Program) -> None:
    """Add what running code names to the code that may run, until there is no more."""
    waiting = [
        (name, statement) for name, statements in of.live.items() for statement in statements
    ]
    seen = {id(statement) for _, statement in waiting}
    while waiting:
        name, statement = waiting.pop()
        for node in ast.walk(statement):
            for owner, wanted in _named(of, name, node):
                for unit in of.modules[owner].units.get(wanted, []):
                    if id(unit) not in seen:
                        seen.add(id(unit))
                        of.live[owner].append(unit)
                        waiting.append((owner, unit))


def _named(of: Program, name: str, node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the (module, unit) pairs that a node of the module `name` may refer to."""
    module = of.modules[name]
    if isinstance(node, ast.Name) and node.id not in module.names:
        yield name, node.id
        yield from ((star, node.id) for star in module.stars if star in of.modules)
    elif isinstance(node, ast.Name | ast.Attribute):
        owner, _, unit = (of.resolve(module, node) or "").rpartition(".")
        if owner in of.modules:
            yield owner, unit
