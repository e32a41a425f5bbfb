"""TensorFlow's strategies for several tasks get on where each task is granted a single core."""

from __future__ import annotations

import os

import pytest
from conftest import whole_logs

from tfjob_magic.service.inprocess import Service

PARAMETER_SERVERS = """
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
        protocol="grpc", start=True,
    ).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.ones([4]))

@tf.function
def step():
    def replica():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights * weights)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
    strategy.run(replica)

for _ in range(20):
    coordinator.schedule(step)
coordinator.join()
print("trained", float(tf.reduce_sum(weights * weights)) < 3)
"""

MIRRORED = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weights = tf.Variable(tf.ones([4]))

@tf.function
def step():
    def replica():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights * weights)
        here = tape.gradient(loss, weights)
        both = tf.distribute.get_replica_context().all_reduce("sum", here)
        weights.assign_sub(0.01 * both)
    strategy.run(replica)

for _ in range(5):
    step()
print("trained", float(tf.reduce_sum(weights.read_value() ** 2)) < 3)
"""


@pytest.fixture
def two_cores():
    """Leave this process two cores: one for each of two nodes."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system does not tie processes to cores")
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_of_them)[:2])
    yield
    os.sched_setaffinity(0, all_of_them)


@pytest.mark.tensorflow
@pytest.mark.usefixtures("two_cores")
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("program", "fields", "trained"),
    [
        pytest.param(PARAMETER_SERVERS, {"chief": True}, ["chief-0"], id="ps"),
        pytest.param(MIRRORED, {"ps": 0}, ["worker-0", "worker-1"], id="mirrored"),
    ],
)
def test_a_strategy_trains_with_one_core_a_node(home, job, program, fields, trained):
    service = Service()
    asked = job(program, nodes=2, flavor="cpu-8c32g", timeout=150, **fields)
    run = service.submit(asked).id
    cursors: dict[str, int] = {}
    while not (batch := service.poll(run, cursors, 10.0)).run.over:
        cursors |= {chunk.task: chunk.offset + len(chunk.data) for chunk in batch.chunks}
    logs = whole_logs(service, run)
    assert batch.run.phase == "succeeded", logs
    for task in trained:
        assert logs[task].splitlines()[-1] == b"trained True", logs
