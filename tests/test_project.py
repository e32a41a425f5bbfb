"""The project around the package: its tasks, and what an installation of it holds."""

import ast
import configparser
import email
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """Load the tasks, with the project's folder elsewhere and nothing really run."""
    spec = importlib.util.spec_from_file_location("tasks", ROOT / "tasks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in module.MADE_FROM:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    venv = tmp_path / ".venv"
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "VENV", venv)
    monkeypatch.setattr(module, "PYTHON", venv / "bin" / "python")
    monkeypatch.setattr(module, "STAMP", venv / "tfjob-stamp")
    return module


@pytest.fixture
def commands(tasks, monkeypatch):
    """Record what the tasks would have run; an environment that is made has an interpreter."""
    ran = []

    def run(*command):
        ran.append([str(word) for word in command])
        tasks.PYTHON.parent.mkdir(parents=True, exist_ok=True)
        tasks.PYTHON.touch()

    monkeypatch.setattr(tasks, "run", run)
    return ran


def unable(path: Path) -> Path:
    """Make an interpreter that cannot hold the project."""
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    return path


def test_the_tasks_need_nothing_but_the_standard_library():
    tree = ast.parse((ROOT / "tasks.py").read_text())
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.partition(".")[0])
    assert imported <= sys.stdlib_module_names


def test_the_tasks_parse_in_an_old_python():
    ast.parse((ROOT / "tasks.py").read_text(), feature_version=(3, 7))


def test_setting_up_twice_installs_once(tasks, commands):
    tasks.set_up()
    installed = len(commands)
    tasks.set_up()
    assert installed > 0
    assert len(commands) == installed


@pytest.mark.parametrize("name", ["pyproject.toml", "jupyter-config/tfjob_magic.json"])
def test_a_change_of_what_an_install_copies_sets_up_anew(tasks, commands, tmp_path, name):
    tasks.set_up()
    installed = len(commands)
    with (tmp_path / name).open("a") as file:
        file.write("\n")
    tasks.set_up()
    assert len(commands) == 2 * installed


def test_an_installation_that_was_broken_off_is_done_again(tasks, commands, monkeypatch):
    working = tasks.run

    def break_off(*command):
        working(*command)
        if "pip" in map(str, command):
            raise SystemExit(1)

    monkeypatch.setattr(tasks, "run", break_off)
    with pytest.raises(SystemExit):
        tasks.set_up()
    monkeypatch.setattr(tasks, "run", working)
    commands.clear()
    tasks.set_up()
    assert any("pip" in command for command in commands)


def test_an_interpreter_that_will_not_do_is_passed_over(tasks, tmp_path, monkeypatch):
    able = sys.executable
    monkeypatch.setattr(tasks.sys, "executable", str(unable(tmp_path / "python")))
    monkeypatch.setattr(tasks, "NEWER", (able,))
    assert tasks.able_python() == able


def test_a_python_that_is_too_old_is_told_in_one_sentence(tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks.sys, "executable", str(unable(tmp_path / "python")))
    monkeypatch.setattr(tasks, "NEWER", ())
    monkeypatch.setattr(tasks, "OLDEST", (99,))
    with pytest.raises(SystemExit, match=r"^tfjob-magic needs Python 3\.11 or later; this is"):
        tasks.able_python()


def test_a_missing_venv_module_is_told_with_the_command_that_adds_it(tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks.sys, "executable", str(unable(tmp_path / "python")))
    monkeypatch.setattr(tasks, "NEWER", ())
    with pytest.raises(SystemExit, match="apt-get install python3-venv"):
        tasks.able_python()


@pytest.mark.parametrize(("program", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_a_command_that_fails_ends_the_task_with_its_code(tasks, program, code):
    with pytest.raises(SystemExit) as ended:
        tasks.run("sh", "-c", program)
    assert ended.value.code == code


def test_the_command_for_the_tests_runs_every_check_and_every_notebook(
    tasks, commands, monkeypatch
):
    monkeypatch.setenv("TFJOB_HOME", "of this test")  # what the task sets is undone
    tasks.test([])
    ran = "\n".join(" ".join(command) for command in commands)
    for word in (
        *("ruff check", "ruff format --check", "mypy", "mypy --config-file tests/mypy.ini"),
        *("lint-imports", "pytest", "--nbval"),
    ):
        assert word in ran


def test_ci_runs_what_a_person_runs():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "python3 tasks.py test"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT],
        check=True,
    )
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_wheel_holds_the_package_typed_and_nothing_else(wheel):
    names = wheel.namelist()
    assert "tfjob_magic/py.typed" in names
    here = {str(path.relative_to(ROOT)) for path in ROOT.glob("tfjob_magic/**/*.py")}
    assert here == {name for name in names if name.endswith(".py")}
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"tfjob_magic"}


def test_installing_the_wheel_enables_the_server_extension(wheel):
    place = "data/etc/jupyter/jupyter_server_config.d/tfjob_magic.json"
    (name,) = [name for name in wheel.namelist() if name.endswith(place)]
    config = json.loads(wheel.read(name))
    assert config == {"ServerApp": {"jpserver_extensions": {"tfjob_magic": True}}}


def test_the_wheel_has_the_command_the_licence_and_the_extras(wheel):
    def read(suffix):
        (name,) = [name for name in wheel.namelist() if name.endswith(f".dist-info/{suffix}")]
        return wheel.read(name).decode()

    scripts = configparser.ConfigParser()
    scripts.read_string(read("entry_points.txt"))
    assert scripts["console_scripts"]["tfjob"] == "tfjob_magic.cli:main"
    assert "Apache License" in read("licenses/LICENSE")
    metadata = email.message_from_string(read("METADATA"))
    assert metadata["Requires-Python"] == ">=3.11"
    assert {"tensorflow", "test"} <= set(metadata.get_all("Provides-Extra"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Build the sdist by the build backend itself, which needs nothing downloaded."""
    folder = tmp_path_factory.mktemp("sdist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory"]
    subprocess.run([*build, folder], cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return {member.name.partition("/")[2]: member.mode for member in archive.getmembers()}


@pytest.mark.parametrize("name", ["tasks.py", ".ci/run", "benchmarks/by_hand.sh"])
def test_the_sdist_has_what_the_readmes_commands_run(sdist, name):
    assert name in sdist
    assert sdist[name] & 0o100 == (ROOT / name).stat().st_mode & 0o100


def test_the_sdist_has_every_page_test_and_notebook(sdist):
    patterns = (
        *("*.md", "LICENSE", "docs/*.md", "docs/images/*.svg", "tests/*.py", "tests/*.ini"),
        *("notebooks/*.py", "notebooks/*.ipynb", "notebooks/*.cfg", "benchmarks/*.py"),
    )
    here = {str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)}
    assert here <= set(sdist)
    assert "tests/goldens/two-nodes.json" in sdist


@pytest.fixture
def report(monkeypatch):
    """Load what the benchmarks share."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("report")
    sys.modules.pop("report")


def test_the_benchmarks_write_their_results_between_the_pages_two_marks(report, tmp_path):
    page = tmp_path / "benchmarks.md"
    page.write_bytes((ROOT / "docs" / "benchmarks.md").read_bytes())
    result = report.Result("A title", ("", "median"), (("ours", r"0.1 s \1"),), {})
    for _ in range(2):
        report.write(page, report.text([result], "python3 tasks.py bench"))
    text = page.read_text()
    assert text.count("### A title") == 1
    assert r"| ours | 0.1 s \1 |" in text
    assert text.startswith("# Benchmarks")
    assert "No result" not in text


def test_a_page_without_the_marks_is_left_as_it_is(report, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(SystemExit, match="results"):
        report.write(page, "a result\n")
    assert page.read_text() == "nothing\n"
