"""The user's own flavors."""

import os

import pytest

from tfjob_magic.configuration import flavors, path
from tfjob_magic.core.flavor import Flavor, parse
from tfjob_magic.errors import InvalidJobError

MINE = """
[flavors.mine]
accelerator = "A100"
accelerators = 4
cpus = 32
memory = "256 GB"

[flavors.small]
cpus = 2
memory = "4 GB"
"""


@pytest.fixture
def configure(tmp_path):
    def write(text):
        file = tmp_path / "tfjob" / "config.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return {"XDG_CONFIG_HOME": str(tmp_path)}

    return write


def test_own_flavors_are_read(configure):
    own = flavors(configure(MINE))
    assert own == {
        "mine": Flavor("mine", "A100", 4, 32, 262144),
        "small": Flavor("small", None, 0, 2, 4096),
    }
    assert parse("mine", own) == own["mine"]


def test_without_a_file_there_are_none(tmp_path):
    assert flavors({"XDG_CONFIG_HOME": str(tmp_path)}) == {}
    assert flavors({"HOME": str(tmp_path)}) == {}
    (tmp_path / "tfjob").write_text("a file where a folder is looked for")
    assert flavors({"XDG_CONFIG_HOME": str(tmp_path)}) == {}


def test_the_place_is_xdgs_or_dot_config(tmp_path):
    home = {"HOME": str(tmp_path)}
    assert path(home) == tmp_path / ".config/tfjob/config.toml"
    assert path({**home, "XDG_CONFIG_HOME": "relative"}) == path(home)
    assert (
        path({**home, "XDG_CONFIG_HOME": "/etc/mine"}).as_posix() == "/etc/mine/tfjob/config.toml"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[flavors", "is not valid TOML"),
        (b"\xff", "is not valid TOML"),
        ("[flavor.mine]\n", "flavor is not known"),
        ("flavors = 3\n", "flavors must be a table"),
        ("[flavors]\nmine = 3\n", "flavors.mine must be a table"),
        ('[flavors."A b"]\ncpus = 1\nmemory = "1 GB"\n', "flavors.A b must be named"),
        ('[flavors.mine]\ncpus = 0\nmemory = "1 GB"\n', "flavors.mine.cpus must be"),
        ('[flavors.mine]\ncpus = true\nmemory = "1 GB"\n', "flavors.mine.cpus must be"),
        ('[flavors.mine]\nmemory = "1 GB"\n', "flavors.mine.cpus must be"),
        ("[flavors.mine]\ncpus = 1\nmemory = 64\n", "flavors.mine.memory must be"),
        ('[flavors.mine]\ncpus = 1\nmemory = "0 GB"\n', "flavors.mine.memory must be"),
        ('[flavors.mine]\ncpu = 1\ncpus = 1\nmemory = "1 GB"\n', "flavors.mine.cpu is not known"),
        (
            '[flavors.mine]\naccelerator = "T4"\ncpus = 1\nmemory = "1 GB"\n',
            "flavors.mine must have both accelerator and accelerators",
        ),
        (
            '[flavors.mine]\naccelerators = 2\ncpus = 1\nmemory = "1 GB"\n',
            "flavors.mine must have both accelerator and accelerators",
        ),
        (
            '[flavors.mine]\naccelerator = 4\naccelerators = "x"\ncpus = 1\nmemory = "1 GB"\n',
            "flavors.mine.accelerator must be a kind",
        ),
        (
            '[flavors.mine]\naccelerator = "A|B"\naccelerators = 1\ncpus = 1\nmemory = "1 GB"\n',
            "flavors.mine.accelerator must be a kind",
        ),
    ],
)
def test_a_mistake_names_the_file_and_the_key(configure, text, words):
    environ = configure(text)
    with pytest.raises(InvalidJobError) as caught:
        flavors(environ)
    assert str(path(environ)) in str(caught.value)
    assert words in str(caught.value)


def test_all_mistakes_are_told_at_once(configure):
    environ = configure("[flavors.a]\ncpus = 0\n[flavors.b]\nmemory = 3\n")
    with pytest.raises(InvalidJobError) as caught:
        flavors(environ)
    assert len(caught.value.problems) == 4


def test_a_file_that_may_not_be_read_is_named(configure):
    environ = configure(MINE)
    path(environ).chmod(0)
    is_root = os.geteuid() == 0
    if is_root:  # root reads everything
        os.seteuid(65534)
    try:
        with pytest.raises(InvalidJobError, match="cannot be read"):
            flavors(environ)
    finally:
        if is_root:
            os.seteuid(0)


def test_a_folder_in_the_files_place_is_named(tmp_path):
    (tmp_path / "tfjob" / "config.toml").mkdir(parents=True)
    with pytest.raises(InvalidJobError, match="cannot be read"):
        flavors({"XDG_CONFIG_HOME": str(tmp_path)})
