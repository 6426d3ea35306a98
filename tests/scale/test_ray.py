"""The whole way on a Ray cluster of two nodes, all on loopback, and a worker of it that is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from course_lib import config

from tests.scale.corpora import plain, scaled, settings

ray = pytest.importorskip("ray")

# Started as a program, because the cluster's settings are read from the environment when Ray is imported.
PROGRAM = """
import sys
import ray
from pathlib import Path
from ray.cluster_utils import Cluster
from course_lib import config
from course_lib.scale.config import ScaleConfig
from course_lib.scale.run import run
from tests.scale import test_ray

if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args=test_ray.NODE | {"include_dashboard": False})
    try:
        cluster.add_node(**test_ray.NODE)
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        assert len(ray.nodes()) == 2
        if sys.argv[2] == "kill":
            test_ray.kill_once()
        print(run(config.load(ScaleConfig, sys.argv[1]), "ray"))
    finally:
        ray.shutdown()
        cluster.shutdown()
"""
NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20, "memory": 1 << 30}
