"""Python imports this module when it starts, if its folder is on PYTHONPATH: so the ranks of a held command wait, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.training import held

held.hold()
