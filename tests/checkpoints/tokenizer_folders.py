"""Tokenizer folders as others publish them: kinds of tokenizer.json, and sentencepiece models, under many class names."""

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
from course_lib.world.genres import documents
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

NAMES = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
KINDS = ("unigram", "unigram-bytes", "bpe-metaspace", "bpe-byte-level", "bpe-digits", "words")
# rinna's published settings; https://huggingface.co/rinna/japanese-gpt2-medium/blob/main/tokenizer_config.json
RINNA = NAMES | {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
MODEL = {"model_type": "gpt2", "vocab_size": 2000, "n_embd": 8, "n_layer": 1, "n_head": 1, "eos_token_id": 2}


@cache
def texts() -> list[str]:
    found = [document.text for document in documents(150, seed=3)]
    return [*found, "Windows と python は <b>nasa</b> の 記号 です / 0123456789", "gpt2 is a language model"] * 2


@cache
def of_kind(kind: str) -> str:
    """The tokenizer.json of a kind. Each has its special tokens as entries of its model and as added tokens."""
    special = list(NAMES.values())
    unigram: dict[str, Any] = {"vocab_size": 900, "special_tokens": special, "unk_token": "<unk>"}
    if kind.startswith("unigram"):
        found = Tokenizer(models.Unigram())
        found.normalizer, found.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
        found.decoder = decoders.Metaspace()
        found.train_from_iterator(texts(), trainers.UnigramTrainer(**unigram, show_progress=False))
        return found.to_str() if kind == "unigram" else _with_bytes(found)
    if kind == "words":
        found = Tokenizer(models.WordLevel(unk_token="<unk>"))
        found.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer: Any = trainers.WordLevelTrainer(vocab_size=900, special_tokens=special, show_progress=False)
    else:
        found = Tokenizer(models.BPE(unk_token="<unk>"))
        initial = []
        if kind == "bpe-metaspace":
            found.normalizer, found.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
            found.decoder = decoders.Metaspace()
        else:
            initial, found.decoder = pre_tokenizers.ByteLevel.alphabet(), decoders.ByteLevel()
            level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "bpe-byte-level")
            digits = pre_tokenizers.Digits(individual_digits=True)
            found.pre_tokenizer = level if kind == "bpe-byte-level" else pre_tokenizers.Sequence([digits, level])
        trainer = trainers.BpeTrainer(
            vocab_size=900, special_tokens=special, initial_alphabet=initial, show_progress=False
        )
    found.train_from_iterator(texts(), trainer)
    return found.to_str()


def _with_bytes(tokenizer: Tokenizer) -> str:
    """A Unigram with byte fallback as converters write it: byte tokens have the score 0, and < and > are no pieces."""
    content = json.loads(tokenizer.to_str())
    pieces = [
        piece for piece in content["model"]["vocab"] if piece[0] in NAMES.values() or not set(piece[0]) & set("<>")
    ]
    content["model"] |= {"vocab": pieces + [[f"<0x{byte:02X}>", 0.0] for byte in range(256)], "byte_fallback": True}
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    content["decoder"] = json.loads(decoders.Sequence(steps).__getstate__())
    return json.dumps(content)


def json_folder(folder: Path, kind: str, tokenizer_class: str | None = None, **settings: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(of_kind(kind), encoding="utf8")
    return _settings(folder, NAMES | settings, tokenizer_class)


@cache
def spiece(kind: str = "unigram") -> bytes:
    """A sentencepiece model of text in lower case, with the user-defined symbols of rinna's."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line.lower() for text in texts() for line in text.split("\n")),
        model_writer=model,
        model_type=kind,
        vocab_size=800,
        character_coverage=1.0,
        unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
        user_defined_symbols=["[PAD]", "[CLS]", "[SEP]", "[MASK]"],
        minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def spiece_folder(
    folder: Path, tokenizer_class: str | None, settings: dict[str, Any] | None, name: str = "spiece.model"
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(spiece())
    if settings is None:
        (folder / "config.json").write_text(json.dumps(MODEL))
        return folder
    return _settings(folder, settings, tokenizer_class)


def _settings(folder: Path, settings: dict[str, Any], tokenizer_class: str | None) -> Path:
    named = {"tokenizer_class": tokenizer_class} if tokenizer_class else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | named))
    (folder / "config.json").write_text(json.dumps(MODEL))
    return folder
