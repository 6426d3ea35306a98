"""Environment variables of other programs that would change a run."""

from collections.abc import MutableMapping

# Accelerate, which the Trainer uses, reads settings from variables with this prefix, as `accelerate launch` sets them:
# with ACCELERATE_MIXED_PRECISION=bf16 it trains an fp32 run in bf16 (accelerate/state.py, utils/dataclasses.py).
PREFIX = "ACCELERATE_"


def remove_settings(environment: MutableMapping[str, str]) -> None:
    """Remove the variables of Accelerate from an environment: the settings of a run are those of its config.yaml."""
    for name in [name for name in environment if name.startswith(PREFIX)]:
        del environment[name]
