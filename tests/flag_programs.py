"""Programs that read their command line in every way there is, for test_flags.py."""

from __future__ import annotations

from dataclasses import dataclass

FOUR = "--task_index --ps_hosts --worker_hosts --job_name"


@dataclass(frozen=True)
class Case:
    """A program, the flags it should get, the library it needs, its other modules."""

    passed: str
    source: str
    needs: str | None = None
    modules: tuple[tuple[str, str], ...] = ()


ABSL = "from absl import app, flags\n"
CASES = {
    # absl
    "absl app.run": Case(
        "--task_index --job_name",
        ABSL
        + """
flags.DEFINE_string("job_name", "", "")
flags.DEFINE_integer("task_index", 0, "")
def main(argv): print(flags.FLAGS.job_name)
if __name__ == "__main__":
    app.run(main)
""",
        "absl",
    ),
    "absl without flags": Case("", ABSL + "app.run(lambda argv: None)", "absl"),
    "absl under other names": Case(
        "--ps_hosts --worker_hosts",
        """
import absl.app
import absl.flags as gf
from absl.flags import DEFINE_list as listed
define = gf.DEFINE_string
define(name="ps_hosts", default="", help="")
listed("worker_hosts", [], "")
absl.app.run(lambda argv: None)
""",
        "absl",
    ),
    "absl with every kind of flag": Case(
        FOUR,
        ABSL
        + """
flags.DEFINE_enum("job_name", "ps", ["ps", "worker"], "")
flags.DEFINE_string("index", "", "")
flags.DEFINE_alias("task_index", "index")
flags.DEFINE_multi_string("ps_hosts", [], "")
flags.DEFINE(flags.ListParser(), "worker_hosts", "", "", serializer=flags.ListSerializer(","))
app.run(lambda argv: None)
""",
        "absl",
    ),
    "absl FLAGS(argv)": Case(
        "--job_name",
        """
import sys
from absl import flags
FLAGS = flags.FLAGS
flags.DEFINE_string("job_name", "", "")
FLAGS(sys.argv)
""",
        "absl",
    ),
    "absl FLAGS(argv, known_only)": Case(
        FOUR,
        """
import sys
from absl import flags
flags.DEFINE_string("job_name", "", "")
flags.FLAGS(sys.argv, known_only=True)
""",
        "absl",
    ),
    "absl FLAGS of a list in the code": Case(
        FOUR, 'from absl import flags\nflags.FLAGS(["train.py"])\n', "absl"
    ),
    "absl flags in another module": Case(
        "--task_index --job_name",
        ABSL + "import cluster\napp.run(lambda argv: print(cluster.FLAGS.job_name))\n",
        "absl",
        (
            (
                "cluster.py",
                """
from absl import flags
FLAGS = flags.FLAGS
flags.DEFINE_string("job_name", "", "")
flags.DEFINE_integer("task_index", 0, "")
""",
            ),
        ),
    ),
    "absl flags that a function defines": Case(
        "--job_name",
        ABSL + "from pkg import config\nconfig.define()\napp.run(lambda argv: None)\n",
        "absl",
        (
            ("pkg/__init__.py", ""),
            (
                "pkg/config.py",
                'from absl import flags\ndef define(): flags.DEFINE_string("job_name", "", "")\n',
            ),
        ),
    ),
    "absl flags with computed names": Case(
        "--task_index --job_name",
        ABSL
        + """
for name in ["job_name", "task_index"]:
    flags.DEFINE_string(name, "", "")
app.run(lambda argv: None)
""",
        "absl",
    ),
    "absl after argparse took its own": Case(
        "--task_index --job_name",
        """
import argparse, sys
from absl import app, flags
flags.DEFINE_string("task_index", "", "")
parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
known, rest = parser.parse_known_args()
app.run(lambda argv: None, argv=[sys.argv[0]] + rest)
""",
        "absl",
    ),
    "absl beside an argparse that leaves everything": Case(
        "--task_index",
        ABSL
        + """
import argparse
flags.DEFINE_string("task_index", "", "")
parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.parse_known_args()
app.run(lambda argv: None)
""",
        "absl",
    ),
    "absl with argparse as its parser": Case(
        "--task_index --job_name",
        ABSL
        + """
from absl.flags import argparse_flags
flags.DEFINE_string("job_name", "", "")
def parse(argv):
    parser = argparse_flags.ArgumentParser()
    parser.add_argument("--task_index")
    return parser.parse_args(argv[1:])
app.run(lambda args: None, flags_parser=parse)
""",
        "absl",
    ),
    # argparse
    "argparse": Case(
        "--task_index --job_name",
        """
import argparse
def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name", type=str)
    parser.add_argument("-t", "--task_index", type=int)
    return parser.parse_args()
if __name__ == "__main__":
    args = parse_args()
""",
    ),
    "argparse that takes what it knows": Case(
        FOUR,
        """
from argparse import ArgumentParser
parser = ArgumentParser()
parser.add_argument("--job_name")
args, _ = parser.parse_known_args()
""",
    ),
    "argparse PS_hosts": Case(
        "--PS_hosts",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--PS_hosts", required=True)
parser.parse_args()
""",
    ),
    "argparse task_name": Case(
        FOUR + " --task_name",
        """
import argparse
parser = argparse.ArgumentParser()
for name in "task_index", "ps_hosts", "worker_hosts", "job_name", "task_name":
    parser.add_argument("--" + name, required=True)
parser.parse_args()
""",
    ),
    "argparse hyphens": Case(
        "",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--task-index")
parser.add_argument("-job_name")
parser.parse_args()
""",
    ),
    "argparse abbreviated": Case(
        "--ps_hosts",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts_list")
parser.add_argument("--task_index_a")
parser.add_argument("--task_index_b")
parser.parse_args()
""",
    ),
    "argparse unabbreviated": Case(
        "",
        """
import argparse
parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--ps_hosts_list")
parser.parse_args()
""",
    ),
    "argparse that is lenient and ambiguous": Case(
        "--ps_hosts --worker_hosts --job_name",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--task_index_a")
parser.add_argument("--task_index_b")
parser.parse_known_args()
""",
    ),
    "argparse subcommands": Case(
        "--job_name",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
commands = parser.add_subparsers()
train = commands.add_parser("train")
train.add_argument("--task_index")
parser.parse_args()
""",
    ),
    "argparse parents and groups": Case(
        "--task_index --ps_hosts",
        """
import argparse
base = argparse.ArgumentParser(add_help=False)
group = base.add_argument_group("cluster")
group.add_argument("--task_index")
parser = argparse.ArgumentParser(parents=[base])
add = parser.add_argument
add("--ps_hosts")
parser.parse_args()
""",
    ),
    "argparse with a positional": Case(
        "--job_name",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("data", nargs="?", type=int, choices=[])
parser.add_argument("--job_name")
parser.parse_known_args()
""",
    ),
    "argparse intermixed": Case(
        FOUR,
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs")
parser.parse_known_intermixed_args()
""",
    ),
    "argparse of a list in the code": Case(
        FOUR,
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs")
parser.parse_args(["--epochs", "5"])
""",
    ),
    "argparse in a class": Case(
        "--worker_hosts",
        """
import argparse
class Options:
    def __init__(self):
        self.parser = argparse.ArgumentParser()
        self.parser.add_argument("--worker_hosts")
    def read(self):
        return self.parser.parse_args()
Options().read()
""",
    ),
    "argparse in another module": Case(
        "--job_name",
        "from options import get as options\nargs = options()\n",
        modules=(
            (
                "options.py",
                """
import argparse
def make():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name")
    return parser
def get():
    return make().parse_args()
""",
            ),
        ),
    ),
    "another module's own main": Case(
        FOUR,
        "import model\nmodel.build()\n",
        modules=(
            (
                "model.py",
                """
import argparse
def build(): pass
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers")
    parser.parse_args()
if __name__ == "__main__":
    main()
""",
            ),
        ),
    ),
    "a function that nothing calls": Case(
        FOUR,
        """
import argparse
def parse():
    return argparse.ArgumentParser().parse_args()
""",
    ),
    "argparse whose add_argument is passed on": Case(
        "--task_index --job_name",
        """
import argparse
def options(add):
    for name in ("job_name", "task_index"):
        add("--" + name)
parser = argparse.ArgumentParser()
options(parser.add_argument)
parser.parse_args()
""",
    ),
    "argparse whose add_argument is bound in part": Case(
        "--job_name",
        """
import argparse
from functools import partial
parser = argparse.ArgumentParser()
text = partial(parser.add_argument, type=str)
text("--job_name")
parser.parse_args()
""",
    ),
    "argparse whose add_argument is kept in a table": Case(
        "--ps_hosts",
        """
import argparse
parser = argparse.ArgumentParser()
add = parser.add_argument
table = {"add": add}
table["add"]("--ps_hosts")
parser.parse_args()
""",
    ),
    "argparse whose add_argument is looked up": Case(
        "--job_name",
        """
import argparse
parser = argparse.ArgumentParser()
getattr(parser, "add_argument")("--job_name")
parser.parse_args()
""",
    ),
    "argparse whose add_argument has another name": Case(
        "--job_name",
        """
import argparse
parser = argparse.ArgumentParser()
add = parser.add_argument
add("--job_name")
parser.parse_args()
print("worker_hosts")
""",
    ),
    "absl whose DEFINE is passed on": Case(
        "--task_index --job_name",
        ABSL
        + """
def define(how, *names):
    for name in names:
        how(name, "", "")
define(flags.DEFINE_string, "job_name", "task_index")
app.run(lambda argv: None)
""",
        "absl",
    ),
    "click whose option is bound in part": Case(
        "--job_name",
        """
import click
from functools import partial
text = partial(click.option, type=str)
@click.command()
@text("--job_name")
def main(job_name): pass
main()
""",
        "click",
    ),
    "typer whose Option is bound in part": Case(
        "--job_name",
        """
import typer
from functools import partial
Text = partial(typer.Option, "")
def main(job_name: str = Text("--job_name")): pass
typer.run(main)
""",
        "typer",
    ),
    "argparse computed": Case(
        "--ps_hosts --job_name",
        """
import argparse
parser = argparse.ArgumentParser()
for role in ["ps"]:
    parser.add_argument(f"--{role}_hosts")
parser.add_argument("--job_name")
args = parser.parse_args()
print(args.ps_hosts)
""",
    ),
    # click and its kin
    "click": Case(
        "--task_index",
        """
import click
@click.command()
@click.option("--task_index", "-t", "index", type=int)
@click.option("--job-name")
def main(index, job_name): pass
main()
""",
        "click",
    ),
    "click that ignores": Case(
        FOUR,
        """
import click
@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.option("--job_name")
def main(job_name): pass
main()
""",
        "click",
    ),
    "click that ignores into an argument": Case(
        FOUR,
        """
import click
@click.command(context_settings=dict(ignore_unknown_options=True))
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
def main(rest): pass
main()
""",
        "click",
    ),
    "click that ignores and has no room": Case(
        "--job_name",
        """
import click
@click.command(context_settings=dict(ignore_unknown_options=True))
@click.option("--job_name")
def main(job_name): pass
main()
""",
        "click",
    ),
    "click shared options": Case(
        "--task_index --job_name",
        """
from click import command, option
def cluster(function):
    return option("--job_name")(option("--task_index")(function))
@command()
@cluster
def main(job_name, task_index): pass
if __name__ == "__main__":
    main()
""",
        "click",
    ),
    "click group": Case(
        "--job_name",
        """
import click
@click.group(invoke_without_command=True)
@click.option("--job_name")
def main(job_name): pass
@main.command()
@click.option("--task_index")
def train(task_index): pass
main()
""",
        "click",
    ),
    "typer": Case(
        "--job_name",
        """
import typer
def main(job_name: str = typer.Option("", "--job_name"), task_index: int = 0): pass
typer.run(main)
""",
        "typer",
    ),
    "typer that ignores": Case(
        FOUR,
        """
import typer
app = typer.Typer()
@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def main(task_index: int = 0): pass
app()
""",
        "typer",
    ),
    "fire function": Case(
        "--task_index --job_name",
        "import fire\ndef main(job_name='', task_index=0): pass\nfire.Fire(main)\n",
        "fire",
    ),
    "fire with keywords": Case(
        FOUR, "import fire\ndef main(job_name='', **rest): pass\nfire.Fire(main)\n", "fire"
    ),
    "fire class": Case(
        "--job_name",
        "import fire\nclass Job:\n    def __init__(self, job_name=''): pass\nfire.Fire(Job)\n",
        "fire",
    ),
    "docopt": Case(
        "--job_name",
        '"""Usage: train.py [options]\n\nOptions:\n  --job_name=<name>  the role\n"""\n'
        "import docopt\ndocopt.docopt(__doc__)\n",
        "docopt",
    ),
    # the older ones
    "optparse": Case(
        "--task_index --worker_hosts",
        """
from optparse import OptionParser
parser = OptionParser()
parser.add_option("-t", "--task_index", type="int")
parser.add_option("--worker_hosts_list")
options, args = parser.parse_args()
""",
    ),
    "getopt": Case(
        "--task_index --job_name",
        """
import getopt, sys
getopt.getopt(sys.argv[1:], "t:", ["job_name=", "task_ind", "task_index="])
""",
    ),
    "getopt abbreviated": Case(
        "--ps_hosts",
        """
import getopt, sys
getopt.gnu_getopt(sys.argv[1:], "", longopts=["ps_hosts_list=", "job_name_a=", "job_name_b="])
""",
    ),
    "getopt by name": Case(
        "--job_name",
        """
import getopt, sys
OPTIONS = ["job_name="]
getopt.getopt(sys.argv[1:], "", OPTIONS)
""",
    ),
    # no parser
    "no parser": Case(FOUR, "print('hello')\n"),
    "sys.argv by hand": Case(
        FOUR,
        """
import sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
given["--task_index"], given["--ps_hosts"], given["--worker_hosts"], given["--job_name"]
""",
    ),
    "absl that nobody parses": Case(
        FOUR, 'from absl import flags\nflags.DEFINE_string("job_name", "", "")\n', "absl"
    ),
    # TensorFlow
    "tensorflow app.run": Case(
        FOUR,
        """
import tensorflow.compat.v1 as tf
flags = tf.app.flags
flags.DEFINE_string("job_name", "", "")
FLAGS = flags.FLAGS
def main(argv): print(FLAGS.job_name)
if __name__ == "__main__":
    tf.app.run(main)
""",
        "tensorflow",
    ),
    "tensorflow flags read before app.run": Case(
        "--job_name",
        """
import tensorflow.compat.v1 as tf
tf.flags.DEFINE_string("job_name", "", "")
FLAGS = tf.flags.FLAGS
def check(): print(FLAGS.job_name)
def main(argv): pass
if __name__ == "__main__":
    check()
    tf.app.run(main)
""",
        "tensorflow",
    ),
    "tensorflow flags without app.run": Case(
        "--task_index",
        """
import tensorflow as tf
flags = tf.compat.v1.flags
flags.DEFINE_integer("task_index", 0, "")
def main(): print(flags.FLAGS.task_index)
if __name__ == "__main__":
    main()
""",
        "tensorflow",
    ),
}
