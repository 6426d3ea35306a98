"""The commands that serve an exported folder from NVIDIA's Triton container, for machines without nvidia-pytriton."""

import shlex
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from course_lib.files import require_other
from course_lib.serving import ini, layout
from course_lib.serving.repository import LOOPBACK

IMAGE = "nvcr.io/nvidia/tritonserver:25.01-py3"  # Python 3.12
PORTS = (8000, 8001, 8002)  # HTTP, gRPC, metrics


def commands(folder: Path, models: Path, options: Sequence[str] = ()) -> str:
    """Return two shell commands: one writes a repository to `models`, with these options; one starts the container."""
    weights_folder, ranks = layout.find(folder)
    # Check DIR now, as the first command would
    ini.read(weights_folder, ranks)
    require_other(folder, models)
    weights = f"/weights/{weights_folder.resolve().name}"
    write = ["course", "serve", str(folder), "-o", str(models), *options, "--weights", weights]
    project = dict(line.split(", ", 1) for line in metadata.metadata("japanese-lm-course").get_all("Project-URL") or [])
    install = f"pip install torch transformers {project['Repository']}/archive/HEAD.tar.gz"
    inside = f"{install} && tritonserver --model-repository=/models"
    run = ["docker", "run", "--rm", "--shm-size=1g"]
    for source, target in ((weights_folder.resolve().parent, "/weights"), (models.resolve(), "/models")):
        run += ["-v", f"{source}:{target}:ro"]
    for port in PORTS:
        run += ["-p", f"{LOOPBACK}:{port}:{port}"]
    return "\n".join([shlex.join(write), shlex.join([*run, IMAGE, "sh", "-c", inside])])
