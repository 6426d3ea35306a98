"""The stage of a rehearsal: a stand-in for the Hub, a mirror of the corpora, and a profile that names both."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.checkpoints import hub
from tests.checkpoints.hub import Hub
from tests.corpus.mirror import Mirror, serving
from tests.rehearsal import build, published
from tests.rehearsal.mirror import publish

REPOSITORIES = (published.GPTSAN, published.NEOX_SMALL, published.NEOX_LARGE)


@dataclass
class Stage:
    """What a rehearsal runs on: the two servers, and the environment for its processes."""

    hub: Hub
    mirror: Mirror
    environment: dict[str, str]

    def downloaded(self) -> list[str]:
        """Return the addresses that were downloaded, without host names, in order."""
        from_mirror = [request.path for request in self.mirror.requests if request.method == "GET"]
        return from_mirror + [path for method, path in self.hub.requests if method == "GET"]


@contextmanager
def standing(name: str, folder: Path) -> Iterator[Stage]:
    """Set the stage for a profile in a folder that may already hold one, and serve while the block runs.

    The workspace and the client's cache are in the folder. The processes get the addresses of the servers and no
    others, so that nothing is fetched from the real Hub or a real mirror.
    """
    if not (folder / "hub").is_dir():
        published.write_all(folder / "hub")
    build.copy_settings(folder)
    # Stands for the mounted drive of the profile colab; the other profiles have none.
    drive = folder / ("drive" if name == "colab" else "none")
    if name == "colab":
        drive.mkdir(exist_ok=True)
    # The mirror's address is a setting of the downloads: another port would make them stale.
    port = folder / "port"
    with hub.running() as models, serving(int(port.read_text()) if port.exists() else 0) as texts:
        port.write_text(texts.address.rpartition(":")[2])
        for repository in REPOSITORIES:
            models.publish(repository, folder / "hub" / repository)
        publish(texts)
        profile = folder / f"{name}-rehearsal.yaml"
        mirrors = f"{{wikipedia_mirror: '{texts.address}', cc100_mirror: '{texts.address}/cc-100'}}"
        profile.write_text(
            f"extends: {name}-small.yaml\ncorpus: {{download: {mirrors}}}\n"
            f"training: {{runs: {{folder: {drive / 'course'}}}}}\n",
            encoding="utf8",
        )
        variables = {
            "COURSE_PROFILE": str(profile),
            "COURSE_WORKSPACE": str(folder / "workspace"),
            "HF_ENDPOINT": models.endpoint,
            "HF_HOME": str(folder / "hf-home"),
            # the stand-in sends files by plain HTTP
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "*",
        }
        outside = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "PYTEST_"))}
        yield Stage(models, texts, outside | variables)
