"""GPTSAN tokenizer for transformers: encodes text as SOT [prefix] SEG text, with token types that mark the prefix.

SOT is the start token, and SEG separates the prefix from the text. swe.py contains the algorithm.
"""

import shutil
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizer

from course_lib.checkpoints import model_folder
from course_lib.files import require_file
from course_lib.gptsan import swe
from course_lib.gptsan.hf_config import GPTSanConfig

FILES = {"vocab_file": "vocab.txt", "emoji_file": "emoji.json"}


class GPTSanTokenizer(PreTrainedTokenizer):  # type: ignore[misc]
    """Tokenizer in a folder with `vocab.txt`, `emoji.json` and optionally `tokenizer_config.json`.

    A text becomes SOT SEG text; with a prefix (`prefix_text=`, or the first text in a pair), SOT prefix SEG text.
    `token_type_ids` are 1 on SOT and the prefix, 0 from SEG onward. Batches are padded on the left with SEP, as in the
    published tokenizer. `do_clean_text` turns on the rules in cleaning.py.
    """

    vocab_files_names = FILES
    model_input_names = ("input_ids", "attention_mask", "token_type_ids")
    padding_side = "left"

    def __init__(self, vocab_file: str = "", emoji_file: str = "", do_clean_text: bool = False, **kwargs: Any) -> None:
        self.vocab_file, self.emoji_file, self.do_clean_text = vocab_file, emoji_file, do_clean_text
        self.swe = swe.load(Path(vocab_file), Path(emoji_file))
        self._id_of = self.swe.ids | {name: i for i, name in enumerate(self.swe.names)}
        super().__init__(**swe.SPECIAL_TOKENS | kwargs, do_clean_text=do_clean_text)

    @property
    def vocab_size(self) -> int:
        """Number of ids, including those that no text encodes to."""
        return len(self.swe)

    def get_vocab(self) -> dict[str, int]:
        """Return the token names, each of them unique, with their ids, including the added tokens."""
        added: dict[str, int] = self._added_tokens_encoder
        return {name: i for i, name in enumerate(self.swe.names)} | added

    def _encode_plus(self, text: Any, text_pair: Any = None, prefix_text: Any = None, **kwargs: Any) -> Any:
        if prefix_text is not None:
            text, text_pair = prefix_text, text
        return super()._encode_plus(text, text_pair, **kwargs)

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return [self.swe.names[i] for i in self.swe.encode_text(text, self.do_clean_text)]

    def _convert_token_to_id(self, token: str) -> int:
        return self._id_of.get(token, self.swe.ids[swe.NAMED["nottoken"]])

    def _convert_id_to_token(self, index: int) -> str:
        return self.swe.names[index]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Return the text for a list of tokens. swe.py decodes their ids; added tokens are left unchanged."""
        return "".join(
            self.swe.decode(self._id_of[token] for token in run) if known else "".join(run)
            for known, run in groupby(tokens, self._id_of.__contains__)
        )

    def build_inputs_with_special_tokens(self, token_ids_0: list[int], token_ids_1: list[int] | None = None) -> Any:
        """Return SOT SEG text, or for two texts SOT prefix SEG text."""
        prefix, text = ([], token_ids_0) if token_ids_1 is None else (token_ids_0, token_ids_1)
        return [self.bos_token_id, *prefix, self.sep_token_id, *text]

    def create_token_type_ids_from_sequences(self, token_ids_0: list[int], token_ids_1: list[int] | None = None) -> Any:
        """Return the token types: 1 on SOT and the prefix, 0 from SEG onward."""
        prefix, text = ([], token_ids_0) if token_ids_1 is None else (token_ids_0, token_ids_1)
        return [1] * (1 + len(prefix)) + [0] * (1 + len(text))

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Copy vocab.txt and emoji.json to a folder and return their paths."""
        saved = {key: Path(save_directory) / f"{filename_prefix or ''}{name}" for key, name in FILES.items()}
        for key, target in saved.items():
            if not (target.exists() and target.samefile(getattr(self, key))):
                shutil.copyfile(getattr(self, key), target)
        return tuple(map(str, saved.values()))


def load_tokenizer(folder: Path) -> GPTSanTokenizer:
    """Load the tokenizer from a folder."""
    for name in FILES.values():
        require_file(folder / name)
    tokenizer: GPTSanTokenizer = model_folder.load_tokenizer(folder, GPTSanTokenizer)
    return tokenizer


class GPTSanJapaneseTokenizer(GPTSanTokenizer):
    """GPTSanTokenizer under the class name that the published tokenizer_config.json uses."""


AutoConfig.register(GPTSanConfig.model_type, GPTSanConfig, exist_ok=True)
AutoTokenizer.register(GPTSanConfig, GPTSanTokenizer, slow_tokenizer_class=GPTSanJapaneseTokenizer, exist_ok=True)
