"""GPTSAN subword encoding ("SWE"): converts text to token ids and back, using only the standard library.

Each line in `vocab.txt` is an entry, and its zero-based line number is its id. The comma-separated parts of an entry
are alternative spellings: all of them encode to the same id, and the id decodes to the first one.

The encoder scans the text from left to right. If several entries of up to 3 characters match at a position, it takes
the one with the smallest id, not the longest. There are no unknown characters: a character outside the vocabulary
becomes its UTF-8 bytes, or a class token if it is a symbol. `emoji.json` maps strings to twelve emoji tokens, and each
emoji token to the string that it decodes to.

Decoding restores the text, except for spellings that are not the first of their entry, symbols outside the vocabulary,
emoji other than the string of their token, full-width space, CR, — and − (→ space, LF, ー, ー), text such as `<...>`
that matches a special entry, unpaired surrogates, and text replaced by `clean`.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.files import read_json, require_file
from course_lib.gptsan.cleaning import clean as cleaned

# Files in a tokenizer folder: vocabulary and emoji table.
FILES = ("vocab.txt", "emoji.json")
# Maximum length of an entry that does not begin with `<`.
LONGEST = 3
MARKUP = {"<BR>": "\n", "<SP>": " ", "<TAB>": "\t"}
CLEANED = ("<URL>", "<EMAIL>", "<TEL>", "<DATE>", "<PRICE>", "<BLOCK>")
# Symbol class token → text that it decodes to.
CLASSES = {"<KIGOU>": "ǀ", "<U2000U2BFF>": "‖"}
EMOJI = tuple(f"<|emoji{group}|>" for group in range(1, 13))
# Byte 255 never occurs in UTF-8.
BYTES = tuple(f"<|byte{value}|>" for value in range(255))
NAMED = {
    "sot": "<|startoftext|>",
    "msk": "<|inputmask|>",
    "sep": "<|separator|>",
    "nottoken": "<|nottoken|>",
    "bag": "<|bagoftoken|>",
    "seg": "<|segmenter|>",
    "eot": "<|endoftext|>",
}
# Their names in transformers: its `sep` is SEG, and its `pad` is SEP, although training pads with NOT.
SPECIAL_TOKENS = {
    "unk_token": NAMED["nottoken"],
    "pad_token": NAMED["sep"],
    "bos_token": NAMED["sot"],
    "eos_token": NAMED["eot"],
    "sep_token": NAMED["seg"],
}
# Entries in the special block, in id order.
SPECIALS = (*MARKUP, *CLEANED, *CLASSES, *EMOJI, *BYTES, *NAMED.values())
# Replacements before encoding: (text, replacement).
REPLACED = (("\r\n", "\n"), ("\r", "\n"), ("　", " "), ("—", "ー"), ("−", "ー"), *((v, k) for k, v in MARKUP.items()))
# Code points in the two symbol classes.
KIGOU = (range(0xA1, 0xC0), range(0x1C0, 0x1C4), range(0x2B9, 0x363))
U2000 = range(0x2000, 0x2C00)
# Number of copies of the preceding token that BAG decodes to. In the training data, BAG stands for the rest of a run of
# three or more equal tokens; the length of the run is not stored.
BAG_COPIES = 2


class SubwordEncoding:
    """Encoder and decoder for one vocabulary.

    Args:
        entries: Lines of the vocabulary file.
        emoji: String → emoji token. Replacements are made in this order.
        shown: Emoji token → string that it decodes to.
        origin: Name for the vocabulary in error messages.
    """

    def __init__(
        self, entries: Sequence[str], emoji: dict[str, str], shown: dict[str, str], origin: str = "vocabulary"
    ) -> None:
        self.entries = list(entries)
        spellings = [[line] if line == "," else line.split(",") for line in entries]
        self.ids = {spelling: i for i, group in enumerate(spellings) for spelling in group if spelling}
        missing = [token for token in SPECIALS if token not in self.ids]
        if missing:
            raise CourseError(f"{origin}: {len(missing)} special entries are missing, the first is {missing[0]}")
        # A unique name for each id, although a few lines in the published vocabulary occur twice.
        self.names = [
            next((spelling for spelling in group if self.ids.get(spelling) == i), f"{group[0]}#{i}")
            for i, group in enumerate(spellings)
        ]
        named = [self.ids[token] for token in NAMED.values()]
        self.sot, self.msk, self.sep, self.nottoken, self.bag, self.seg, self.eot = named
        self._build_tables(emoji)
        self._shown = [group[0] for group in spellings]
        for token, text in (MARKUP | CLASSES | {"<BLOCK>": "▀"} | shown | dict.fromkeys(NAMED.values(), "")).items():
            self._shown[self.ids[token]] = text
        self._byte_ids = [self.ids[token] for token in BYTES]
        self._byte_of = {i: value for value, i in enumerate(self._byte_ids)}

    def _build_tables(self, emoji: dict[str, str]) -> None:
        """Build the tables for encoding.

        - `_best`: up to 3 characters of text → (id, length) of the vocabulary entry to use there
        - `_angle`: the same, for `<` alone or with one other character
        - `_angle_lengths`: lengths of the longer spellings that begin with `<`, longest first
        - `_emoji`: emoji strings by first character
        """
        self._angle_lengths = sorted({len(s) for s in self.ids if s[0] == "<" and len(s) > 2}, reverse=True)
        self._best: dict[str, tuple[int, int]] = {}
        for spelling in sorted(self.ids, key=len):
            if len(spelling) <= LONGEST and not (spelling[0] == "<" and len(spelling) > 2):
                entry = (self.ids[spelling], len(spelling))
                shorter = [self._best.get(spelling[:n], entry) for n in range(1, len(spelling))]
                self._best[spelling] = min([entry, *shorter], key=lambda found: (found[0], -found[1]))
        self._angle = {s: self._best.pop(s) for s in list(self._best) if s[0] == "<"}
        self._emoji: dict[str, list[tuple[int, str, str]]] = {}
        for rank, (text, token) in enumerate(emoji.items()):
            self._emoji.setdefault(text[0], []).append((rank, text, token))

    def __len__(self) -> int:
        return len(self.entries)

    def encode_text(self, text: str, clean: bool = False) -> list[int]:
        """Return the token ids of a text, without special tokens around it; `clean` applies cleaning.py."""
        text = self.prepare(text, clean)
        ids: list[int] = []
        best, append, position, end = self._best.get, ids.append, 0, len(text)
        while position < end:
            entry = best(text[position : position + 3]) or best(text[position : position + 2]) or best(text[position])
            if entry:
                append(entry[0])
                position += entry[1]
            else:
                others, length = self._other(text, position)
                ids += others
                position += length
        return ids

    def _other(self, text: str, position: int) -> tuple[list[int], int]:
        """Return the ids of what begins with `<` or an unknown character at `position`, and its length."""
        character = text[position]
        if character == "<":
            for length in self._angle_lengths:
                piece = text[position : position + length]
                if len(piece) == length and piece in self.ids:
                    return [self.ids[piece]], length
            entry = self._angle.get(text[position : position + 2]) or self._angle.get("<")
            if entry:
                return [entry[0]], entry[1]
        if ord(character) in U2000:
            return [self.ids["<U2000U2BFF>"]], 1
        if any(ord(character) in symbols for symbols in KIGOU):
            return [self.ids["<KIGOU>"]], 1
        return [self._byte_ids[value] for value in character.encode("utf8", "surrogatepass")], 1

    def prepare(self, text: str, clean: bool = False) -> str:
        """Replace spaces, line breaks, tabs and emoji with their tokens, "—" and "−" with "ー", then `clean`."""
        for old, new in REPLACED:
            text = text.replace(old, new)
        for _, emoji, token in sorted(e for first in self._emoji.keys() & set(text) for e in self._emoji[first]):
            text = text.replace(emoji, token)
        return cleaned(text) if clean else text

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text for a sequence of token ids; invalid UTF-8 becomes �, BAG repeats the preceding id twice."""
        expanded: list[int] = []
        for i in ids:
            if not 0 <= i < len(self.entries):
                raise CourseError(f"id {i}: not in a vocabulary of {len(self.entries)} entries")
            expanded += [i] if i != self.bag else expanded[-1:] * BAG_COPIES
        text = ""
        for is_bytes, run in groupby(expanded, self._byte_of.__contains__):
            if is_bytes:
                text += bytes(self._byte_of[i] for i in run).decode("utf8", "replace")
            else:
                text += "".join(self._shown[i] for i in run)
        return text


def load(vocabulary: Path, emoji: Path) -> SubwordEncoding:
    """Load the encoding from a `vocab.txt` file and an `emoji.json` file."""
    try:
        entries = require_file(vocabulary).read_text(encoding="utf8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CourseError(f"{vocabulary}: not UTF-8 at byte {error.start}") from None
    tables = read_json(emoji)
    if not {"emoji", "emoji_inv"} <= tables.keys():
        raise CourseError(
            f'{emoji}: expected "emoji" (string → one of {EMOJI[0]} to {EMOJI[-1]}) and "emoji_inv" (those 12 → string)'
        )
    return SubwordEncoding(entries, tables["emoji"], tables["emoji_inv"], str(vocabulary))
