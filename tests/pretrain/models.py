"""Real models of a second: a tokenizer of two sentences, and a GPT-2 that has learned one by heart."""

import math
import shutil
from pathlib import Path

import torch
from course_lib.japanese import segment
from course_lib.subword import folder as tokenizers
from course_lib.subword.bpe import train_bpe
from course_lib.subword.config import BpeConfig
from transformers import GPT2Config, GPT2LMHeadModel

SENTENCE = "早稲田大学でDeep Learningを勉強している。"
OTHER = "𠮷野家で牛丼を食べた。"  # 𠮷 is left out of the alphabet: four bytes
PADDING = 5  # rows of the models' vocabulary that are no token


def tokenizer(folder: Path, lossless: bool = True) -> Path:
    """A tokenizer folder; without `lossless` as the recipe's."""
    lines = folder / "lines.txt"
    lines.write_text("\n".join(segment(text, lossless) for text in [SENTENCE] * 3 + [OTHER]) + "\n", encoding="utf8")
    words = folder / "tokenizer"
    size = 302 if lossless else 40
    settings = BpeConfig(vocab_size=size, limit_alphabet=24, lossless=lossless, byte_fallback=lossless)
    train_bpe([lines], words, settings, False)
    return words


def flat(memorized: Path, folder: Path, padding: int = PADDING) -> Path:
    """A copy of the folder whose model writes 大 with probability 0.4, 学 0.3, 強 0.2 or 。 0.1, whatever came before.

    Its padding is more likely still, and never to be drawn.
    """
    shutil.copytree(memorized, folder)
    words = tokenizers.load(folder).tokenizer
    rows = words.get_vocab_size() + padding
    shape = GPT2Config(vocab_size=rows, n_positions=40, n_embd=8, n_layer=1, n_head=1, eos_token_id=2)
    model = GPT2LMHeadModel(shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.transformer.ln_f.bias[0] = 1
        model.transformer.wte.weight[:, 0] = -30.0
        for word, share in (("大", 0.4), ("学", 0.3), ("強", 0.2), ("。", 0.1)):
            model.transformer.wte.weight[words.token_to_id(word), 0] = math.log(share)
        model.transformer.wte.weight[rows - padding :, 0] = 5.0
    model.save_pretrained(folder)
    return folder


def memorized(folder: Path, lossless: bool = True, positions: int = 40) -> Path:
    """A model folder that writes SENTENCE and ends; its vocabulary is padded by rows that its first choice would be."""
    words = tokenizer(folder, lossless)
    codec = tokenizers.load(words)
    rows = codec.tokenizer.get_vocab_size() + PADDING
    torch.manual_seed(0)
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 2)
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0)
    shape = GPT2Config(vocab_size=rows, n_positions=positions, n_embd=32, n_layer=2, n_head=2, **ends, **dropout)
    model = GPT2LMHeadModel(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    sentence = codec.encode(SENTENCE)
    # At two positions, as a prompt begins with its first word.
    ids = torch.tensor([[2, *sentence, 2], [*sentence, 2, 2]])
    for _ in range(60):
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.05
    model.save_pretrained(words)
    return words
