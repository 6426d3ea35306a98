"""Tokenizer for folders with a sentencepiece model, such as rinna's, whose ids are those of sentencepiece itself.

Such folders name a class, for example T5Tokenizer, or none. The classes of transformers 5 rebuild the model with rules
of their own: T5Tokenizer for T5's vocabulary, AlbertTokenizer without accents, so that が becomes か.
"""

import re
from functools import cache, cached_property
from itertools import chain, groupby
from typing import Any

from sentencepiece import SentencePieceProcessor
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

from course_lib.checkpoints import tokenizer_settings
from course_lib.checkpoints.tokenizer_json import LINE_BREAK


class SentencePieceTokenizer(SentencePieceBackend):  # type: ignore[misc]
    """Tokenizer in a folder with a sentencepiece model. It adds no special tokens to a text."""

    model_input_names = ("input_ids", "attention_mask")

    def __init__(self, **kwargs: Any) -> None:
        model = SentencePieceProcessor(model_file=kwargs["vocab_file"])
        ids = {"bos_token": model.bos_id(), "eos_token": model.eos_id(), "unk_token": model.unk_id()}
        named = {key: model.id_to_piece(number) for key, number in ids.items() if number >= 0}
        # Without `legacy`, transformers would take the model's space before the text away; sp_model_kwargs can turn on
        # sampling.
        super().__init__(**named | kwargs | {"legacy": True, "sp_model_kwargs": {}})

    @cached_property
    def _outside(self) -> dict[str, int]:
        """Tokens that were added to the model, without the special ones; the line break is no special one."""
        added = self._added_tokens_decoder.items()
        return {
            token.content: number
            for number, token in added
            if number >= self.vocab_size and (not token.special or token.content == LINE_BREAK)
        }

    def text_ids(self, text: str) -> list[int]:
        """Return the ids that sentencepiece gives to a text, which has the names of control tokens as text."""
        if not self._outside:
            return list(self.sp_model.encode(text))
        longest_first = sorted(self._outside, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)
        ids = ([self._outside[part]] if part in self._outside else self.sp_model.encode(part) for part in parts)
        return list(chain.from_iterable(ids))

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        if tokenizer_settings.is_lower_case(self.init_kwargs):
            text = tokenizer_settings.lowered(text)
        return list(self.sp_model.encode(text, out_type=str))

    def _decode(self, token_ids: int | list[int], skip_special_tokens: bool = False, **kwargs: Any) -> str:
        """Return the text of ids. A piece that texts are encoded with is no control token, even if named as special."""
        if skip_special_tokens:
            ids = [token_ids] if isinstance(token_ids, int) else token_ids
            token_ids = [number for number in ids if not self._is_control(number)]
        return str(super()._decode(token_ids, skip_special_tokens=False, **kwargs))

    def _is_control(self, number: int) -> bool:
        if number not in self.all_special_ids:
            return False
        if number >= self.vocab_size:
            return True
        return bool(self.sp_model.is_control(number) or self.sp_model.is_unknown(number))

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Return the text for a list of tokens. sentencepiece decodes them; special tokens are left unchanged."""
        special = set(self.all_special_tokens)
        runs = groupby(tokens, special.__contains__)
        return "".join("".join(run) if is_special else self.sp_model.decode(list(run)) for is_special, run in runs)


@cache
def reader_of(name: str) -> type[SentencePieceTokenizer]:
    """Return the class for folders in which the sentencepiece model has this file name."""
    return type("SentencePieceTokenizer", (SentencePieceTokenizer,), {"vocab_files_names": {"vocab_file": name}})
