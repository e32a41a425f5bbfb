"""Every example in the help and in the documents is a command that is accepted as it stands."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from tfjob_magic import commands, grammar, notebook
from tfjob_magic.service.inprocess import Service

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
VARIABLES = {"data_dir": "/data", "path": "/a path"}
COMMAND = re.compile(r"(?:^ *|[`$] ?)(%{0,2}tfjob +[^`\n]+)", re.MULTILINE)
PARAMETERS = re.compile(r"`-- ([^`]+)`")
ROW = re.compile(r"^\| (?:`--[^`]*`)? *\| `(--[^`]*)` \|", re.MULTILINE)
A_TEMPLATE = re.compile(r"[\[<…]|\b(?:RUN|FILE|COMMAND|VERB)\b")  # it stands for many commands

# Spoken of, or no command of the grammar.
NAMES = {"tfjob run", "tfjob plan", "tfjob rm", "tfjob run train.py", "tfjob --version"}


def examples(text: str) -> list[str]:
    return [
        found
        for found in COMMAND.findall(text)
        if not A_TEMPLATE.search(found) and found not in NAMES
    ]


def told() -> dict[str, str]:
    """Give each example once, and where it is told."""
    texts = {
        "%%tfjob?": grammar.manual(),
        "tfjob -h": grammar.usage(None),
        **{str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES},
    }
    found = {line.strip(): place for place, text in texts.items() for line in examples(text)}
    usage = texts["docs/usage.md"]
    for options in ROW.findall(usage):
        small = "cpu-1c1g" if options == "--strict" else "cpu-8c32g"  # every machine has that
        flavor = "" if options.startswith("--flavor") else f"--flavor {small} "
        found[f"%%tfjob {flavor}{options}".replace("\\|", "|")] = "the tables of docs/usage.md"
    for parameters in PARAMETERS.findall(usage):
        found[f"%%tfjob --flavor cpu-8c32g -- {parameters}"] = "docs/usage.md"
    return found


TOLD = told()


def test_there_are_examples_of_every_kind() -> None:
    assert {"%%tfjob?", "README.md", "docs/usage.md"} <= set(TOLD.values())
    assert "tfjob run train.py --nodes 2 --flavor v100x8 -- --epochs 5" in TOLD
    assert "%%tfjob --flavor cpu-8c32g --nodes 4" in TOLD
    assert len(TOLD) > 40


@pytest.mark.parametrize("example", TOLD, ids=[f"{TOLD[text]}: {text}" for text in TOLD])
def test_an_example_is_accepted_as_it_stands(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print()\n")
    example = example.replace("/opt/tf/bin/python", sys.executable)
    kind, _, line = example.partition(" ")
    if kind == "%%tfjob":
        command = grammar.cell(line, VARIABLES)
        asked = notebook.submission(command, line, "print()", VARIABLES)
    else:
        read = grammar.line if kind == "%tfjob" else grammar.arguments
        words = (line, VARIABLES) if kind == "%tfjob" else (shlex.split(line),)
        command = read(*words)
        if command.verb not in {"run", "plan"}:
            return  # it is about runs, which are not here
        asked = commands.submission(command, sys.executable, {})
    assert Service(tmp_path / "runs").preview(asked).tasks
