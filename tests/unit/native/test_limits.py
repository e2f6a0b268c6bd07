"""What a container leaves a process of its machine, as files of Linux's control groups say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart import _native


def write(root: Path, files: dict[str, str]) -> str:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return str(root)


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        ({}, (0.0, 0)),
        # version 2, seen from inside the container
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n", "sys/fs/cgroup/memory.max": "1048576\n"}, (1.5, 1 << 20)),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/memory.max": "max\n"}, (0.0, 0)),
        # a group below others: the tightest of all counts
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/a/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.max": "4096\n",
            },
            (2.0, 4096),
        ),
        # version 1
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/x\n1:name=systemd:/y\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "8192\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            (3.0, 8192),
        ),
        ({"proc/self/cgroup": "nonsense\n", "sys/fs/cgroup/cpu.max": "\n", "sys/fs/cgroup/memory.max": ""}, (0.0, 0)),
    ],
)
def test_limits(tmp_path: Path, files: dict[str, str], limits: tuple[float, int]) -> None:
    assert _native.container_limits(write(tmp_path, files)) == limits


def test_threads_by_default_keep_within_the_container_and_the_affinity() -> None:
    cores, _ = _native.container_limits()
    assert 1 <= _native.usable_cores() <= max(1, int(cores) if cores else 1024)
