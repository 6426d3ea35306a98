"""The run that trains a new GPTSAN, or the parameters of a checkpoint that are not frozen."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from course_lib.checkpoints.tokenizer_files import NAMES, copy_present
from course_lib.errors import CourseError, UsageError
from course_lib.files import sha256
from course_lib.gptsan import swe
from course_lib.gptsan.config import GPTSanRunConfig
from course_lib.gptsan.examples import REPORT, Examples
from course_lib.gptsan.freeze import SPOUT
from course_lib.gptsan.layouts import NO_TARGET
from course_lib.gptsan.shape import EMBEDDINGS
from course_lib.language.words import tr
from course_lib.training import checkpoint
from course_lib.training.lr_schedule import warmup_steps
from course_lib.training.run import ENDLESS, Run, RunData
from course_lib.training.run_dir import export_folder
from course_lib.training.settings import ResolvedBatch

if TYPE_CHECKING:
    from course_lib.gptsan.hf_config import GPTSanConfig
    from course_lib.gptsan.model import GPTSanForCausalLM


class GPTSanRun(Run):
    """A run that trains a GPTSAN model on encoded examples, optionally with spout vectors."""

    settings_class = GPTSanRunConfig
    command = "gptsan train"
    settings: GPTSanRunConfig

    @property
    def tokenizer(self) -> Path:
        """Tokenizer folder: data.tokenizer, else model.checkpoint."""
        folder = self.settings.data.tokenizer or self.settings.model.checkpoint
        if folder is None:
            raise UsageError("data.tokenizer: not set; a new model needs the tokenizer its examples were encoded with")
        return folder

    @override
    def title(self) -> str:
        shape = self.model_config().shape
        extra = shape.num_ext_layers
        return tr("GPTSAN, {layers} + {extra} extra layers", layers=shape.num_switch_layers, extra=extra)

    @override
    def copy_tokenizer(self, folder: Path) -> None:
        copy_present(self.tokenizer, folder, (*NAMES, *swe.FILES))

    @override
    def check(self) -> None:
        mode, shape, tokenizer = self.settings.spout.mode, self.model_config().shape, self.tokenizer
        spouted = mode != "none"
        if spouted and shape.d_spout < 2:
            raise UsageError(f"spout.mode: {mode} is not allowed: this model has no spout (d_spout {shape.d_spout})")
        examples = self.examples()
        mine = {name: sha256(tokenizer / name) for name in swe.FILES}
        if examples.report.get("tokenizer", mine) != mine:
            raise UsageError(f"data.input: {examples.folder} was encoded with another tokenizer than {tokenizer}")
        examples.check(shape.vocab_size, shape.d_spout if mode == "onehot" else None)
        needed, positions = examples.report["num_context"] + spouted, shape.max_position_embeddings
        if needed > positions:
            raise UsageError(
                f"data.input: {examples.folder} has examples that need {needed} positions, with the spout if it is "
                f"used; the model has {positions}"
            )
        self.settings.frozen(shape)

    def examples(self) -> Examples:
        """Open the encoded examples in data.input."""
        if self.settings.data.input is None:
            raise UsageError("data.input: not set; give a folder of `course gptsan encode`")
        return Examples(self.settings.data.input)

    def split(self) -> tuple[Examples, Examples]:
        """Return the training and held-out examples."""
        train, held_out = self.examples().split(self.settings.data.held_out, self.settings.engine.seed)
        if not len(train):
            raise CourseError(f"{train.folder}: holds no examples; encode some with `course gptsan encode`")
        return train, held_out

    @override
    def steps(self, batch: ResolvedBatch) -> int | None:
        engine = self.settings.engine
        if engine.max_seconds is not None:
            return None
        samples = int((engine.num_train_epochs or 1) * len(self.split()[0]))
        steps = engine.max_steps or samples // batch.total
        if not steps:
            raise CourseError(
                tr("{samples} training samples are fewer than the {total} of one step; "
                   "give more examples or epochs, or a smaller batch", samples=samples, total=batch.total)
            )  # fmt: skip
        warmup_steps(self.settings.optimizer.lr, steps)
        return steps

    @override
    def identity(self) -> dict[str, Any]:
        from course_lib.checkpoints import weight_files

        folder, base, shape = self.examples().folder, self.settings.model.checkpoint, self.model_config().shape
        files = [base / "config.json", *weight_files.files(base)] if base else []
        return {
            "settings": self.settings.identity(),
            "inputs": {folder.name: {name: sha256(folder / name) for name in (REPORT, "i.npy")}},
            "checkpoint": {path.name: sha256(path) for path in files},
            "frozen": sorted(self.settings.frozen(shape)),
        }

    def model_config(self) -> "GPTSanConfig":
        """Return the configuration of the checkpoint or of model.shape, with the router losses of the settings."""
        from course_lib.gptsan.hf_config import GPTSanConfig, read_config

        model, loss = self.settings.model, self.settings.loss
        if model.checkpoint:
            config = read_config(model.checkpoint)
        else:
            encoding = swe.load(*(self.tokenizer / name for name in swe.FILES))
            # As in the published config.json: the separator is SEG, and the padding SEP (swe.SPECIAL_TOKENS).
            config = GPTSanConfig(
                **asdict(model.shape),
                bos_token_id=encoding.sot,
                separator_token_id=encoding.seg,
                pad_token_id=encoding.sep,
                eos_token_id=encoding.eot,
            )
        config.router_balance_coef, config.router_jitter_noise = loss.router_balance, loss.router_jitter
        return config

    @override
    def model(self) -> "GPTSanForCausalLM":
        import torch
        from transformers import AutoModelForCausalLM

        from course_lib.checkpoints.model_folder import load_weights
        from course_lib.checkpoints.torch_dtypes import TORCH
        from course_lib.gptsan.hf_config import require_fitting
        from course_lib.gptsan.model import GPTSanForCausalLM
        from course_lib.training.freezing import freeze

        settings, config = self.settings, self.model_config()
        checkpoint, dtype = settings.model.checkpoint, TORCH[settings.precision.dtype]
        model: GPTSanForCausalLM
        if checkpoint:
            require_fitting(checkpoint, config)
            model = load_weights(GPTSanForCausalLM, checkpoint, config, dtype=dtype)
        else:
            # Under ZeRO stage 3, from_config shards the new weights as it creates them.
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            # DeepSpeed casts the parameters only, and a bias in fp32 would turn the logits into fp32.
            model.final_logits_bias = model.final_logits_bias.to(dtype)
        freeze(model, settings.frozen(config.shape))
        if settings.model.recompute == "full":
            recompute(model)
        return model

    @property
    @override
    def saves_frozen(self) -> bool:
        return not self.settings.model.checkpoint

    @override
    def data(self, number: int | None) -> RunData:
        from course_lib.gptsan.samples import Samples, collate

        (train, held_out), settings = self.split(), self.settings
        mode, width, seed = settings.spout.mode, self.model_config().d_spout, settings.engine.seed
        return RunData(
            train=Samples(train, number or ENDLESS, seed, mode, width),
            validation=Samples(held_out, len(held_out), seed, mode, width, shuffle=False) if len(held_out) else None,
            test=None,
            tokens_per_sample=train.tokens_per_example,
            samples_per_epoch=len(train),
            flops_per_token=settings.sizes().flops_per_token,
            collate=collate,
        )

    @override
    def loss(self, model: Any, batch: Any) -> Any:
        """Return the mean cross-entropy [nats per target token]; in training, plus z_loss · mean (log Z)², router loss.

        The router loss is that of all positions of the micro-batch, and not linear in them: its mean over micro-batches
        is not that of one large micro-batch. Neither is the capacity of the experts (experts.py).
        """
        from course_lib.gptsan.samples import cross_entropy

        output = model(input_ids=batch["x"], spout=batch.get("spout"), use_cache=False)
        loss, log_z = cross_entropy(output.logits, batch["y"])
        return loss + self.settings.loss.z_loss * log_z + output.aux_loss if model.training else loss

    @override
    def targets(self, batch: Any) -> Any:
        return (batch["y"] != NO_TARGET).sum()

    @override
    def export(self, target: Path, step: int | None = None) -> dict[str, int]:
        """Export the model to a Hugging Face folder; return the step and numbers of tensors.

        Frozen tensors are copied bit for bit from model.checkpoint. Trained tensors are the fp32 weights in the
        optimizer, converted to the dtype used in model.checkpoint or, for a new model, to the training dtype.
        """
        from course_lib.checkpoints import training_state, weight_files
        from course_lib.checkpoints.torch_dtypes import TORCH
        from course_lib.gptsan.hf_config import read_config, read_weights
        from course_lib.gptsan.parameters import hf_shapes, parameter_elements

        folder = self.settings.engine.output_dir
        saved = checkpoint.to_export(folder, step)
        weights = training_state.read_weights(saved)
        source = self.settings.model.checkpoint
        config = read_config(source) if source else self.model_config()
        before = read_weights(source) if source else {}
        elements = parameter_elements(config.shape)
        trained = elements.keys() - self.settings.frozen(config.shape)

        def tensors() -> Iterator[tuple[str, Any]]:
            for name in hf_shapes(config.shape):
                if name in trained or not source:
                    value = weights.tensors[name].contiguous()
                    dtype = before[name].dtype if source else TORCH[weights.trained_as]
                    yield name, weight_files.converted(saved, name, value, dtype)
                else:
                    yield name, before[name].contiguous()

        with export_folder(folder, target) as exported:
            weight_files.write(tensors(), exported, weight_files.SHARD)
            config.save_pretrained(exported)
            self.copy_tokenizer(exported)
        frozen = len(elements) - len(trained)
        return {"step": checkpoint.step_of(saved), "trained": len(trained), "frozen": frozen}


def recompute(model: "GPTSanForCausalLM") -> None:
    """Turn on activation checkpointing, except in the first layers: they store nothing if no gradient reaches them."""
    model.activation_checkpointing_enable()
    # Otherwise, gradients would also flow through all frozen layers.
    model.disable_input_require_grads()
    below = (SPOUT, *EMBEDDINGS)
    learns = any(parameter.requires_grad for name, parameter in model.named_parameters() if name.startswith(below))
    for block in model.model.blocks:
        if learns or any(parameter.requires_grad for parameter in block.parameters()):
            return
        setattr(block, "gradient_checkpointing", False)  # noqa: B010
