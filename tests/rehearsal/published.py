"""Small models with random weights in the file layout of the three published ones that the profiles fetch.

Keys of config.json, file names, tensor names, number formats and tokenizer classes are those of the Hub; only sizes are
smaller. Sources: the model cards, the classes of transformers that wrote the files, and the published sizes. 663 470 088
bytes for rinna's small model are its 153 278 976 fp32 weights and 12 causal masks of 2048 × 2048 bytes, which old
versions of transformers stored; 7.37 GB for the 3.6B model are fp16 weights and 36 such masks.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from course_lib.documents import read_texts
from course_lib.gptsan.hf_config import GPTSanConfig
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.vocabulary import build_vocabulary
from course_lib.paths import data
from course_lib.world.genres import documents
from safetensors.torch import save_file
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

GPTSAN = "Tanrei/GPTSAN-japanese"
NEOX_SMALL = "rinna/japanese-gpt-neox-small"
NEOX_LARGE = "rinna/japanese-gpt-neox-3.6b-instruction-ppo"
# What a git repository on the Hub has besides the model.
CARD = {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "README.md": "---\nlanguage: ja\n---\n"}


def write_all(folder: Path) -> None:
    """Write the three repositories to folder/OWNER/NAME."""
    gptsan(folder / GPTSAN)
    gpt_neox(folder / NEOX_SMALL, vocabulary=3000, hidden=96, heads=3, layers=3, positions=256, dtype=torch.float32)
    gpt_neox(folder / NEOX_LARGE, vocabulary=3200, hidden=128, heads=2, layers=4, positions=256, dtype=torch.float16)
    with (folder / NEOX_SMALL / "smileface_suffix.task0.weight").open("wb") as file:
        # rinna's own prefix, [prefix positions, layers · 2 · hidden]
        torch.save(torch.randn(10, 3 * 2 * 96) * 0.1, file)


def texts() -> Iterable[str]:
    """The texts that tokenizers are trained on: bundled ones, and documents of the small world."""
    yield from read_texts(data("tasks/smile.jsonl"))
    yield from (document.text for document in documents(300, seed=1))
    for path in sorted((data("classified/list.csv").parent).glob("*/*.txt")):
        yield path.read_text(encoding="utf8")


def gptsan(folder: Path) -> None:
    """Tanrei/GPTSAN-japanese: one pytorch_model.bin, vocab.txt and emoji.json."""
    build_vocabulary(texts(), 2000, folder, 0.9995)
    (folder / "preparation.json").unlink()
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf8"))
    special = {name: settings[name] for name in ("unk_token", "pad_token", "bos_token", "eos_token", "sep_token")}
    tokenizer = special | {
        "do_clean_text": False,
        "model_max_length": 1000000000000000019884624838656,
        "tokenizer_class": "GPTSanJapaneseTokenizer",
    }
    config = {
        "architectures": ["GPTSanJapaneseForConditionalGeneration"], "d_ext": 256, "d_ff": 512, "d_model": 64,
        "d_spout": 16, "dropout_rate": 0.0, "eos_token_id": 1999, "expert_capacity": 128,
        "initializer_factor": 0.002, "is_encoder_decoder": False, "layer_norm_epsilon": 1e-05,
        "max_position_embeddings": 160, "model_type": "gptsan-japanese", "num_experts": 4, "num_ext_layers": 0,
        "num_heads": 4, "num_layers": 2, "num_switch_layers": 2, "output_attentions": False,
        "output_hidden_states": False, "output_router_logits": False, "pad_token_id": 1995, "router_bias": False,
        "router_dtype": "float32", "router_ignore_padding_tokens": False, "router_jitter_noise": 0.0,
        "separator_token_id": 1998, "torch_dtype": "float32", "transformers_version": "4.27.0.dev0",
        "use_cache": True, "vocab_size": 2000,
    }  # fmt: skip
    # The published weights are trained; new ones need these to pass a signal through spout and embeddings.
    torch.manual_seed(0)
    model = GPTSanForCausalLM(GPTSanConfig(**config, embedding_init_std=0.3, spout_init_std=0.5))
    _write_json(folder, {"config": config, "tokenizer_config": tokenizer, "special_tokens_map": special})
    _write_card(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")


def gpt_neox(
    folder: Path, vocabulary: int, hidden: int, heads: int, layers: int, positions: int, dtype: torch.dtype
) -> None:
    """rinna's GPT-NeoX models: the same weights as .bin and .safetensors, sentencepiece read by T5Tokenizer."""
    folder.mkdir(parents=True)
    # only the instruction models have an entry for a line break
    sentencepiece_model(folder, vocabulary, ["<NL>"] if "instruction" in folder.name else [])
    config = {
        "architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 2, "eos_token_id": 3, "hidden_act": "gelu",
        "hidden_size": hidden, "initializer_range": 0.02, "intermediate_size": 4 * hidden, "layer_norm_eps": 1e-05,
        "max_position_embeddings": positions, "model_type": "gpt_neox", "num_attention_heads": heads,
        "num_hidden_layers": layers, "rotary_emb_base": 10000, "rotary_pct": 1.0, "tie_word_embeddings": False,
        "torch_dtype": str(dtype).removeprefix("torch."), "transformers_version": "4.27.0.dev0", "use_cache": True,
        "use_parallel_residual": False, "vocab_size": vocabulary,
    }  # fmt: skip
    tokenizer = {
        "eos_token": "</s>", "unk_token": "[UNK]", "pad_token": "[PAD]", "extra_ids": 0,
        "additional_special_tokens": [], "sp_model_kwargs": {}, "bos_token": "<s>", "cls_token": "[CLS]",
        "sep_token": "[SEP]", "mask_token": "[MASK]", "do_lower_case": False, "tokenizer_class": "T5Tokenizer",
    }  # fmt: skip
    _write_json(folder, {"config": config, "tokenizer_config": tokenizer})
    _write_card(folder)
    torch.manual_seed(0)
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**config | {"initializer_range": 0.1}))
    # the published files have the name that transformers 4 gave the output layer
    state = {name.replace("lm_head", "embed_out"): w.to(dtype) for name, w in model.state_dict().items()}
    state |= _leftovers(layers, positions, hidden // heads, dtype)
    torch.save(state, folder / "pytorch_model.bin")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def _leftovers(layers: int, positions: int, size: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Constants of each layer that old versions of transformers stored; current ones skip them."""
    mask = torch.ones(positions, positions, dtype=torch.uint8).tril()[None, None]
    found = {}
    for layer in range(layers):
        name = f"gpt_neox.layers.{layer}.attention"
        found[f"{name}.bias"] = mask.clone()
        found[f"{name}.masked_bias"] = torch.tensor(-1e9 if dtype == torch.float32 else -6e4, dtype=dtype)
        found[f"{name}.rotary_emb.inv_freq"] = (10000 ** (-torch.arange(0, size, 2) / size)).to(dtype)
    return found


def sentencepiece_model(folder: Path, vocabulary: int, symbols: list[str]) -> None:
    """spiece.model and spiece.vocab: unigram with byte fallback and no prefix, as the card of the 3.6B model says."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for text in texts() for line in text.splitlines() if line),
        model_prefix=str(folder / "spiece"),
        vocab_size=vocabulary,
        model_type="unigram",
        byte_fallback=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        pad_piece="[PAD]",
        unk_piece="[UNK]",
        user_defined_symbols=["[CLS]", "[SEP]", "[MASK]", *symbols],
        minloglevel=2,
    )


def _write_json(folder: Path, contents: dict[str, dict[str, Any]]) -> None:
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf8")


def _write_card(folder: Path) -> None:
    for name, content in CARD.items():
        (folder / name).write_text(content, encoding="utf8")
