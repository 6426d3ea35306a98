"""Adds the bundled texts to the wheel: data/ becomes course_lib/data. hatchling calls this module."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BundledTexts(BuildHookInterface):
    """Build hook for the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folder, but not in an editable install: Python would take it for the library."""
        if version != "editable":
            build_data["force_include"][str(Path(self.root, "data"))] = "course_lib/data"
