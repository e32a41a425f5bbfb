"""Reading a boot file and its local modules."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tfjob_magic.store import sources

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_a_boot_file_alone_is_read(tmp_path):
    write(tmp_path, {"train.py": "print('é')\n", "other.py": "x = 1\n"})
    assert sources.read(tmp_path, "train.py", None) == {"train.py": "print('é')\n"}


def test_a_cell_stands_for_the_boot_file_and_its_siblings_are_read(tmp_path):
    write(tmp_path, {"train.py": "import old\n", "old.py": "", "net.py": "y = 2\n"})
    found = sources.read(tmp_path, "train.py", "import net, os\n")
    assert found == {"train.py": "import net, os\n", "net.py": "y = 2\n"}


def test_a_code_dir_that_does_not_exist_yet_gives_the_cell(tmp_path):
    assert sources.read(tmp_path / "none", "train.py", "import a\n") == {"train.py": "import a\n"}


@pytest.mark.parametrize(
    ("boot", "expected"),
    [
        ("import a", {"a.py"}),
        ("import pkg", {"pkg/__init__.py"}),
        ("import pkg.deep.leaf as leaf", {"pkg/__init__.py", "pkg/deep/leaf.py"}),
        ("from pkg import inner", {"pkg/__init__.py", "pkg/inner.py", "pkg/base.py"}),
        ("from pkg.inner import VALUE", {"pkg/__init__.py", "pkg/inner.py", "pkg/base.py"}),
        ("from a import *", {"a.py"}),
        ("def f():\n    import a\n", {"a.py"}),
        ("try:\n    import a\nexcept ImportError:\n    import missing\n", {"a.py"}),
        ("from . import a", {"a.py"}),
        ("from ..... import a", set()),
    ],
)
def test_modules_that_are_imported_are_found(tmp_path, boot, expected):
    write(
        tmp_path,
        {
            "train.py": boot,
            "a.py": "",
            "pkg/__init__.py": "",
            "pkg/inner.py": "from .base import *\n",
            "pkg/base.py": "from .. import train\n",
            "pkg/deep/leaf.py": "",  # `deep` is a namespace package
        },
    )
    assert set(sources.read(tmp_path, "train.py", None)) == {"train.py"} | expected


def test_modules_that_import_each_other_end(tmp_path):
    write(tmp_path, {"train.py": "import a", "a.py": "import b", "b.py": "import a, train"})
    assert set(sources.read(tmp_path, "train.py", None)) == {"train.py", "a.py", "b.py"}


def test_nothing_is_run(tmp_path):
    write(tmp_path, {"train.py": "import a", "a.py": f"open({str(tmp_path / 'ran')!r}, 'w')"})
    sources.read(tmp_path, "train.py", None)
    assert not (tmp_path / "ran").exists()


def test_the_encoding_that_a_file_declares_is_honoured(tmp_path):
    (tmp_path / "train.py").write_bytes("# coding: latin-1\nx = 'é'\n".encode("latin-1"))
    (tmp_path / "bom.py").write_bytes("\ufeffimport os\n".encode())
    assert "x = 'é'" in sources.read(tmp_path, "train.py", None)["train.py"]
    found = sources.read(tmp_path, "train.py", "import bom")
    assert found["bom.py"] == "import os\n"


@pytest.mark.parametrize(
    "data",
    [b"x = '\xe9'\n", b"# coding: nonsense\n", b"# coding: utf-16\nx = 1\n", b"x" * (1 << 21)],
    ids=["not utf-8", "unknown cookie", "wrong cookie", "too large"],
)
def test_a_module_that_cannot_be_read_is_left_out(tmp_path, data):
    (tmp_path / "bad.py").write_bytes(data)
    assert set(sources.read(tmp_path, "train.py", "import bad\n")) == {"train.py"}


def test_a_module_with_another_pythons_syntax_is_kept_and_ends_there(tmp_path):
    write(tmp_path, {"train.py": "import old", "old.py": "import a\nprint 1\n", "a.py": ""})
    assert set(sources.read(tmp_path, "train.py", None)) == {"train.py", "old.py"}


def test_loops_of_links_pipes_and_directories_are_survived(tmp_path):
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "around").symlink_to(".")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "a.py").write_text("import around.around.a\n")
    boot = "import loop, pipe, folder, around.a\n"
    found = sources.read(tmp_path, "train.py", boot)
    assert "around/a.py" in found
    assert not {"loop.py", "pipe.py", "folder.py"} & set(found)


def test_a_chain_of_modules_without_end_is_cut(tmp_path):
    for i in range(sources.MOST_FILES + 50):
        (tmp_path / f"m{i}.py").write_text(f"import m{i + 1}\n")
    assert len(sources.read(tmp_path, "train.py", "import m0\n")) == sources.MOST_FILES


def test_links_that_lead_round_and_round_are_cut(tmp_path):
    (tmp_path / "around").symlink_to(".")
    (tmp_path / "__init__.py").write_text("from .around import x\n")
    found = sources.read(tmp_path, "train.py", "import around\n")
    assert len(found) <= sources.MOST_FILES
