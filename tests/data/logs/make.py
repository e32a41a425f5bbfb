"""Make the logs of this directory again: `python tests/data/logs/make.py [NAME…]`.

Each log is what a small failing script of ours really wrote under the interpreter that runs this
file, which needs TensorFlow and click. Directories are replaced (`/home/ana/…`), nothing else.
A script whose name has a dash is one task of a group: the group's tasks run together.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = (
    "--task_index 0 --ps_hosts 127.0.0.1:{ps} --worker_hosts 127.0.0.1:{worker} --job_name {job}"
)
V1 = "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n"
COORDINATOR = """
    import json, os, sys
    job = sys.argv[sys.argv.index("--job_name") + 1]
    ps, worker, chief = {ps}, {worker}, {chief}
    cluster = {{"ps": [f"127.0.0.1:{{ps}}"], "worker": [f"127.0.0.1:{{worker}}"],
               "chief": [f"127.0.0.1:{{chief}}"]}}
    task = {{"type": job, "index": 0}}
    os.environ["TF_CONFIG"] = json.dumps({{"cluster": cluster, "task": task}})
    import tensorflow as tf
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if job != "chief":
        tf.distribute.Server(resolver.cluster_spec(), job_name=job, task_index=0).join()
"""
BETWEEN_GRAPH = (
    V1
    + """
import os, sys, time
job = sys.argv[sys.argv.index("--job_name") + 1]
cluster = tf.train.ClusterSpec({{"ps": ["127.0.0.1:{ps}"], "worker": ["127.0.0.1:{worker}"]}})
server = tf.train.Server(cluster, job_name=job, task_index=0)
if job == "ps":
    time.sleep(8)
    raise OSError("the disk of the parameters is gone")
with tf.device("/job:ps/task:0"):
    w = tf.Variable(0.0)
step = tf.assign_add(w, 1.0)
with tf.Session(server.target) as session:
    session.run(tf.global_variables_initializer())
    while True:
        session.run(step)
"""
)
PER_REPLICA = """
import json, os, sys
job = sys.argv[sys.argv.index("--job_name") + 1]
cluster = {{"worker": ["127.0.0.1:{worker}"], "chief": ["127.0.0.1:{chief}"]}}
os.environ["TF_CONFIG"] = json.dumps({{"cluster": cluster, "task": {{"type": job, "index": 0}}}})
import keras
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse", optimizer="sgd")
model.fit(tf.ones([8, 2]), tf.ones([8, 1]), verbose=0)
"""

HANDLED = """
import os, signal, sys, traceback
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
for epoch in range(30):
    print("epoch", epoch)
"""

SCRIPTS = {
    # a command line that is refused
    "argparse_unknown": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--job_name")
        parser.add_argument("--task_index", type=int)
        parser.parse_args()
    """,
    "argparse_required": """
        import argparse, sys
        del sys.argv[1:]
        parser = argparse.ArgumentParser()
        parser.add_argument("--task_index", type=int, required=True)
        parser.add_argument("--epochs", type=int)
        parser.parse_args()
    """,
    "argparse_own": """
        import argparse, sys
        sys.argv[1:] = ["--epoch", "5"]
        parser = argparse.ArgumentParser(allow_abbrev=False)
        parser.add_argument("--epochs", type=int)
        parser.parse_args()
    """,
    "absl_unknown": """
        from absl import app, flags
        flags.DEFINE_string("job_name", "", "")
        flags.DEFINE_integer("task_index", 0, "")
        app.run(lambda argv: None)
    """,
    "absl_unparsed": """
        from absl import flags
        flags.DEFINE_string("job_name", "", "")
        print(flags.FLAGS.job_name)
    """,
    "absl_log_dir": """
        from absl import app, flags, logging
        flags.DEFINE_string("log_dir", "/tmp/mnist", "where the summaries go")
        app.run(lambda argv: None)
    """,
    "click_unknown": """
        import click
        @click.command()
        @click.option("--job_name")
        @click.option("--task_index", type=int)
        def main(job_name, task_index): pass
        main()
    """,
    "optparse_unknown": """
        import optparse
        parser = optparse.OptionParser()
        parser.add_option("--job_name")
        parser.parse_args()
    """,
    "getopt_unknown": """
        import getopt, sys
        getopt.getopt(sys.argv[1:], "", ["job_name=", "task_index="])
    """,
    "argv_int": """
        import sys
        index = int(sys.argv[1])
    """,
    # Python itself
    "python2_print": 'import os\nprint "step", 1\n',
    "python2_except": "try:\n    pass\nexcept ValueError, error:\n    pass\n",
    "python2_name": "for i in xrange(3):\n    pass\n",
    "python2_module": "import urllib2\n",
    "module_missing": "def main():\n    import horovodx.tensorflow as hvd\n\nmain()\n",
    "relative_import": "from . import model\n",
    "input_closed": "name = input('continue? ')\n",
    "chained": """
        import time
        def load(path):
            with open(path) as file:
                return file.read()
        def main():
            try:
                load("data/train.csv")
            except OSError:
                raise RuntimeError("no data")
        print("starting")
        main()
    """,
    "chained_from": """
        def main():
            try:
                {}["epochs"]
            except KeyError as error:
                raise ValueError("the configuration is not complete") from error
        main()
    """,
    "thread": """
        import threading
        def feed(): raise ValueError("row 7 has 3 columns")
        thread = threading.Thread(target=feed)
        thread.start(); thread.join()
        raise SystemExit("no more data")
    """,
    "cancelled": """
        import traceback
        from concurrent.futures import Future
        try:
            raise ValueError("row 7 has 3 columns")
        except ValueError:
            traceback.print_exc()
        step = Future()
        step.cancel()
        step.result()
    """,
    "handled": """
        import traceback
        try:
            open("not/there.txt")
        except OSError:
            traceback.print_exc()
        print("going on without it")
        class AbortedError(Exception): pass
        raise AbortedError("the session is gone")
    """,
    "silent": "print('epoch 1')\nprint('epoch 2')\nraise SystemExit(3)\n",
    "progress": """
        for i in range(300):
            line = f"{i}/300 [====>....] - loss: 0.1"
            print(line, end="\\b" * len(line), flush=True)
        print()
        for i in range(300):
            print(f"\\r\\x1b[32m{i}%\\x1b[0m", end="")
        print()
        raise ValueError("loss is nan")
    """,
    "memory": "x = bytearray(1 << 60)\n",
    "abort": """
        from absl import logging
        logging.use_absl_handler()
        logging.fatal("Check failed: size > 0 (0 vs. 0)")
    """,
    "terminate": """
        import ctypes
        ctypes.CDLL("libstdc++.so.6")["_ZSt17__throw_bad_allocv"]()
    """,
    "segfault": """
        import ctypes, faulthandler
        faulthandler.enable()
        ctypes.string_at(0)
    """,
    "download": """
        import socket
        from urllib.request import urlretrieve
        urlretrieve("http://data.invalid/mnist.npz", "mnist.npz")
    """,
    # what was caught, and what follows an exception
    "handled_exit": HANDLED + 'print("ERROR: dataset missing"); sys.exit(4)\n',
    "handled_quit": HANDLED + 'sys.exit("no GPU: give --data")\n',
    "handled_segfault": HANDLED + "os.kill(os.getpid(), signal.SIGSEGV)\n",
    "handled_kill": HANDLED + "os.kill(os.getpid(), signal.SIGKILL)\n",
    "teardown_terminate": """
        import atexit, ctypes
        atexit.register(ctypes.CDLL("libstdc++.so.6")["_ZSt9terminatev"])
        raise ValueError("bad shape")
    """,
    "teardown_check": """
        import atexit
        from absl import logging
        logging.use_absl_handler()
        @atexit.register
        def close(): logging.fatal("Check failed: size > 0 (0 vs. 0)")
        raise ValueError("bad shape")
    """,
    "group": """
        import asyncio
        async def fetch():
            raise ValueError("row 7 has 3 columns")
        async def main():
            async with asyncio.TaskGroup() as group:
                group.create_task(fetch())
                group.create_task(asyncio.sleep(5))
        asyncio.run(main())
    """,
    "group_nested": """
        raise ExceptionGroup("all", [ExceptionGroup("some", [KeyError("a"), OSError("b")])])
    """,
    "usage_lines": """
        print("usage: 83% of disk\\nepoch 1: loss 2\\nmodel: error: 0.25\\n" * 2)
        raise SystemExit(2)
    """,
    # the habits of a notebook
    "name_of_notebook": "print('starting')\nmodel.fit(data)\n",
    "name_display": "display(1)\n",
    "name_ipython": "get_ipython().run_line_magic('matplotlib', 'inline')\n",
    "name_foreign": """
        class Größenfehler(Exception): pass
        raise Größenfehler("drei Spalten")
    """,
    "name_local": """
        def main():
            class BadRow(Exception): pass
            raise BadRow("row 7")
        main()
    """,
    # TensorFlow
    "tf_app": "import tensorflow as tf\nflags = tf.app.flags\n",
    "tf_contrib": "import tensorflow as tf\nslim = tf.contrib.slim\n",
    "tf_examples": "from tensorflow.examples.tutorials.mnist import input_data\n",
    "tf_server": """
        import tensorflow as tf
        server = tf.train.Server({"worker": ["127.0.0.1:2222"]}, job_name="worker")
    """,
    "tf_config_proto": "import tensorflow as tf\nconfig = tf.ConfigProto()\n",
    "tf_placeholder": "import tensorflow.compat.v1 as tf\nx = tf.placeholder(tf.float32)\n",
    "tf_session": """
        import tensorflow.compat.v1 as tf
        x = tf.constant(1)
        with tf.Session() as session:
            print(session.run(x))
    """,
    "tf_layers": V1 + "y = tf.layers.dense(tf.ones([1, 2]), 3)\n",
    "adam_lr": "import keras\nkeras.optimizers.Adam(lr=0.1)\n",
    "tf_file": """
        import tensorflow as tf
        print(tf.io.read_file("data/train.csv"))
    """,
    "tf_graph": """
        import tensorflow as tf
        @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)])
        def step(a, b):
            return tf.matmul(a, b)
        step(tf.ones([1, 3]), tf.ones([2, 1]))
    """,
    "tf_hdfs": """
        import tensorflow as tf
        print(tf.io.gfile.GFile("hdfs://namenode:9000/data.csv").read())
    """,
    "tf_download": """
        import keras
        (x, y), _ = keras.datasets.mnist.load_data("not-there.npz")
    """,
    "tf_memory": "import tensorflow as tf\nx = tf.ones([1 << 22, 1 << 22])\n",
    "tf_port": V1 + """
import socket
taken = socket.socket(); taken.bind(("0.0.0.0", {ps})); taken.listen()
cluster = tf.train.ClusterSpec({{"ps": ["localhost:{ps}"], "worker": ["localhost:{worker}"]}})
server = tf.train.Server(cluster, job_name="ps", task_index=0)
""",
    "tf_port_quiet": "import os\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n" + V1 + """
import socket
taken = socket.socket(); taken.bind(("0.0.0.0", {ps})); taken.listen()
server = tf.train.Server({{"ps": ["localhost:{ps}"]}}, job_name="ps", task_index=0)
""",
    "tf_cluster": V1 + """
cluster = tf.train.ClusterSpec({"ps": ["localhost:2222"], "worker": ["localhost:2223"]})
server = tf.train.Server(cluster, job_name="ps", task_index=1)
""",
    "keras_per_replica-worker": PER_REPLICA,
    "keras_per_replica-chief": PER_REPLICA,
    "keras_coordinator-chief": COORDINATOR + """
    import keras
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(loss="mse", optimizer="sgd")
    data = tf.data.Dataset.from_tensor_slices((tf.ones([8, 2]), tf.ones([8, 1]))).batch(2).repeat()
    model.fit(data, steps_per_epoch=2, verbose=0)
""",
    "keras_coordinator-worker": COORDINATOR,
    "keras_coordinator-ps": COORDINATOR,
    "coordinator-chief": COORDINATOR + """
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    @tf.function
    def step(x):
        tf.debugging.assert_positive(x, "the loss is negative")
        return x
    values = [coordinator.schedule(step, args=(tf.constant(-1.0),)) for _ in range(8)]
    try:
        coordinator.join()
    finally:
        values[-1].fetch()
""",
    "coordinator-worker": COORDINATOR,
    "coordinator-ps": COORDINATOR,
    "dead_ps-worker": BETWEEN_GRAPH,
    "dead_ps-ps": BETWEEN_GRAPH,
}  # fmt: skip
GROUPS = {
    "keras_per_replica": "chief",
    "keras_coordinator": "chief",
    "coordinator": "chief",
    "dead_ps": "worker",
}  # who ends it
SKIPPED = {
    "keras_per_replica-worker",
    "keras_coordinator-worker",
    "keras_coordinator-ps",
    "coordinator-worker",
    "coordinator-ps",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def main(wanted: list[str]) -> None:
    with tempfile.TemporaryDirectory() as work:
        groups: dict[str, list[str]] = {}
        for name in SCRIPTS:
            groups.setdefault(name.partition("-")[0], []).append(name)
        for group, names in groups.items():
            if not wanted or group in wanted:
                run(group, names, Path(work))


def run(group: str, names: list[str], work: Path) -> None:
    """Run the tasks of one group together, and keep their logs."""
    ports = {job: free_port() for job in ("ps", "worker", "chief")}
    started = []
    for name in names:
        job = name.partition("-")[2] or "worker"
        source = textwrap.dedent(SCRIPTS[name]).lstrip()
        if "{ps}" in source or "{worker}" in source:
            source = source.format(**ports)
        code_dir = work / name / "code"
        code_dir.mkdir(parents=True)
        (code_dir / "train.py").write_text(source)
        raw = work / f"{name}.raw"
        with raw.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "train.py", *FLAGS.format(**ports, job=job).split()],
                cwd=code_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": "-1"},
            )
        started.append((name, job, code_dir, raw, process))
    for _, job, _, _, process in started:
        if job == GROUPS.get(group, job):
            process.wait(timeout=180)
    for name, _, code_dir, raw, process in started:
        process.kill()
        process.wait()
        if name not in SKIPPED:
            (HERE / f"{name}.log").write_bytes(neutral(raw.read_bytes(), code_dir))
        sys.stdout.write(f"{name} {process.returncode}\n")


def neutral(log: bytes, code_dir: Path) -> bytes:
    """Replace this machine's directories."""
    site = Path(os.__file__).parent / "site-packages"
    inside = Path(sys.prefix) / "lib" / site.parent.name
    for found, shown in (
        (code_dir, "/home/ana/user-job-dir/code"),
        (inside, f"/home/ana/venv/lib/{site.parent.name}"),
        (site.parent, f"/usr/lib/{site.parent.name}"),
        (Path(sys.prefix), "/home/ana/venv"),
        (Path.home(), "/home/ana"),
    ):
        log = log.replace(str(found).encode(), shown.encode())
    return log


if __name__ == "__main__":
    main(sys.argv[1:])
