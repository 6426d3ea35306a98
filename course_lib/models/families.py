"""The supported model families, by their names in the settings and in config.json."""

from course_lib.models.family import Family
from course_lib.models.gpt2 import GPT2
from course_lib.models.gpt_neox import GPT_NEOX

BY_ARCHITECTURE: dict[str, Family] = {family.architecture: family for family in (GPT2, GPT_NEOX)}
BY_MODEL_TYPE: dict[str, Family] = {family.model_type: family for family in (GPT2, GPT_NEOX)}
