"""The network rule (contract N1 to N6)."""

import pytest

from tfjob_magic.core.job import parse
from tfjob_magic.core.network import choose
from tfjob_magic.core.node import Nic

ROCE = Nic("roce", "mlx5_0", 25)
INFINIBAND = Nic("infiniband", "mlx5_1", 100)


def network(*nics, **fields):
    raw = {
        "name": "mnist",
        "job_dir": "/user-job-dir",
        "code_dir": "mnist",
        "flavor": "v100x8",
        "python": "/usr/bin/python3",
        "nodes": 2,
    }
    return choose(parse({**raw, **fields}, {}), nics)


@pytest.mark.parametrize(
    "fields", [{}, {"pool": "dedicated"}, {"network": "host"}, {"nic": "roce"}, {"ps": 0}]
)
def test_n1_a_single_task_has_no_network_whatever_is_asked(fields):
    chosen = network(ROCE, nodes=1, **fields)
    assert (chosen.mode, chosen.nic) == ("none", None)
    assert "single task" in chosen.reason


@pytest.mark.parametrize(
    "fields", [{"workers": 2}, {"ps": 1}, {"chief": True}, {"evaluator": True}]
)
def test_several_tasks_on_one_node_have_a_network(fields):
    assert network(nodes=1, **fields).mode == "container"


def test_n2_several_nodes_in_a_shared_pool_use_the_container_network():
    for nics in ((), (ROCE,), (INFINIBAND,)):
        chosen = network(*nics)
        assert chosen.mode == "container"
        assert "shared pool" in chosen.reason


def test_n3_a_dedicated_pool_with_roce_uses_the_host_network():
    chosen = network(ROCE, pool="dedicated")
    assert (chosen.mode, chosen.nic) == ("host", ROCE)
    assert "RoCE" in chosen.reason


def test_n4_a_dedicated_pool_with_infiniband_uses_the_container_network():
    chosen = network(INFINIBAND, pool="dedicated")
    assert (chosen.mode, chosen.nic) == ("container", INFINIBAND)
    assert "InfiniBand" in chosen.reason


def test_n5_the_fastest_card_is_named_with_its_bandwidth():
    chosen = network(ROCE, INFINIBAND, Nic("roce", "mlx5_2", None))
    assert chosen.nic == INFINIBAND


def test_n6_a_dedicated_pool_with_neither_uses_the_container_network():
    chosen = network(pool="dedicated")
    assert (chosen.mode, chosen.nic) == ("container", None)
    assert "without RoCE or InfiniBand" in chosen.reason
    assert network(ROCE, pool="dedicated", nic="none") == chosen


def test_n6_the_user_overrides_the_nic_and_only_a_card_that_was_found_is_named():
    assert network(ROCE, INFINIBAND, pool="dedicated", nic="roce").nic == ROCE
    assert network(ROCE, INFINIBAND, pool="dedicated", nic="roce").mode == "host"
    assert network(pool="dedicated", nic="roce").mode == "host"
    assert network(pool="dedicated", nic="roce").nic is None
    assert network(ROCE, pool="dedicated", nic="infiniband").mode == "container"


@pytest.mark.parametrize("mode", ["container", "host"])
def test_n6_the_user_overrides_the_mode(mode):
    for fields in ({}, {"pool": "dedicated"}, {"nic": "infiniband"}):
        chosen = network(ROCE, network=mode, **fields)
        assert chosen.mode == mode
        assert f"--network {mode}" in chosen.reason
