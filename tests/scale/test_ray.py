"""The whole way on a Ray cluster of two nodes, all on loopback, and a worker of it that is killed."""

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
from course_lib import config
from course_lib.scale.stages import Documents
from course_lib.scale.store import Output

from tests.scale.corpora import plain, scaled, settings

ray = pytest.importorskip("ray")

# Started as a program, because the cluster's settings are read from the environment when Ray is imported.
PROGRAM = """
import sys
import ray
from ray.cluster_utils import Cluster
from course_lib import config
from course_lib.scale.config import ScaleConfig
from course_lib.scale.run import STAGES, run
from course_lib.scale.stages import Documents
from tests.scale import test_ray

if __name__ == "__main__":
    try:
        cluster = Cluster(initialize_head=True, head_node_args=test_ray.NODE | {"include_dashboard": False})
        cluster.add_node(**test_ray.NODE)
    except Exception as error:
        sys.exit(test_ray.BUSY if "timed out during startup" in str(error) else str(error))
    try:
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        assert len(ray.nodes()) == 2
        run.__globals__["STAGES"] = tuple(test_ray.Killed if one is Documents else one for one in STAGES)
        print(run(config.load(ScaleConfig, sys.argv[1]), "ray"))
    finally:
        ray.shutdown()
        cluster.shutdown()
"""
# Exit code if a node did not start within Ray's fixed limit of 30 s, as on a busy machine.
BUSY = 75
NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20, "memory": 1 << 30}


class Killed(Documents):
    """The stage, but the first time that a unit is worked on, the worker process of Ray around it is killed."""

    def work(self, unit: str, output: Output) -> dict[str, Any]:
        note = super().work(unit, output)
        once = Path(self.settings.output) / "killed"
        if unit == "00003" and not once.exists():
            once.touch()
            # datatrove runs a task in a child of Ray's worker.
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(1)
        return note


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


def test_two_nodes_of_which_a_worker_is_killed(tmp_path: Path, loopback: dict[str, str]) -> None:
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
    assert scaled(chosen.output) == plain(tmp_path / "plain", chosen)
