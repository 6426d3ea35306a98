"""A tiny exported folder with three tasks, and its model."""

from pathlib import Path

import pytest
import torch
from course_lib.errors import CourseError
from course_lib.serving import layout, server
from course_lib.serving.export import export
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

from tests.serving.models import as_task

VOCABULARY, HIDDEN, LAYERS, HEADS, POSITIONS, START, END = 60, 32, 2, 4, 64, 1, 2
TASKS = {"smile": 5, "plain": 3, "none": 0}  # tasks with the length of their prefixes


def require_server() -> None:
    """Skips a module of tests where there is no Triton server, or no client for it."""
    try:
        server.find()
    except CourseError as absent:
        pytest.skip(str(absent), allow_module_level=True)
    for part in ("grpc", "tritonclient.grpc", "tritonclient.http"):
        pytest.importorskip(part)


def model(family: layout.Family = "gptneox", positions: int = POSITIONS):
    """A model that repeats itself little, so that a wrong token shows in what follows."""
    torch.manual_seed(11)
    if family == "gptneox":
        built = GPTNeoXForCausalLM(GPTNeoXConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=2 * HIDDEN,
            max_position_embeddings=positions, rope_parameters={"rope_type": "default", "partial_rotary_factor": 1.0, "rope_theta": 10000.0}, use_parallel_residual=False,
            bos_token_id=START, eos_token_id=END,
        ))  # fmt: skip
    else:
        built = GPT2LMHeadModel(GPT2Config(
            vocab_size=VOCABULARY, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, n_inner=2 * HIDDEN, n_positions=positions, bos_token_id=START, eos_token_id=END,
        ))  # fmt: skip
    for weight in built.parameters():
        if weight.dim() > 1:
            weight.data.normal_(0, 0.25)
    return built.eval()


def prefixes() -> list[torch.Tensor | None]:
    torch.manual_seed(12)
    return [torch.randn(length, 2 * LAYERS * HIDDEN) if length else None for length in TASKS.values()]


def write(target: Path, family: layout.Family = "gptneox", positions: int = POSITIONS) -> Path:
    """The folder that `course ft export` writes of the model, a tokenizer and the prefixes."""
    source = target.with_name(f"{target.name}-source")
    model(family, positions).save_pretrained(source)
    tokenizer().save_pretrained(source)
    export(source, target, prefixes=[as_task(*task) for task in zip(TASKS, prefixes(), strict=True)])
    return target


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a character: the first 57 of hiragana."""
    words = ["<unk>", "<s>", "</s>", *(chr(ord("ぁ") + index) for index in range(VOCABULARY - 3))]
    built = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, "<unk>"))
    built.pre_tokenizer = Split("", "isolated")
    built.decoder = Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=built, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
