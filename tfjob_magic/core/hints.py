"""What would help, by what a failing script said: a table, each row proven on a real log."""

from __future__ import annotations

import re

_FLAG = r"(?:--)?(?P<flag>(?:task_index|ps_hosts|PS_hosts|worker_hosts|job_name|task_name))\b"
_V1 = (
    "app|flags|logging|gfile|python_io|layers|placeholder|sparse_placeholder|Session"
    "|InteractiveSession|ConfigProto|GPUOptions|GraphOptions|OptimizerOptions|RunOptions"
    "|RunMetadata|GraphKeys|get_variable|variable_scope|get_default_session"
    "|get_default_graph|reset_default_graph|global_variables|local_variables"
    "|trainable_variables|global_variables_initializer|local_variables_initializer"
    "|initialize_all_variables|report_uninitialized_variables|assign|assign_add|assign_sub"
    "|set_random_seed|random_normal|random_uniform|truncated_normal|to_float|to_int32|to_int64"
    "|log|div|ceil|Server|Saver|Supervisor|Scaffold|MonitoredTrainingSession|MonitoredSession"
    "|SessionManager|replica_device_setter|SyncReplicasOptimizer|StopAtStepHook"
    "|SessionRunHook|LoggingTensorHook|CheckpointSaverHook|SummarySaverHook|GradientDescentOptimizer"
    "|AdamOptimizer|AdagradOptimizer|MomentumOptimizer|RMSPropOptimizer|FtrlOptimizer"
    "|exponential_decay|get_global_step|get_or_create_global_step|create_global_step"
    "|FileWriter|merge_all|train_and_evaluate|string_input_producer"
)
_CURE = "`import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()`"
_LEGACY = "install tf_keras for {python} and start with --env TF_USE_LEGACY_KERAS=1"
_MEMORY = "out of memory: try a smaller batch or model, fewer tasks here, or a larger flavor"
_RELATIVE = (
    "a relative path starts in the code dir: a file beside the notebook is ../../{path} there, or"
    " give the absolute path"
)

TABLE: dict[str, str] = {
    # the command line (contract C6)
    rf"(?:arguments are required:|Missing option)[^\n]{{0,400}}?{_FLAG}": (
        "the script requires --{flag}, which is passed to jobs with several nodes only, and where"
        " --cluster-flags does not leave it out: use --nodes 2 or more, --cluster-flags all, or"
        " give it a default"
    ),
    rf"(?:unrecognized arguments:[^\n]{{0,400}}?|option:? '?|Unknown command line flag '"
    rf"|consume arg: ){_FLAG}": (
        "the script's parser refuses --{flag}, which ModelArts passes to every task of a job with"
        " several nodes: declare it, or use --cluster-flags auto (leaves out what the parser"
        " refuses) or none"
    ),
    r"(?:unrecognized arguments:|[Nn]o such option:?|Unknown command line flag)"
    r" '?-*(?P<flag>[^\s']+)": (
        "the script does not declare --{flag}: correct it among the job's parameters, after `--`"
    ),
    rf"invalid literal for int\(\) with base 10: '{_FLAG}'": (
        "the script reads sys.argv by position and found --{flag}, which ModelArts passes too: read"
        " the flags with argparse, or use --cluster-flags none"
    ),
    r"DuplicateFlagError: The flag '(?P<flag>\w+)' is defined twice\. First from absl": (
        "absl has a flag --{flag} of its own: give the script's another name"
    ),
    r"UnparsedFlagAccessError": (
        "absl reads the command line in app.run(main) only: start the script with it"
    ),
    # imports and Python 2
    r"No module named 'tensorflow\.contrib|module 'tensorflow' has no attribute 'contrib'": (
        "tf.contrib ended with TensorFlow 1 and compat.v1 has none: take that part from tf_slim,"
        " Keras or the script's own code, or choose a TensorFlow 1 interpreter with --python"
    ),
    r"No module named 'tensorflow\.examples": (
        "tensorflow.examples ended with TensorFlow 1: tf.keras.datasets.mnist has the same data"
    ),
    r"Missing parentheses in call to '(?:print|exec)'|multiple exception types must be paren"
    r"|name '(?:xrange|raw_input|unicode|basestring)' is not defined"
    r"|No module named '(?:urllib2|cPickle|ConfigParser|Queue|StringIO|Tkinter|commands)'": (
        "this is Python 2, and {python} is Python 3: convert the script (2to3), or choose another"
        " interpreter with --python"
    ),
    r"No module named '(?P<name>[\w.]+)'": (
        "{name} is not installed for {python}: install it there, put it beside the boot file, or"
        " choose another interpreter with --python"
    ),
    r"attempted relative import with no known parent package": (
        "a boot file is started as a file, not as part of a package: write `import model` instead"
        " of `from . import model`"
    ),
    # the habits of a notebook
    r"NameError: name '(?P<name>display|get_ipython)' is not defined": (
        "{name} is IPython's, and the cell runs as a Python file in its own process: leave it out,"
        " or use print"
    ),
    r"NameError: name '(?P<name>\w+)' is not defined": (
        "the cell runs as a file in its own process and does not see the notebook's variables:"
        " define or import `{name}` in it, or pass the value after `--`"
    ),
    r"No such file or directory: '(?:\./)?(?P<path>[^/.'][^'\n]*)'": _RELATIVE,
    r"NotFoundError: (?:\{\{[^}\n]*\}\} )?(?:\./)?(?P<path>[^/.;\s][^;\n]*); No such": _RELATIVE,
    # TensorFlow 1
    rf"module 'tensorflow(?:\.[\w.]+)?' has no attribute '(?P<name>{_V1})'": (
        f"`{{name}}` is TensorFlow 1's: begin the script with {_CURE}"
    ),
    r"(?:not compatible with|not supported when) eager execution|The Session graph is empty": (
        f"this is TensorFlow 1 code under TensorFlow 2's rules: begin the script with {_CURE}"
    ),
    r"`(?P<name>\w+)` is not available with Keras 3": (
        f"tf.layers needs Keras 2: {_LEGACY}"
    ),
    r"Argument\(s\) not recognized: \{[^}]{0,200}'lr'": (
        "Keras 3 calls it `learning_rate`, not `lr`"
    ),
    r"Attempt to convert a value \(PerReplica|ClusterCoordinator\.create_per_worker_dataset"
    r"|Unrecognized data type: x=PerReplica": (
        f"Keras 3 cannot fit under this strategy: {_LEGACY}, or write the training loop yourself"
    ),
    # the cluster, data, memory
    r"resolved for '[^']*:(?P<port>\d+)'[\s\S]*Could not start gRPC server": (
        "port {port} is taken on this machine; where it is written into the script, read the"
        " addresses from --ps_hosts and --worker_hosts or TF_CONFIG: every run gets free ones"
    ),
    r"Could not start gRPC server": (
        "the task's port is taken on this machine; read the addresses from --ps_hosts and"
        " --worker_hosts or TF_CONFIG: every run gets free ones"
    ),
    r"Task (?P<index>\d+) was not defined in job \"(?P<job>\w+)\"": (
        "the script's own cluster has no {job} {index}: read the addresses from --ps_hosts and"
        " --worker_hosts or TF_CONFIG instead of writing them down"
    ),
    r"scheme 'hdfs' not implemented|hdfs://|libhdfs": (
        "HDFS cannot be reached from here: copy the data beside the boot file"
    ),
    r"URL fetch failure|URLError|Name or service not known|name resolution|gaierror": (
        "a download failed: fetch the data beforehand, into the code dir or ~/.keras/datasets"
    ),
    r"EOF when reading a line": "a task has no keyboard: pass what it asks for as a parameter",
    r"ResourceExhaustedError|OOM when allocating|std::bad_alloc|MemoryError": _MEMORY,
}  # fmt: skip
_HINTS = tuple((re.compile(pattern), words) for pattern, words in TABLE.items())


def hint(said: str, python: str) -> str | None:
    """Return the sentence that would help after what was said; None where the table has none."""
    for pattern, words in _HINTS:
        if (match := pattern.search(said)) is not None:
            return words.format(python=python, **match.groupdict())
    return None
