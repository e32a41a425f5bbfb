"""A cell as a boot file."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
import tokenize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfjob_magic import grammar
from tfjob_magic.core import cell
from tfjob_magic.core.words import words
from tfjob_magic.errors import InvalidJobError
from tfjob_magic.expansion import halves


def refused(source: str) -> list[str]:
    with pytest.raises(InvalidJobError) as caught:
        cell.check(source)
    assert {problem.field for problem in caught.value.problems} == {"cell"}
    return [problem.message for problem in caught.value.problems]


@pytest.mark.parametrize(
    "source",
    [
        "print(1)\n",
        "print(1)",
        "# only a comment\n",
        '"""A docstring."""\n',
        "x = (10\n     % 3)\nprint('%d'\n% x)\n",
        "x = 7 \\\n  % 4\n",
        'text = """\n%matplotlib inline\n!ls\n?x\n"""\n',
        "print('!ls', \"what?\")  # really?\n",
        "x = [1,\n!=2]\n".replace("1,\n!=2", "1\n!=2"),
        "from __future__ import annotations\nprint(1)\n",
        "import os\r\nif os:\r\n    print(1)\r\n",
        "async def main():\n    await x\n",
        "x = lambda: (yield)\n",
        "print('\\d')\n",  # a warning is the script's own affair
        "\ttry_this = 1\n".lstrip(),
        "x = 1\f\ny = 2\n",
        "class A:\n    pass\n# a last comment",
    ],
)
def test_a_cell_that_is_python_passes(source):
    cell.check(source)


@pytest.mark.parametrize("source", ["", "\n", "  \n\t\n", "\r\n"])
def test_an_empty_cell_is_refused(source):
    assert refused(source) == ["is empty; write the training script under it"]


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("%matplotlib inline\nprint(1)\n", 2, "`%matplotlib inline` is an IPython magic;"),
        ("import os\n\n!pip install x\n", 4, "`!pip install x` is a shell command;"),
        ("if 1:\n    %time f()\n", 3, "`%time f()` is an IPython magic;"),
        ("try:\n    !ls '''\nexcept OSError:\n    pass\n", 3, "is a shell command;"),
        ("%%bash\nls\n", 2, "`%%bash` is an IPython cell magic;"),
        ("files = !ls (\nprint(files)\n", 2, "takes a shell command's output; use subprocess"),
        ("a, b = %sql select 1\n", 2, "takes what an IPython magic returns;"),
        ("print?\n", 2, "`print?` asks IPython for help"),
        ("x = 1\nx.real??\n", 3, "asks IPython for help"),
        ("?print\n", 2, "asks IPython for help"),
        ("x = (1 +\n  2)\n%time x\n", 4, "is an IPython magic;"),
        ("x = '''\n%not this\n'''\n%time x\n", 5, "`%time x` is an IPython magic;"),
        ("x = 'it''s' # (\n%time x\n", 3, "is an IPython magic;"),
        ("x = 1\r\n%time x\r\n", 3, "`%time x` is an IPython magic;"),
    ],
)
def test_what_only_ipython_understands_is_refused_with_its_line(source, line, says):
    (message,) = refused(source)
    assert message.startswith(f"line {line}: ")
    assert says in message


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = 1\nawait f()\n", 3),
        ("x = 1\n\nif x:\n    y = [a async for a in b]\n", 5),
        ("async with a:\n    pass\n", 2),
        ("async def f():\n    await x\n\nprint(await f())\n", 5),
    ],
)
def test_a_top_level_await_is_refused_with_its_line(source, line):
    (message,) = refused(source)
    assert message.startswith(f"line {line}: ")
    assert "asyncio.run(main())" in message


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = 1\nprint 'a'\n", 3),
        ("def f(:\n    pass\n", 2),
        ("x = (1\ny = 2\n", 2),
        ("x = (1\n     % 2 3)\n", 2),
        ("return 1\n", 2),
        ("x = '''\n", 2),
        ("  x = 1\n", 2),
        ("x = 1\\", 2),
        ("x = 1\n\0\n", 3),
        ("x = 1\ny = '\udc80'\n", 3),
        ("\nfrom __future__ import nothing\n", 3),
    ],
)
def test_a_syntax_error_is_refused_with_its_line(source, line):
    (message,) = refused(source)
    assert message.startswith(f"line {line}: ")
    assert "IPython" not in message


def test_every_magic_and_the_syntax_error_beside_them_are_told_at_once():
    messages = refused("%a\nx = 1\n!b\ndef f(:\n    pass\n")
    assert [m.partition(":")[0] for m in messages] == ["line 2", "line 4", "line 5"]


def test_a_cell_full_of_magics_gives_a_few_problems():
    assert len(refused("%x\n" * 1000)) == cell.MOST_PROBLEMS


def test_a_long_line_is_cut():
    assert len(refused("!" + "x" * 1000)[0]) < 200


@given(st.text(alphabet="%!?=()[]{}'\"\\#\n\r\t ab:,\f\0é\ud800", max_size=60))
def test_a_refused_cell_is_one_that_python_refuses(source):
    runs = bool(source.strip())
    try:
        compile(source, "x", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        runs = False
    if runs:
        cell.check(source)
    else:
        refused(source)


def test_the_magics_line_is_a_comment_and_the_cell_follows_as_it_is():
    assert cell.text("--nodes 2 -- --epochs 5", "import x\n") == (
        "# %%tfjob --nodes 2 -- --epochs 5\nimport x\n"
    )
    assert cell.text("", "x = 1") == "# %%tfjob\nx = 1"


def run(tmp_path, line: str, source: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "train.py"
    path.write_bytes(cell.text(line, source).encode())
    return subprocess.run(
        [sys.executable, path], capture_output=True, encoding="utf-8", check=False
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_traceback_has_the_cells_line_numbers(tmp_path, end):
    source = end.join(["from __future__ import annotations", "import os", "", "1 / 0", ""])
    assert 'train.py", line 5, in <module>' in run(tmp_path, "--nodes 2", source).stderr


@pytest.mark.parametrize(
    "line",
    [
        "--name a\nprint('out')",
        "--name a\rprint('out')",
        "--name 'a\r\nb' \x0c\x0b\x00\x1c\x85\u2028\u2029\ud800",
        "# vim: set fileencoding=latin-1 :",
        "-- --note 'coding: latin-1'",
        "-*- coding: utf-16 -*-",
        "\\",
    ],
)
def test_nothing_in_the_magics_line_leaves_its_comment_or_sets_an_encoding(tmp_path, line):
    done = run(tmp_path, line, "print('é')\n1 / 0\n")
    assert done.stdout == "é\n"
    assert "line 3" in done.stderr


def test_an_encoding_declared_by_the_cell_does_not_change_what_the_cell_says(tmp_path):
    done = run(tmp_path, "", "# -*- coding: latin-1 -*-\nprint('é')\n")
    assert (done.stdout, done.stderr) == ("é\n", "")


@given(st.text(), st.text())
@example("coding=latin-1", "# coding: cp1252")
def test_line_1_is_one_comment_and_the_file_is_utf_8(line, source):
    text = cell.text(line, source)
    first, _, rest = text.partition("\n")
    assert rest == source
    assert first.startswith("# ")
    assert first.splitlines() == [first]
    data = f"{first}\n{source.split(chr(10))[0]}".encode(errors="replace")
    assert tokenize.detect_encoding(io.BytesIO(data).readline)[0] == "utf-8"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("--env TOKEN=s3cret --nodes 2", "--env TOKEN=*** --nodes 2"),
        ("--env=TOKEN=s3cret", "--env=TOKEN=***"),
        ("--env 'TOKEN=s3 cret' --nodes 2", "--env TOKEN=*** --nodes 2"),
        ('--env TOKEN="s3 cret\\" cret" x', "--env TOKEN=*** x"),
        ("--env TOKEN=s3\\ cret x", "--env TOKEN=*** x"),
        ('"--env" TOKEN=s3cret', '"--env" TOKEN=***'),
        ("'--env=TOKEN=s3cret'", "--env=TOKEN=***"),
        ("--env TOKEN='s3cret and no end", "--env TOKEN=***"),
        ("--env s3cret", "--env ***"),
        ("--env=s3cret", "--env=***"),
        ("--env A=s3=cret --env B=", "--env A=*** --env B=***"),
        ("--en TOKEN=s3cret", "--en TOKEN=***"),
        ("--env", "--env"),
        ("--env -- --env X=1", "--env -- --env X=1"),
        ("  --nodes  2 -- --env A=1 'b c'", "  --nodes  2 -- --env A=1 'b c'"),
        ("--evaluator --name e=1", "--evaluator --name e=1"),
    ],
)
def test_values_of_variables_are_masked(line, shown):
    assert cell.masked(line) == shown


@given(st.text(alphabet="abc XYZ'\"\\=-\n", min_size=1), st.sampled_from(["--env ", "--env="]))
def test_no_value_of_a_variable_is_shown_however_it_is_quoted(value, option):
    line = f"--name a {option}{shlex.quote('KEY=' + value + 's3cret')} --nodes 2"
    assert cell.masked(line) == f"--name a {option}KEY=*** --nodes 2"


ANYTHING = st.text(st.characters(codec="utf-8"), max_size=4)
SPACES = st.sampled_from("\t\n\r \v\f\x1c\x85\xa0\u2003\u2028\u3000'\"\\")


@given(ANYTHING, SPACES, ANYTHING, st.sampled_from(["--env ", "--env=", "--en ", "'--env' "]))
@example("a", "\xa0", "", "--env ")
@example("a", "\v", "", "--env=")
def test_no_value_that_the_grammar_reads_is_shown_whatever_it_holds(before, space, after, option):
    line = f"--nodes 2 {option}TOKEN={before}{space}s3cr3t{after}"
    try:
        read = grammar.cell(line, {}).job
    except InvalidJobError:
        return
    if any("s3cr3t" in value for value in dict(read["env"]).values()):
        assert "s3cr3t" not in cell.masked(line)


@given(st.text(st.characters(codec="utf-8") | SPACES))
def test_a_word_is_what_the_grammar_takes_for_one(line):
    try:
        read, rest = halves(line)
    except InvalidJobError:
        return
    found = [word.text for word in words(line)]
    assert found[: len(read)] == read
    assert (found[len(read) :][:1] == ["--"]) == (rest is not None)


@given(st.text())
def test_a_line_without_variables_is_shown_as_it_is(line):
    if "--en" not in line.replace("'", "").replace('"', "").replace("\\", ""):
        assert cell.masked(line).rstrip() == line.rstrip()
