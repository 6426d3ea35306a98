"""Export of GPT-2 and GPT-NeoX models to CTranslate2, an inference engine that is fast on CPUs.

CTranslate2's own converter does most of the work. This module adds what it lacks for models of transformers 5: the
names of GPT-NeoX's rotary fraction and output layer, the rotary embedding base, the LayerNorm epsilon, and vocabularies
with fewer entries than embedding rows. Prefixes are not supported: CTranslate2 computes its state from tokens
(https://github.com/OpenNMT/CTranslate2/issues/1409), and no tokens produce the state of a trained prefix.
"""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ctranslate2
import numpy as np
import torch
from ctranslate2.converters.transformers import GPT2Loader, GPTNeoXLoader

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.model_folder import end_ids, write_generation_settings
from course_lib.checkpoints.tokenizer_files import copy_tokenizer
from course_lib.errors import CourseError
from course_lib.files import atomic_folder, human_size, require_other, write_json
from course_lib.generation.config import SAMPLING
from course_lib.language.words import tr
from course_lib.models import frozen_base
from course_lib.pretrain import text_codec
from course_lib.serving.config import Quantization
from course_lib.serving.ft_source import require_plain
from course_lib.serving.layout import CONVERSION

# What CTranslate2 can follow of a model's own settings.
OWN = ("do_sample", *SAMPLING)
# Added to the logits of embedding rows without a token; this is the lowest finite float16 value
NEVER = -65504.0


@dataclass(frozen=True)
class Ct2Export:
    """An exported folder."""

    folder: Path
    quantization: str
    size: int  # size of the weights [bytes]
    unused: int  # number of embedding rows without a token

    def summary(self) -> str:
        """Return a one-line summary."""
        line = f"{self.quantization}, {human_size(self.size)}"
        if self.unused:
            line += tr("; {unused} embedding rows without a token are never chosen", unused=self.unused)
        return f"{line} → {self.folder}"


def export(source: Path, target: Path, quantization: Quantization = "float32") -> Ct2Export:
    """Export the model and tokenizer in a Hugging Face folder; memory use is about twice the size of the weights."""
    require_other(source, target)
    with atomic_folder(target) as folder:
        config = frozen_base.read_config(source)
        tokenizer = text_codec.load(source).tokenizer
        model = frozen_base.load(source)
        require_plain(config, source)
        tokens = {number: token for token, number in tokenizer.get_vocab().items()}
        names = [tokens.get(row) for row in range(config.vocab_size)]
        ends = end_ids(model.generation_config.eos_token_id, tokenizer.eos_token_id)
        end = next((end for end in ends if end < config.vocab_size), None)
        if end not in tokens:
            raise CourseError(f"{source}: names no end-of-text token (eos_token_id {end})")
        try:
            spec = _spec(model)
        except KeyError as error:
            raise CourseError(f"{source}: activation {error} is not possible with CTranslate2") from error
        if None in names:
            bias = [NEVER * (name is None) for name in names]
            spec.decoder.projection.bias = torch.tensor(bias, dtype=model.dtype)
        spec.register_vocabulary([name or f"<row {row}: no token>" for row, name in enumerate(names)])
        spec.config.eos_token = tokens[end]
        for kind in ("bos_token", "unk_token"):
            token = getattr(tokenizer, kind)
            setattr(spec.config, kind, token if token in names and token else spec.config.eos_token)
        # AutoTokenizer chooses the tokenizer class based on model_type
        spec.config.add_attribute("model_type", config.model_type)
        spec.validate()
        _require_in_range(model, source, quantization)
        spec.optimize(quantization=quantization)
        spec.save(str(folder))
        copy_tokenizer(source, folder, config.max_position_embeddings)
        write_generation_settings(source, folder, OWN)
        record = {
            "format": f"CTranslate2 {ctranslate2.__version__}",
            "quantization": quantization,
            # The export may be published, so store only the folder name, not its path on this machine
            "source": source.resolve().name,
            "sha256_of_weights": frozen_base.digest(source),
        }
        write_json(folder / CONVERSION, record)
        size = (folder / "model.bin").stat().st_size
    return Ct2Export(target, quantization, size, names.count(None))


def _require_in_range(model: Any, source: Path, quantization: Quantization) -> None:
    """Raise CourseError if a weight has a value outside the range of the 16-bit format that it is stored in."""
    others = quantization.rpartition("_")[2]
    dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(others)
    for name, weight in model.named_parameters():
        # int8 scales the rows of each matrix but the positions.
        if dtype and (quantization == others or weight.ndim == 1 or name.endswith("wpe.weight")):
            weight_files.converted(source, name, weight.detach(), dtype)


@torch.no_grad()
def _spec(model: Any) -> Any:
    """Return the model as an unquantized CTranslate2 specification.

    CTranslate2 4.8 expects the attribute names of transformers 4 and biases for query, key and value: if a GPT-NeoX has
    none, zeros are added to `model` itself.
    """
    config = model.config
    if config.model_type == "gpt2":
        spec = GPT2Loader().get_model_spec(model)
        spec.config.layer_norm_epsilon = config.layer_norm_epsilon
        return spec
    for layer in model.gpt_neox.layers:
        linear = layer.attention.query_key_value
        if linear.bias is None:  # attention_bias: false
            linear.bias = torch.nn.Parameter(torch.zeros_like(linear.weight[:, 0]))
    rope = config.rope_parameters
    older = SimpleNamespace(**config.to_dict(), rotary_pct=rope["partial_rotary_factor"])
    spec = GPTNeoXLoader().get_model_spec(
        SimpleNamespace(config=older, gpt_neox=model.gpt_neox, embed_out=model.lm_head)
    )
    for layer in spec.decoder.layer:
        layer.self_attention.rotary_base = np.float32(rope["rope_theta"])
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    return spec
