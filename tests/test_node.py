"""One machine carved into a job's nodes."""

from dataclasses import replace
from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic.core.flavor import Flavor
from tfjob_magic.core.job import parse
from tfjob_magic.core.node import Device, Machine, Nic, carve, loopback, same_kind


def job(**fields):
    raw = {
        "name": "mnist",
        "job_dir": "/user-job-dir",
        "code_dir": "mnist",
        "flavor": "v100x8",
        "python": "/usr/bin/python3",
    }
    return parse({**raw, **fields}, {})


def machine(cores=2, memory=24000, devices=0, kind="Tesla V100-SXM2-32GB", nics=()):
    return Machine(
        tuple(range(cores)),
        memory,
        tuple(Device(f"GPU-{number}", kind, 32768) for number in range(devices)),
        nics,
    )


def test_a_machine_with_enough_gives_each_node_exactly_the_flavor():
    first, second = carve(machine(200, 2_000_000, 20), job(nodes=2))
    assert first.capacity.cores == tuple(range(72))
    assert second.capacity.cores == tuple(range(72, 144))
    for node, devices in ((first, range(8)), (second, range(8, 16))):
        assert (node.capacity.cpus, node.capacity.memory_mib) == (72, 524288)
        assert node.capacity.devices == tuple(f"GPU-{number}" for number in devices)


def test_cores_are_given_out_in_the_machines_order():
    free_first = Machine((5, 1, 3, 0), 64000, (), ())
    assert carve(free_first, job(flavor="cpu-2c4g"))[0].capacity.cores == (5, 1)


def test_r8_two_nodes_on_two_cores_have_one_each():
    first, second = carve(machine(2), job(nodes=2))
    assert (first.capacity.cores, second.capacity.cores) == ((0,), (1,))
    assert first.capacity.memory_mib == second.capacity.memory_mib == 12000


def test_r8_more_nodes_than_cores_share_them_in_turn():
    nodes = carve(machine(2), job(nodes=5))
    assert [node.capacity.cores for node in nodes] == [(0,), (1,), (0,), (1,), (0,)]


def test_r8_what_is_not_short_is_not_scaled():
    (node,) = carve(machine(100, 1000, 0), job())
    assert (node.capacity.cpus, node.capacity.memory_mib) == (72, 1000)


def test_r8_devices_are_dealt_to_worker_0_first():
    def dealt(devices, **fields):
        return [
            node.capacity.accelerators for node in carve(machine(devices=devices), job(**fields))
        ]

    assert dealt(1, nodes=2) == [1, 0]
    assert dealt(3, nodes=2) == [2, 1]
    assert dealt(99, nodes=2) == [8, 8]
    assert dealt(3, nodes=3, ps=3, workers=2) == [2, 1, 0]


def test_devices_of_the_kind_asked_for_come_first():
    mixed = Machine((0,), 1000, (Device("T4", "Tesla T4", 1), Device("V", "Tesla V100", 1)), ())
    assert carve(mixed, job())[0].capacity.devices == ("V", "T4")


def test_r4_a_cpu_flavor_gets_no_device():
    assert carve(machine(devices=4), job(flavor="cpu-2c4g"))[0].capacity.accelerators == 0


def test_a_kind_is_known_by_its_word():
    assert same_kind("V100", "Tesla V100-SXM2-32GB")
    assert same_kind("NVIDIA-A100", "NVIDIA A100-SXM4-40GB")
    assert same_kind("a100-40gb", "NVIDIA A100-SXM4-40GB")
    assert not same_kind("L4", "NVIDIA L40S")
    assert not same_kind("V100", "NVIDIA H200")


def test_in_container_mode_each_node_has_a_loopback_address():
    assert [node.address for node in carve(machine(), job(nodes=3))] == [
        "127.0.0.2",
        "127.0.0.3",
        "127.0.0.4",
    ]


def test_in_host_mode_all_nodes_are_one_host():
    nodes = carve(machine(nics=(Nic("roce", "mlx5_0", 100),)), job(nodes=2, pool="dedicated"))
    assert [node.address for node in nodes] == ["127.0.0.1", "127.0.0.1"]


def test_a_system_with_one_loopback_address_uses_it_for_all():
    nodes = carve(machine(), job(nodes=2), one_address=True)
    assert [node.address for node in nodes] == ["127.0.0.1", "127.0.0.1"]


def test_a_single_task_sits_on_this_host():
    assert carve(machine(), job())[0].address == "127.0.0.1"


def test_a_thousand_nodes_have_a_thousand_loopback_addresses():
    addresses = [loopback(node) for node in range(1000)]
    assert addresses[:2] == ["127.0.0.2", "127.0.0.3"]
    assert addresses[252:255] == ["127.0.0.254", "127.0.1.1", "127.0.1.2"]
    assert len({ip_address(address) for address in addresses}) == 1000
    assert all(address.rpartition(".")[2] not in {"0", "255"} for address in addresses)


@given(
    nodes=st.integers(1, 12),
    workers=st.none() | st.integers(12, 30),
    cores=st.integers(1, 64),
    memory=st.integers(1000, 10**6),
    devices=st.integers(0, 40),
    asked=st.tuples(st.integers(8, 40), st.integers(1000, 10**5), st.integers(0, 8)),
)
def test_nodes_never_exceed_machine_or_flavor(*, nodes, workers, cores, memory, devices, asked):
    flavor = Flavor("mine", "V100" if asked[2] else None, asked[2], asked[0], asked[1])
    wanted = job(nodes=nodes, workers=workers, flavor=Flavor(**{**vars(flavor), "cpus": 64}))
    wanted = replace(wanted, flavor=flavor)
    carved = carve(machine(cores, memory, devices), wanted)
    assert len(carved) == nodes
    used = [core for node in carved for core in node.capacity.cores]
    assert set(used) <= set(range(cores))
    assert len(set(used)) == min(cores, nodes * flavor.cpus)
    assert len(used) == len(set(used)) or cores < nodes
    dealt = [device for node in carved for device in node.capacity.devices]
    assert len(dealt) == len(set(dealt)) == min(devices, nodes * flavor.accelerators)
    assert sum(node.capacity.memory_mib for node in carved) <= memory
    for node in carved:
        capacity = node.capacity
        assert 1 <= capacity.cpus == len(capacity.cores) <= flavor.cpus
        assert capacity.memory_mib <= flavor.memory_mib
        assert capacity.accelerators == len(capacity.devices) <= flavor.accelerators
