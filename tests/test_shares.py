"""Who sits where, and how a node is shared (contract R1 to R6)."""

from hypothesis import given
from hypothesis import strategies as st

from tfjob_magic.core.shares import Seat, Share, counts, deal, split

NODE = Share(72, 524288, 8, "V100", tuple(range(72)), tuple(f"GPU-{number}" for number in range(8)))
ROLES = st.lists(st.sampled_from(["ps", "worker"]), min_size=1, max_size=12).flatmap(
    lambda roles: st.sampled_from([roles, [*roles, "chief"], ["chief", *roles, "evaluator"]])
)


def test_r1_one_node_one_process_has_all():
    assert counts(1, None, None, chief=False) == (0, 1)
    assert split(NODE, ["worker"]) == (NODE,)


def test_r2_more_than_one_node_one_ps_and_one_worker_each():
    assert counts(3, None, None, chief=False) == (3, 3)
    seats = deal(3, 3, 3, chief=False, evaluator=False)
    assert [(seat.role, seat.node) for seat in seats] == [
        ("ps", 0),
        ("ps", 1),
        ("ps", 2),
        ("worker", 0),
        ("worker", 1),
        ("worker", 2),
    ]


def test_r3_cpu_and_memory_of_a_node_are_halved():
    ps, worker = split(NODE, ["ps", "worker"])
    assert (ps.cpus, ps.memory_mib) == (worker.cpus, worker.memory_mib) == (36, 262144)
    assert ps.cores == tuple(range(36))
    assert worker.cores == tuple(range(36, 72))


def test_r4_a_ps_never_gets_an_accelerator_and_a_worker_gets_all():
    ps, worker = split(NODE, ["ps", "worker"])
    assert (ps.accelerators, ps.accelerator, ps.devices) == (0, None, ())
    assert (worker.accelerators, worker.accelerator, worker.devices) == (8, "V100", NODE.devices)
    assert split(NODE, ["ps"])[0].accelerators == 0
    assert split(Share(8, 64, 0, None), ["ps", "worker"])[1].accelerator is None


def test_r6_an_odd_core_or_mib_goes_to_the_worker():
    ps, worker = split(Share(9, 1001, 0, None), ["ps", "worker"])
    assert (ps.cpus, worker.cpus) == (4, 5)
    assert (ps.memory_mib, worker.memory_mib) == (500, 501)


def test_a_remainder_goes_to_workers_first():
    shares = split(Share(11, 11, 3, "T4"), ["ps", "chief", "worker", "worker"])
    assert [share.cpus for share in shares] == [3, 2, 3, 3]
    assert [share.accelerators for share in shares] == [0, 0, 2, 1]


def test_chief_and_evaluator_sit_on_node_0_and_share_it_without_accelerators():
    seats = deal(2, 2, 2, chief=True, evaluator=True)
    assert Seat("chief", 0, 0) in seats
    assert Seat("evaluator", 0, 0) in seats
    shares = split(NODE, ["ps", "chief", "worker", "evaluator"])
    assert [share.cpus for share in shares] == [18, 18, 18, 18]
    assert [share.accelerators for share in shares] == [0, 0, 8, 0]


def test_a_chief_brings_a_ps_and_a_worker_on_a_single_node_too():
    assert counts(1, None, None, chief=True) == (1, 1)
    assert counts(1, 0, None, chief=True) == (0, 1)


def test_ps_0_gives_each_worker_the_whole_node():
    assert counts(2, 0, None, chief=False) == (0, 2)
    seats = deal(2, 0, 2, chief=False, evaluator=False)
    assert [(seat.role, seat.node) for seat in seats] == [("worker", 0), ("worker", 1)]


def test_counts_are_dealt_to_the_nodes_in_turn():
    seats = deal(2, 1, 3, chief=False, evaluator=False)
    assert [(seat.role, seat.index, seat.node) for seat in seats] == [
        ("ps", 0, 0),
        ("worker", 0, 0),
        ("worker", 1, 1),
        ("worker", 2, 0),
    ]


def test_with_fewer_cores_than_tasks_a_core_is_shared_and_workers_choose_first():
    shares = split(Share(2, 100, 0, None, (4, 7)), ["ps", "chief", "worker"])
    assert [share.cores for share in shares] == [(7,), (4,), (4,)]
    assert [share.cpus for share in shares] == [1, 1, 1]


@given(
    roles=ROLES,
    cpus=st.integers(1, 200),
    memory=st.integers(0, 2**22),
    accelerators=st.integers(0, 20),
)
def test_shares_never_exceed_the_node_and_totals_are_kept(roles, cpus, memory, accelerators):
    whole = Share(
        cpus,
        memory,
        accelerators,
        "A100" if accelerators else None,
        tuple(range(100, 100 + cpus)),
        tuple(f"GPU-{number}" for number in range(accelerators)),
    )
    shares = split(whole, roles)
    assert sum(share.memory_mib for share in shares) == memory
    cores = [core for share in shares for core in share.cores]
    if cpus >= len(roles):
        assert sorted(cores) == list(whole.cores)
    else:
        assert set(cores) == set(whole.cores)
        uses = [cores.count(core) for core in whole.cores]
        assert max(uses) - min(uses) <= 1
    devices = [device for share in shares for device in share.devices]
    assert devices == (list(whole.devices) if "worker" in roles else [])
    for role, share in zip(roles, shares, strict=True):
        assert share.cpus == len(share.cores) >= 1
        assert share.accelerators == len(share.devices)
        assert (share.accelerator is None) == (share.accelerators == 0)
        assert role == "worker" or not share.devices
    for amounts in (
        [share.memory_mib for share in shares],
        [share.cpus for share in shares],
        [share.accelerators for role, share in zip(roles, shares, strict=True) if role == "worker"],
    ):
        assert not amounts or max(amounts) - min(amounts) <= 1
