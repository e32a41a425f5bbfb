"""What a machine has, read from fake /proc and /sys trees."""

import errno
import os
import sys
import types

import psutil
import pytest

from tfjob_magic.core.node import Device, Nic
from tfjob_magic.errors import UnavailableError
from tfjob_magic.machine import look


@pytest.fixture(autouse=True)
def many_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {7, 3, 1, 5, 9, 11}, raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if it were not installed
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def tree(root, files):
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


V2 = {"proc/self/cgroup": "0::/user.slice/job\n"}
V1 = {"proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n"}


def test_without_a_cgroup_the_cores_are_the_affinitys(tmp_path):
    assert look(tmp_path).cores == (1, 3, 5, 7, 9, 11)


def test_without_affinity_the_cores_are_all(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert look(tmp_path).cores == (0, 1, 2)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EMFILE])
def test_a_system_that_does_not_tell_is_an_error_for_the_user(tmp_path, monkeypatch, number):
    def fail():
        raise OSError(number, os.strerror(number), "/proc/meminfo")

    monkeypatch.setattr(psutil, "virtual_memory", fail)
    with pytest.raises(UnavailableError, match=os.strerror(number)):
        look(tmp_path)


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 6), ("200000 100000", 2), ("50000 100000", 1), ("250000 100000", 2), ("", 6)],
)
def test_a_cgroup_v2_quota_limits_the_cores(tmp_path, quota, cores):
    root = tree(tmp_path, {**V2, "sys/fs/cgroup/user.slice/job/cpu.max": quota})
    assert len(look(root).cores) == cores


def test_a_quota_of_a_cgroup_above_limits_too(tmp_path):
    root = tree(
        tmp_path,
        {
            **V2,
            "sys/fs/cgroup/user.slice/job/cpu.max": "max 100000",
            "sys/fs/cgroup/user.slice/cpu.max": "200000 100000",
        },
    )
    assert look(root).cores == (1, 3)


def test_in_a_container_the_mounts_own_quota_counts(tmp_path):
    root = tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "300000 100000"})
    assert len(look(root).cores) == 3


@pytest.mark.parametrize(("quota", "cores"), [("-1", 6), ("400000", 4), ("10000", 1)])
@pytest.mark.parametrize("mount", ["cpu,cpuacct/docker/abc", "cpu,cpuacct", "cpu"])
def test_a_cgroup_v1_quota_limits_the_cores(tmp_path, quota, cores, mount):
    root = tree(
        tmp_path,
        {
            **V1,
            f"sys/fs/cgroup/{mount}/cpu.cfs_quota_us": quota,
            f"sys/fs/cgroup/{mount}/cpu.cfs_period_us": "100000",
        },
    )
    assert len(look(root).cores) == cores


def test_memory_is_the_machines_or_the_cgroups_limit(tmp_path):
    total = psutil.virtual_memory().total
    assert look(tmp_path).memory_mib == total // 2**20
    limit = "sys/fs/cgroup/user.slice/job/memory.max"
    assert look(tree(tmp_path, {**V2, limit: "max\n"})).memory_mib == total // 2**20
    assert look(tree(tmp_path, {**V2, limit: str(300 * 2**20)})).memory_mib == 300


def test_memory_of_a_cgroup_v1_is_limited_unless_the_limit_is_none(tmp_path):
    limit = "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes"
    unlimited = look(tree(tmp_path, {**V1, limit: "9223372036854771712"}))
    assert unlimited.memory_mib == psutil.virtual_memory().total // 2**20
    assert look(tree(tmp_path, {**V1, limit: str(200 * 2**20)})).memory_mib == 200


def nic(card, port=1, layer="InfiniBand", rate="100 Gb/sec (4X EDR)", state="4: ACTIVE"):
    base = f"sys/class/infiniband/{card}/ports/{port}"
    return {
        f"{base}/link_layer": f"{layer}\n",
        f"{base}/rate": f"{rate}\n",
        f"{base}/state": f"{state}\n",
    }


def test_n6_nics_are_read_from_their_ports(tmp_path):
    files = {**nic("mlx5_0"), **nic("mlx5_1", layer="Ethernet", rate="25 Gb/sec (1X EDR)")}
    assert look(tree(tmp_path, files)).nics == (
        Nic("infiniband", "mlx5_0", 100),
        Nic("roce", "mlx5_1", 25),
    )


def test_a_port_without_a_link_is_not_counted(tmp_path):
    files = {**nic("mlx5_0", state="1: DOWN"), **nic("mlx5_1", state="2: INIT")}
    assert look(tree(tmp_path, files)).nics == ()


def test_a_card_counts_once_by_its_fastest_active_port(tmp_path):
    files = {
        **nic("mlx5_0", 1, rate="10 Gb/sec (4X SDR)"),
        **nic("mlx5_0", 2, layer="Ethernet", rate="100 Gb/sec (4X EDR)"),
        **nic("mlx5_0", 3, rate="200 Gb/sec (4X HDR)", state="1: DOWN"),
    }
    assert look(tree(tmp_path, files)).nics == (Nic("roce", "mlx5_0", 100),)


def test_a_rate_that_cannot_be_read_is_unknown(tmp_path):
    assert look(tree(tmp_path, nic("rxe0", layer="Ethernet", rate="?"))).nics == (
        Nic("roce", "rxe0", None),
    )


class FakeNvml(types.ModuleType):
    """NVML with two cards, the second in two slices; `broken` names calls that fail."""

    class NVMLError(Exception):
        """What NVML raises."""

    def __init__(self, *broken):
        super().__init__("pynvml")
        self.broken = set(broken)
        self.open = 0

    def _call(self, name, value=None):
        if name in self.broken:
            raise self.NVMLError(name)
        return value

    def nvmlInit(self):  # noqa: N802
        self._call("init")
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self):  # noqa: N802
        return self._call("count", 2)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return self._call("handle", f"card-{index}")

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return b"NVIDIA A100" if handle == "card-0" else "NVIDIA H100"

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return f"uuid-of-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return self._call("memory", types.SimpleNamespace(total=len(handle) * 2**30))

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802
        if handle == "card-0":
            raise self.NVMLError("NotSupported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):  # noqa: N802
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):  # noqa: N802
        if index == 1:
            raise self.NVMLError("NotFound")
        return f"{handle}-slice-{index}"


def test_devices_are_the_drivers_by_uuid_and_slices_one_by_one(tmp_path, monkeypatch):
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert look(tmp_path).devices == (
        Device("uuid-of-card-0", "NVIDIA A100", 6 * 1024),
        Device("uuid-of-card-1-slice-0", "NVIDIA H100", 14 * 1024),
        Device("uuid-of-card-1-slice-2", "NVIDIA H100", 14 * 1024),
    )
    assert nvml.open == 0


@pytest.mark.parametrize("broken", ["init", "count", "handle"])
def test_without_driver_or_permission_there_are_no_devices(tmp_path, monkeypatch, broken):
    nvml = FakeNvml(broken)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert look(tmp_path).devices == ()
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("listed", "seen"),
    [
        ("0", [0]),
        ("2,0", [2, 0]),
        ("uuid-of-card-1-slice-2", [2]),
        ("uuid-of-card-0,1", [0, 1]),
        ("", []),
        ("-1", []),
        ("0,-1,1", [0]),
        ("7", []),
    ],
)
def test_devices_that_are_hidden_from_this_process_are_not_ours(
    tmp_path, monkeypatch, listed, seen
):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    everything = look(tmp_path).devices
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert look(tmp_path).devices == tuple(everything[place] for place in seen)


def test_memory_that_a_device_does_not_tell_is_unknown_not_0(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("memory"))
    assert {device.memory_mib for device in look(tmp_path).devices} == {None}


def test_this_machine_can_be_looked_at():
    machine = look()
    assert machine.cores
    assert machine.memory_mib > 0
