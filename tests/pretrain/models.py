"""Real models of a second: a tokenizer of two sentences, and a GPT-2 that has learned one by heart."""

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


def tokenizer(place: Path, lossless: bool = True) -> Path:
    """A tokenizer folder; without `lossless` as the recipe's."""
    lines = place / "lines.txt"
    lines.write_text("\n".join(segment(text, lossless) for text in [SENTENCE] * 3 + [OTHER]) + "\n", encoding="utf8")
    words = place / "tokenizer"
    train_bpe(
        [lines],
        words,
        BpeConfig(vocab_size=302 if lossless else 40, limit_alphabet=24, lossless=lossless, byte_fallback=lossless),
        False,
    )
    return words


def memorized(place: Path, lossless: bool = True, positions: int = 40) -> Path:
    """A model folder that writes SENTENCE and ends; its vocabulary is padded by rows that its first choice would be."""
    words = tokenizer(place, lossless)
    codec = tokenizers.load(words)
    rows = codec.tokenizer.get_vocab_size() + PADDING
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=rows, n_positions=positions, n_embd=32, n_layer=2, n_head=2, bos_token_id=2, eos_token_id=2, pad_token_id=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    sentence = codec.encode(SENTENCE)
    ids = torch.tensor(
        [[2, *sentence, 2], [*sentence, 2, 2]]
    )  # at two positions, as a prompt begins with its first word
    for _ in range(60):
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.05
    model.save_pretrained(words)
    return words
