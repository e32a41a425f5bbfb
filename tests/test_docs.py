"""What the documents say holds: options, links, and the commands that are marked to be run."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

from tfjob_magic import grammar

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
VERBS = ("run", "plan", "list", "show", "logs", "stop", "rm", "flavors")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
RUNNABLE = re.compile(r"<!-- run -->\n```console\n(.*?)```", re.DOTALL)


def grammar_options() -> set[str]:
    return set(OPTION.findall("\n".join([grammar.manual(), *map(grammar.usage, VERBS)])))


def tfjob_lines(text: str) -> list[str]:
    """Find the lines that show this project's commands: `%%tfjob …`, `%tfjob …`, `tfjob …`."""
    return re.findall(r"(?:^|[`$ ])(%{0,2}tfjob [^`\n]*)", text, re.MULTILINE)


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def runnable() -> list[tuple[str, str]]:
    return [(page.name, block) for page in PAGES for block in RUNNABLE.findall(page.read_text())]


def test_there_are_pages_and_commands_to_check():
    assert {"README.md", "usage.md", "modelarts.md", "limits.md", "troubleshooting.md"} <= {
        page.name for page in PAGES
    }
    assert runnable()


def test_every_option_of_the_grammar_is_in_the_usage_page():
    documented = set(OPTION.findall((ROOT / "docs" / "usage.md").read_text()))
    assert grammar_options() - {"--help"} <= documented


def test_every_option_that_the_usage_page_lists_is_in_the_grammar():
    page = (ROOT / "docs" / "usage.md").read_text()
    listed = set(re.findall(r"^\| `(--[a-z-]+)", page, re.MULTILINE))
    assert listed
    assert listed <= grammar_options()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_option_in_a_command_shown_is_in_the_grammar(page):
    shown = tfjob_lines(page.read_text())
    before_parameters = " ".join(line.partition(" -- ")[0] for line in shown)
    assert set(OPTION.findall(before_parameters)) <= grammar_options()


def test_every_verb_has_a_row_in_the_usage_page():
    page = (ROOT / "docs" / "usage.md").read_text()
    assert set(VERBS) == set(re.findall(r"^\| `tfjob (\w+)", page, re.MULTILINE))


def test_the_plan_in_the_usage_page_is_what_the_package_draws_now():
    drawn = runpy.run_path(str(ROOT / "docs" / "images" / "make.py"))
    page = (ROOT / "docs" / "usage.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"<!-- drawn -->\n```console\n\$ (.*?)```", page, re.DOTALL)
    command, _, plan = shown.partition("\n")
    assert command == drawn["COMMAND"]
    assert plan.strip() == drawn["drawn"]().strip()


def architecture() -> str:
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_layers_of_the_architecture_page_are_the_ones_that_are_checked():
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    (shown,) = re.findall(r"## Layers\n.*?```\n(.*?)```", architecture(), re.DOTALL)
    assert shown.splitlines() == [layer.replace("tfjob_magic.", "") for layer in layers]


def test_every_module_has_a_row_in_the_architecture_page():
    table = architecture().partition("## Modules\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_.]+)` \|", table, re.MULTILINE)
    package = ROOT / "tfjob_magic"
    modules = {
        ".".join(path.relative_to(package).with_suffix("").parts)
        for path in package.glob("**/*.py")
        if not path.stem.startswith("__") and path.parent.name != "parsers"
    }
    assert set(rows) == {*modules, "core.parsers"}
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_it(page):
    for link in LINK.findall(page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize(
    ("page", "block"), runnable(), ids=[f"{page}-{n}" for n, (page, _) in enumerate(runnable())]
)
def test_a_command_marked_to_be_run_prints_what_the_page_shows(page, block, tmp_path):
    environment = {
        **os.environ,
        "TFJOB_HOME": str(tmp_path / "runs"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
        done = subprocess.run(
            shlex.split(command),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        wanted = r"[\s\S]*".join(map(re.escape, shown.strip().split("…")))
        assert re.fullmatch(wanted, done.stdout.strip()), done.stdout


def test_the_picture_is_what_the_package_draws_now():
    drawn = runpy.run_path(str(ROOT / "docs" / "images" / "make.py"))
    shown = (ROOT / "docs" / "images" / "plan.svg").read_text(encoding="utf-8")
    assert shown == drawn["svg"](drawn["COMMAND"], drawn["drawn"]()), "run docs/images/make.py"
