"""The whole way on a Ray cluster of two nodes, all on loopback. A worker of it is killed, and later a whole node."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from course_lib.scale.config import ScaleConfig
from course_lib.scale.stages import Documents
from course_lib.scale.text import Segment
from course_lib.settings import config

from tests.scale.corpora import plain, scaled, settings

ray = pytest.importorskip("ray")

# Started as a program, because the cluster's settings are read from the environment when Ray is imported.
PROGRAM = """
import sys
import ray
from ray.cluster_utils import Cluster
from course_lib.settings import config
from course_lib.scale.config import ScaleConfig
from course_lib.scale.run import STAGES, run
from tests.scale import test_ray

if __name__ == "__main__":
    try:
        cluster = Cluster(initialize_head=True, head_node_args=test_ray.NODE | {"include_dashboard": False})
        second = cluster.add_node(**test_ray.NODE)
    except Exception as error:
        sys.exit(test_ray.BUSY if "timed out during startup" in str(error) else str(error))
    try:
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        assert len(ray.nodes()) == 2
        settings = config.load(ScaleConfig, sys.argv[1])
        test_ray.raylet(settings).write_text(str(second.all_processes["raylet"][0].process.pid))
        run.__globals__["STAGES"] = tuple(test_ray.KILLING.get(one, one) for one in STAGES)
        print(run(settings, "ray"))
        print("nodes alive:", sum(node["Alive"] for node in ray.nodes()))
    finally:
        ray.shutdown()
        cluster.shutdown()
"""
# Exit code if a node did not start within Ray's fixed limit of 30 s, as on a busy machine.
BUSY = 75
NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20, "memory": 1 << 30}


class KilledWorker(Documents):
    """The stage, but the first time that a unit is worked on, the worker process of Ray around it is killed."""

    def work(self, unit: str, folder: Path) -> dict[str, Any]:
        note = super().work(unit, folder)
        once = Path(self.settings.output) / "killed"
        if unit == "00003" and not once.exists():
            once.touch()
            # datatrove runs a task in a child of Ray's worker.
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(1)
        return note


class KilledNode(Segment):
    """The stage, but the first unit on the second node ends the node, with all its processes."""

    def work(self, unit: str, folder: Path) -> None:
        super().work(unit, folder)
        node = raylet(self.settings)
        if node.exists() and node.read_text() == os.environ["RAY_RAYLET_PID"]:
            node.unlink()
            os.kill(int(os.environ["RAY_RAYLET_PID"]), signal.SIGKILL)
            os._exit(1)


KILLING = {Documents: KilledWorker, Segment: KilledNode}


def raylet(settings: ScaleConfig) -> Path:
    """The file with the process number of the second node's raylet, until the node is killed."""
    return Path(settings.output).parent / "raylet"


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment for a cluster on loopback; its temporary folder has a short path, because it has sockets."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    yield os.environ | {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": folder,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    shutil.rmtree(folder, ignore_errors=True)


def test_two_nodes_of_which_a_worker_and_then_one_is_killed(tmp_path: Path, loopback: dict[str, str]) -> None:
    chosen = settings(tmp_path / "run", tasks=2, workers=2, ray={"memory_gb": 0.4})
    (tmp_path / "run.yaml").write_text(config.to_yaml(chosen), encoding="utf8")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf8")
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "run.yaml")]
    for _ in range(20):
        process = subprocess.Popen(
            command, env=loopback, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            out, err = process.communicate()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode != BUSY:
            break
    assert process.returncode == 0, err[-3000:]
    assert "kept 348 of 376 documents" in out and (tmp_path / "run" / "killed").exists()
    assert "nodes alive: 1" in out and not raylet(chosen).exists()
    assert scaled(chosen.output) == plain(tmp_path / "plain", chosen)
