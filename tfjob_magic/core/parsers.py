"""How a program reads its command line, and which flags it would take.

What each library refuses was measured on absl 2.5, argparse, optparse and getopt of Python 3.11,
click 8, typer, fire, docopt and TensorFlow 2.21; tests run the same cases for real.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tfjob_magic.core.syntax import Module, Program, Unit

PARSES = {
    "parse_args": True,  # strict
    "parse_intermixed_args": True,
    "parse_args_into_dataclasses": True,
    "parse_known_args": False,
    "parse_known_intermixed_args": False,
}
DECLARES = {"add_argument", "add_option", "make_option", "add"}
LENIENT_CONTEXT = {"ignore_unknown_options", "allow_extra_args"}


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
        """Whether the parser would neither refuse nor misread `flag` and its value."""
        if flag in self.declared:
            return True
        longer = [option for option in self.declared if option.startswith(flag)]
        if self.abbreviates and longer:
            return len(longer) == 1
        return not self.strict and not self.swallows


def text_of(node: ast.expr | None) -> str | None:
    """The value of a string constant."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def keyword(call: ast.Call, *names: str) -> ast.expr | None:
    """The value of the first of a call's keywords that is there."""
    return next((k.value for k in call.keywords if k.arg in names), None)


def is_true(node: ast.expr | None) -> bool:
    """Whether an expression is the constant True (or 1)."""
    return isinstance(node, ast.Constant) and bool(node.value)


def _options(call: ast.Call) -> list[str]:
    return [t for a in call.args if (t := text_of(a)) is not None and t.startswith("-")]


def mentioned(program: Program) -> set[str]:
    """The names that strings, fields and attributes in the code mention, as options."""
    found = set()
    for _, node in program.nodes():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.lstrip("-"))
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {f"--{name}" for name in found if name.isidentifier()}


def parsers(program: Program) -> list[Parser]:
    """Every reading of the command line by the program; empty when it has no parser."""
    calls = [
        (module, node, program.resolve(module, node.func) or _attribute(node.func))
        for module, node in program.nodes()
        if isinstance(node, ast.Call)
    ]
    objects = _objects(program, calls)
    absl = _absl(program, calls)
    if objects is not None and absl is not None:
        if any(name.endswith("argparse_flags.ArgumentParser") for _, _, name in calls):
            objects.declared |= absl.declared
        if absl.kind == "absl on what is left":
            absl.declared |= objects.declared
    found = [objects, absl, _click(program, calls), _typer(program), _fire(program, calls)]
    found += [_getopt(calls), _docopt(program, calls)]
    return [parser for parser in found if parser is not None]


Calls = list[tuple[Module, ast.Call, str]]


def _attribute(node: ast.expr) -> str:
    """`.name` for an attribute of something that has no name (`make().parse_args`)."""
    return f".{node.attr}" if isinstance(node, ast.Attribute) else ""


def _reads_argv(call: ast.Call) -> bool:
    """Whether a parse call reads the command line rather than a list written in the code."""
    given = call.args[0] if call.args else keyword(call, "args")
    if isinstance(given, ast.List | ast.Tuple):
        return not all(isinstance(part, ast.Constant) for part in given.elts)
    return True


def _objects(program: Program, calls: Calls) -> Parser | None:
    """Parse with argparse and its kin: objects that options are added to."""
    parses = [
        PARSES[name.rpartition(".")[2]]
        for module, call, name in calls
        if name.rpartition(".")[2] in PARSES
        and isinstance(call.func, ast.Attribute)
        and program.unit(module, call.func) is None
        and _reads_argv(call)
        and not is_true(keyword(call, "return_remaining_strings"))
    ]
    if not parses:
        return None
    parser = Parser("argparse", strict=any(parses), abbreviates=True)
    commands = _commands(program)
    for module, call, name in calls:
        last = name.rpartition(".")[2]
        receiver = name.rpartition(".")[0]
        if name in {"optparse.OptionParser", "optparse.make_option"}:
            parser.kind = "optparse"
        if last == "add_subparsers":
            parser.swallows = True
        if last.endswith("Parser") and _is_false(keyword(call, "allow_abbrev")):
            parser.abbreviates = False
        if last == "HfArgumentParser":
            parser.guessed = True
        if last not in DECLARES or (module.path, receiver) in commands:
            continue
        options = _options(call)
        parser.declared.update(options)
        if options or last == "add":
            continue
        first = text_of(call.args[0]) if call.args else None
        if first is not None:
            parser.swallows = True
        elif call.args and not isinstance(call.args[0], ast.Constant):
            parser.guessed = True
    if parser.guessed:
        parser.declared |= mentioned(program)
    return parser


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _commands(program: Program) -> set[tuple[str, str]]:
    """The variables, by module, that hold a subcommand's parser: our flags come before it."""
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


def _is_flags(name: str) -> bool:
    """Whether a dotted name is absl's registry of flags, TensorFlow's wrapper of it included."""
    return name.endswith("flags.FLAGS")


def _absl(program: Program, calls: Calls) -> Parser | None:
    """absl's one registry of flags, by whichever door it is parsed.

    `absl.app.run` and `FLAGS(argv)` refuse what is not declared. `tf.compat.v1.app.run` does not,
    unless a flag is read before it: TensorFlow's `FLAGS` then parses at once, strictly.
    """
    declared: set[str] = set()
    strict: list[bool] = []
    guessed = rest = False
    for _, call, name in calls:
        owner, _, last = name.rpartition(".")
        if last.startswith("DEFINE") and owner.endswith("flags"):
            at = 1 if last in {"DEFINE", "DEFINE_flag"} else 0
            given = call.args[at] if len(call.args) > at else keyword(call, "name", "flag_name")
            option = text_of(given)
            guessed = guessed or option is None
            declared.update({f"--{option}"} if option else ())
        elif owner.endswith("app") and last in {"run", "parse_flags_with_usage"}:
            argv = call.args[1] if len(call.args) > 1 else keyword(call, "argv")
            if keyword(call, "flags_parser") is None and (argv is None or _forwards(argv)):
                rest = rest or argv is not None
                strict.append(owner.startswith("absl"))
        elif _is_flags(name):
            strict.append(not is_true(keyword(call, "known_only")))
    reads = [(module, node) for module, node in _reads(program, (n for n in program.nodes()))]
    declared.update(f"--{node.attr}" for _, node in reads)
    of_tensorflow = any(
        (program.resolve(module, node.value) or "").startswith("tensorflow")
        for module, node in reads
    )
    if of_tensorflow and (not strict or any(_reads(program, _straight(program)))):
        strict.append(True)
    if not strict:
        return None
    if guessed:
        declared |= mentioned(program)
    kind = "absl on what is left" if rest else "absl"
    return Parser(kind, declared, strict=any(strict), guessed=guessed)


def _forwards(argv: ast.expr) -> bool:
    """Whether an argv handed on holds more than the program's name."""
    return not (isinstance(argv, ast.List) and len(argv.elts) < 2)  # noqa: PLR2004


def _reads(
    program: Program, nodes: Iterator[tuple[Module, ast.AST]]
) -> Iterator[tuple[Module, ast.Attribute]]:
    """The nodes that read one flag's value, `FLAGS.job_name`."""
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


def _straight(program: Program) -> Iterator[tuple[Module, ast.AST]]:
    """The nodes that run before or without `app.run`: statements, and what they call by name."""
    seen: set[int] = set()
    waiting: list[tuple[Module, ast.AST]] = [
        (module, statement)
        for module in program.modules.values()
        for statement in reversed(module.statements)
    ]
    while waiting:
        module, node = waiting.pop()
        yield module, node
        if isinstance(node, Unit | ast.Lambda):
            continue
        if isinstance(node, ast.Call):
            unit = program.unit(module, node.func)
            if unit is not None and id(unit) not in seen:
                seen.add(id(unit))
                waiting.extend((module, statement) for statement in unit.body)
        waiting.extend((module, child) for child in reversed(list(ast.iter_child_nodes(node))))


def _click(program: Program, calls: Calls) -> Parser | None:
    """click: the options of the group where there is one (ours come before its command)."""
    commands: list[tuple[bool, Module, Unit]] = []
    for module, node in program.nodes():
        if isinstance(node, Unit):
            for decorator in node.decorator_list:
                target = decorator.func if isinstance(decorator, ast.Call) else decorator
                name = program.resolve(module, target) or ""
                if name in {"click.command", "click.group"}:
                    commands.append((name == "click.group", module, node))
    if not commands:
        return None
    groups = [entry for entry in commands if entry[0]]
    chosen = groups or commands
    parser = Parser("click")
    in_decorators: set[int] = set()
    for _, node in program.nodes():
        if isinstance(node, Unit):
            in_decorators.update(id(d) for d in node.decorator_list)
    wanted = {id(d) for _, _, unit in chosen for d in unit.decorator_list}
    ignores: set[str] = set()
    variadic = False
    for _, call, name in calls:
        if id(call) in in_decorators and id(call) not in wanted:
            continue
        if name == "click.option":
            options = _options(call)
            parser.declared.update(part.strip() for o in options for part in o.split("/"))
            parser.guessed = parser.guessed or not options
        elif name == "click.argument":
            variadic = variadic or keyword(call, "nargs") is not None
        elif id(call) in wanted:
            ignores |= _context(call)
    lenient = "ignore_unknown_options" in ignores and (variadic or "allow_extra_args" in ignores)
    parser.strict = not lenient or bool(groups)
    if parser.guessed:
        parser.declared |= mentioned(program)
    return parser


def _context(call: ast.Call) -> set[str]:
    """The leniencies that a command's `context_settings` switch on."""
    settings = keyword(call, "context_settings")
    if isinstance(settings, ast.Dict):
        pairs = zip(settings.keys, settings.values, strict=True)
        return {str(text_of(k)) for k, v in pairs if is_true(v)} & LENIENT_CONTEXT
    if isinstance(settings, ast.Call):
        return {str(k.arg) for k in settings.keywords if is_true(k.value)} & LENIENT_CONTEXT
    return set()


def _typer(program: Program) -> Parser | None:
    """Typer makes `--job-name` of a parameter, so only a name written out has our underscore."""
    if not any(
        isinstance(node, ast.Call)
        and (program.resolve(module, node.func) or "") in {"typer.run", "typer.Typer"}
        for module, node in program.nodes()
    ):
        return None
    parser = Parser("typer")
    for module, node in program.nodes():
        if isinstance(node, ast.Call) and program.resolve(module, node.func) == "typer.Option":
            parser.declared.update(_options(node))
    return parser


def _fire(program: Program, calls: Calls) -> Parser | None:
    """Fire: the parameters of the function, or of the class's constructor."""
    for module, call, name in calls:
        if name != "fire.Fire":
            continue
        parser = Parser("fire")
        given = call.args[0] if call.args else keyword(call, "component")
        unit = program.unit(module, given) if given is not None else None
        if isinstance(unit, ast.ClassDef):
            makers = [n for n in unit.body if isinstance(n, Unit) and n.name == "__init__"]
            unit = makers[0] if makers else None
        if unit is not None and not isinstance(unit, ast.ClassDef):
            names = [*unit.args.posonlyargs, *unit.args.args, *unit.args.kwonlyargs]
            parser.declared = {f"--{a.arg}" for a in names}
            parser.strict = unit.args.kwarg is None
        return parser
    return None


def _getopt(calls: Calls) -> Parser | None:
    """getopt: the long options of its third argument."""
    for _, call, name in calls:
        if name not in {"getopt.getopt", "getopt.gnu_getopt"}:
            continue
        given = call.args[2] if len(call.args) > 2 else keyword(call, "longopts")  # noqa: PLR2004
        parser = Parser("getopt", abbreviates=True)
        if isinstance(given, ast.List | ast.Tuple):
            texts = [t for part in given.elts if (t := text_of(part)) is not None]
            parser.declared = {f"--{t.rstrip('=')}" for t in texts}
        parser.guessed = given is not None and not isinstance(given, ast.List | ast.Tuple)
        return parser
    return None


def _docopt(program: Program, calls: Calls) -> Parser | None:
    """Docopt: the options that its usage text names."""
    if not any(name in {"docopt.docopt", "docopt.Dict"} for _, _, name in calls):
        return None
    parser = Parser("docopt", abbreviates=True)
    for _, node in program.nodes():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            parser.declared.update(re.findall(r"--[\w-]+", node.value))
    return parser
