"""Adds data/ to the wheel, as course_lib/data, without the weights of its model. hatchling calls this module."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BundledTexts(BuildHookInterface):
    """Build hook for the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files, but not in an editable install: Python would take the folder for the library."""
        if version == "editable":
            return
        data = Path(self.root, "data")
        for path in sorted(data.rglob("*")):
            # course_lib/checkpoints/aozora.py takes the weights from the page of the release.
            if path.is_file() and path.name != "model.safetensors":
                build_data["force_include"][str(path)] = f"course_lib/data/{path.relative_to(data).as_posix()}"
