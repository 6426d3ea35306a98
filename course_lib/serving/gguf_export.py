"""Export of GPT-2 and GPT-NeoX models to one GGUF file in single precision, the format of llama.cpp.

llama.cpp computes GELU by tanh, so models with another activation are refused. Its tokenizers do not normalize and
segment Japanese text as the course's do. The file holds the vocabulary, so that llama.cpp can print tokens, but a
prompt has to be sent as token ids. A sentencepiece Unigram is written with its scores, as llama.cpp's "t5"; of other
tokenizers only the tokens are written. Layout of the tensors and of a Unigram: llama.cpp's converter
(https://github.com/ggml-org/llama.cpp/tree/master/conversion, gpt2.py, gptneox.py and t5.py).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from course_lib.checkpoints import sentencepiece_unigram
from course_lib.checkpoints.model_folder import end_ids
from course_lib.checkpoints.sentencepiece_unigram import UnigramModel
from course_lib.checkpoints.tokenizer_files import sentencepiece_model
from course_lib.errors import CourseError
from course_lib.files import atomic_write, human_size, require_other
from course_lib.language.words import tr
from course_lib.models import frozen_base
from course_lib.pretrain import text_codec
from course_lib.serving.ft_source import TANH_GELU, require_plain, rotary

ARCHITECTURES = {"gpt2": gguf.MODEL_ARCH.GPT2, "gpt_neox": gguf.MODEL_ARCH.GPTNEOX}
# GPT-2 stores these matrices as [input, output]; llama.cpp reads [output, input].
TRANSPOSED = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")
# Each of these tokens ends a text in llama.cpp.
END_KEYS = (gguf.Keys.Tokenizer.EOS_ID, gguf.Keys.Tokenizer.EOT_ID, gguf.Keys.Tokenizer.EOM_ID)
BYTE = re.compile("<0x[0-9A-F]{2}>")
DESCRIPTION = (
    "Send token ids, not text: llama.cpp's tokenizer gives other tokens than the model's own, without an error. "
    "Make the ids with course_lib.pretrain.text_codec.load(FOLDER).prompt(text)."
)
# llama.cpp finds the ids of a Unigram in text that is normalized, and segmented if the model's own tokenizer segments.
UNIGRAM_DESCRIPTION = (
    "Send token ids, not text: llama.cpp does not normalize text, and reads a character without an entry as <unk>, not "
    "as bytes (https://github.com/ggml-org/llama.cpp/issues/28862). "
    "Make the ids with course_lib.pretrain.text_codec.load(FOLDER).prompt(text)."
)
# Score of a row without a piece: llama.cpp never chooses it.
NEVER = -1e5


@dataclass(frozen=True)
class GgufExport:
    """An exported file."""

    file: Path
    size: int  # size of the file [bytes]
    unused: int  # number of embedding rows without a token at the end of the vocabulary, which are left out

    def summary(self) -> str:
        """Return a one-line summary."""
        line = f"float32, {human_size(self.size)}"
        if self.unused:
            line += tr("; {unused} embedding rows without a token are left out", unused=self.unused)
        return tr("{line}; send token ids to llama.cpp, not text → {file}", line=line, file=self.file)


def export(source: Path, target: Path) -> GgufExport:
    """Export the model in a Hugging Face folder; memory use is about twice the size of the weights in float32."""
    require_other(source, target)
    config = frozen_base.read_config(source)
    require_plain(config, source)
    key = "activation_function" if config.model_type == "gpt2" else "hidden_act"
    if (activation := getattr(config, key)) not in TANH_GELU:
        raise CourseError(f"{source}: {key} is {activation}; allowed with llama.cpp: {', '.join(TANH_GELU)}")
    codec, model = text_codec.load(source), frozen_base.load(source)
    ends = end_ids(model.generation_config.eos_token_id, codec.tokenizer.eos_token_id)
    known = codec.tokenizer.get_vocab().values()
    rows = min(config.vocab_size, max(known) + 1)
    if not ends or not {*ends} <= {*known} & {*range(rows)} or len(ends) > len(END_KEYS):
        allowed = f"1 to {len(END_KEYS)} tokens of its vocabulary"
        raise CourseError(f"{source}: ends a text with {ends or 'no token'} (eos_token_id); allowed: {allowed}")
    unigram = _unigram(source, codec)
    with atomic_write(target) as file:
        writer = gguf.GGUFWriter(file.name, gguf.MODEL_ARCH_NAMES[ARCHITECTURES[config.model_type]])
        writer.add_name(source.resolve().name)
        writer.add_description(UNIGRAM_DESCRIPTION if unigram else DESCRIPTION)
        _add_settings(writer, config)
        _add_vocabulary(writer, codec, rows, ends, unigram)
        for name, tensor in _tensors(model, rows):
            writer.add_tensor(name, np.ascontiguousarray(tensor.float().numpy()))
        try:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        finally:
            writer.close()
    return GgufExport(target, target.stat().st_size, config.vocab_size - rows)


def _add_settings(writer: gguf.GGUFWriter, config: Any) -> None:
    """Add the sizes and constants of a model."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    if config.model_type == "gpt2":
        writer.add_feed_forward_length(config.n_inner or 4 * config.n_embd)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_parallel_residual(config.use_parallel_residual)
    writer.add_rope_dimension_count(rotary(config))
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])


def _unigram(source: Path, codec: text_codec.TextCodec) -> UnigramModel | None:
    """Return the sentencepiece Unigram of a model folder if it gives the ids of the folder's tokenizer, else None."""
    path = sentencepiece_model(source)
    model = sentencepiece_unigram.read(path) if path else None
    ids = codec.tokenizer.get_vocab()
    own = model and all(ids.get(entry.piece) == number for number, entry in enumerate(model.entries))
    return model if own else None


def _add_vocabulary(
    writer: gguf.GGUFWriter, codec: text_codec.TextCodec, rows: int, ends: list[int], unigram: UnigramModel | None
) -> None:
    """Add the first `rows` tokens: a Unigram with its scores, others as the kind that prints `<0xE3>` as a byte."""
    tokenizer = codec.tokenizer
    tokens = {number: token for token, number in tokenizer.get_vocab().items()}
    names = [tokens.get(row, f"<row {row}: no token>") for row in range(rows)]
    kinds = [gguf.TokenType.BYTE if BYTE.fullmatch(name) else gguf.TokenType.NORMAL for name in names]
    for row in {*range(rows)} - tokens.keys():
        kinds[row] = gguf.TokenType.UNUSED
    for number in (number for number in tokenizer.all_special_ids if number < rows):
        kinds[number] = gguf.TokenType.UNKNOWN if number == tokenizer.unk_token_id else gguf.TokenType.CONTROL
    scores = [0.0] * rows
    if unigram:
        # Rows behind the pieces, such as tokens that a folder adds, are found in no text.
        scores = [NEVER] * rows
        for row, entry in enumerate(unigram.entries[:rows]):
            scores[row], kinds[row] = entry.score, gguf.TokenType(entry.kind)
    writer.add_tokenizer_model("t5" if unigram else "llama")
    writer.add_token_list(names)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    # For the course's tokenizers, the end of the text before precedes a text.
    writer.add_bos_token_id(ends[0] if codec.begin is None else codec.begin)
    for key, end in zip(END_KEYS, ends, strict=False):
        writer.add_uint32(key, end)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(unigram.adds_prefix if unigram else False)
    if unigram:
        # llama.cpp's defaults are those of T5: another <unk>, and an end behind each text.
        writer.add_unk_token_id(unigram.unknown)
        writer.add_add_eos_token(False)
        writer.add_remove_extra_whitespaces(unigram.removes_extra_whitespaces)
        if unigram.charsmap:
            writer.add_precompiled_charsmap(unigram.charsmap)


def _tensors(model: Any, rows: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights with llama.cpp's names and layout: matrices [output, input], query before key before value."""
    config = model.config
    heads, hidden = config.num_attention_heads, config.hidden_size
    names = gguf.get_tensor_name_map(ARCHITECTURES[config.model_type], config.num_hidden_layers)
    weights = model.state_dict()
    # llama.cpp takes the embedding as the output layer of a GPT-2 that has none; a GPT-NeoX always has one.
    if config.model_type == "gpt2" and torch.equal(weights["lm_head.weight"], weights["transformer.wte.weight"]):
        del weights["lm_head.weight"]
    for name, value in weights.items():
        found = names.get_name(name, (".weight", ".bias"))
        if found is None:
            raise CourseError(f"{name}: a weight that llama.cpp does not know")
        if TRANSPOSED.search(name):
            value = value.T
        if ".query_key_value." in name:
            # GPT-NeoX stores query, key and value of one head after another.
            value = value.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2)
        yield found, value[:rows] if found in ("token_embd.weight", "output.weight") else value
    if config.model_type == "gpt_neox" and not config.attention_bias:
        for layer in range(config.num_hidden_layers):
            yield f"blk.{layer}.attn_qkv.bias", torch.zeros(3 * hidden)
            yield f"blk.{layer}.attn_output.bias", torch.zeros(hidden)
