"""The smallest PS job: says when its first line and its first training step are there."""

print("mark: first line", flush=True)

import argparse  # noqa: E402 - the first line comes before everything

import tensorflow.compat.v1 as tf  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts", type=lambda hosts: hosts.split(","))
parser.add_argument("--worker_hosts", type=lambda hosts: hosts.split(","))
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
args = parser.parse_args()

tf.disable_eager_execution()
cluster = tf.train.ClusterSpec({"ps": args.ps_hosts, "worker": args.worker_hosts})
server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
if args.job_name == "ps":
    server.join()

me = f"/job:worker/task:{args.task_index}"
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=me)):
    weight = tf.get_variable("weight", [])
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.square(weight - 1.0))
    init, missing = tf.global_variables_initializer(), tf.report_uninitialized_variables()

config = tf.ConfigProto(device_filters=["/job:ps", me])
sessions = tf.train.SessionManager(ready_op=missing, recovery_wait_secs=0.1)
if args.task_index == 0:
    session = sessions.prepare_session(server.target, init_op=init, config=config)
else:
    session = sessions.wait_for_session(server.target, config=config)
session.run(train)
print("mark: first step", flush=True)
