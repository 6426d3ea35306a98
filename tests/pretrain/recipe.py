"""The recipe's form of a run, in a process of its own: `recipe.py SETTINGS.yaml OUT.json`."""

import json
import sys
from pathlib import Path

from course_lib.pretrain import recipe
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training import extensions
from torch.utils.data import Subset
from transformers import Trainer, set_seed

if __name__ == "__main__":
    extensions.skip_shared_memory()
    run = Gpt2(config.load(PretrainConfig, sys.argv[1]))
    arguments = recipe.arguments(run, Path(sys.argv[2]).parent / "trainer")
    number = arguments.max_steps * run.settings.batch.resolve(1).total
    set_seed(run.settings.engine.seed)
    samples = Subset(run.data(number).train, range(number))
    trainer = Trainer(run.model(), arguments, data_collator=recipe.collator(run), train_dataset=samples)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    Path(sys.argv[2]).write_text(json.dumps(losses))
