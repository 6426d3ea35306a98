"""Starts the pretraining of a GPT-2 or GPT-NeoX with DeepSpeed's launcher."""

from course_lib.errors import UsageError
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.training.launch import Run, absolute, train
from course_lib.training.monitor import ALOUD, Say


def pretrain(settings: PretrainConfig, resume: bool = False, say: Say = ALOUD) -> Run:
    """Trains the model that the settings describe; see course_lib.training.launch.train for the arguments.

    Raises UsageError if data.input or data.tokenizer is not set.
    """
    if not settings.data.input or settings.data.tokenizer is None:
        raise UsageError(
            "data.input, data.tokenizer: not set; give prefixes from `course tokenize` "
            "and the tokenizer they were made with"
        )
    return train(Gpt2(absolute(settings)), resume, say)
