"""Settings for chapter 1, in a separate module so that showing help does not import the code that uses them."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from course_lib.settings.config import STRICT, Section, setting

# Corpora that can be downloaded.
Dataset = Literal["jawiki", "cc100"]
ADDRESS = r"^https?://[^\s?#]+$"
# Characters; the repetition filter counts runs of this length that occurred earlier in the document.
REPEATED = 10


@dataclass(frozen=True, config=STRICT)
class WikipediaConfig:
    """Settings for the Wikipedia extraction: which articles and sections are kept."""

    min_chars: int = setting(
        100, "shorter articles are left out [characters of plain text, with white space]", ge=0, le=10**9
    )
    drop_sections: tuple[str, ...] = setting(
        ("脚注", "注釈", "出典", "註", "註釈", "注", "注記", "参照", "参考文献", "関連項目", "関連書籍", "関連文献",
         "外部リンク", "脚注・出典", "注釈・出典", "出典・参考文献", "参考資料", "文献", "関連リンク", "ギャラリー",
         "関連人物"),
        "headings of the sections that are left out: lists of sources and links",
    )  # fmt: skip
    disambiguation: tuple[str, ...] = setting(
        ("aimai", "disambig", "disambiguation", "曖昧さ回避", "人名の曖昧さ回避", "地名の曖昧さ回避", "山の曖昧さ回避",
         "同名の作品", "given name", "surname"),
        "templates that mark a disambiguation page; such pages are left out",
    )  # fmt: skip


@dataclass(frozen=True, config=STRICT)
class DownloadConfig:
    """Settings for downloads: corpus URLs, retries and waiting times."""

    wikipedia_mirror: str = setting("https://dumps.wikimedia.org", "address that contains jawiki/", pattern=ADDRESS)
    cc100_mirror: str = setting("https://data.statmt.org/cc-100", "address that contains ja.txt.xz", pattern=ADDRESS)
    retries: int = setting(8, "retries in a row without new data before the download fails", ge=0, le=10_000)
    timeout: float = setting(60.0, "longest time without data from the server [s]", gt=0, le=86_400)
    backoff: float = setting(
        1.0, "wait before the first retry, doubled for each further one, up to 60 [s]", ge=0, le=60
    )


@dataclass(frozen=True, config=STRICT)
class FilterConfig:
    """Limits for the quality filters; shares are between 0 and 1.

    White space does not count, except in `min_prose`, which compares the lengths of lines as they are. A limit min_…
    removes the documents below it, a limit max_… those above it.
    """

    min_chars: int = setting(80, "shortest document kept [characters without white space]", ge=0, le=10**9)
    max_garbled: float = setting(0.01, "maximum share of wrongly decoded characters, such as U+FFFD or 縺", ge=0, le=1)
    min_japanese: float = setting(0.4, "minimum share of kana and kanji among all letters", ge=0, le=1)
    min_hiragana: float = setting(0.2, "minimum share of hiragana among kana and kanji, as in prose", ge=0, le=1)
    min_prose: float = setting(0.45, "minimum share of characters in lines that read like sentences", ge=0, le=1)
    max_symbols: float = setting(0.3, "maximum share of symbols and emoji", ge=0, le=1)
    max_digits: float = setting(0.25, "maximum share of digits", ge=0, le=1)
    max_links: float = setting(0.15, "maximum share of characters in web addresses", ge=0, le=1)
    max_repetition: float = setting(0.1, f"maximum share of repeated runs of {REPEATED} characters", ge=0, le=1)
    mask_personal: bool = setting(False, "whether phone numbers, mail addresses and postal codes are masked")


@dataclass(frozen=True, config=STRICT)
class DedupConfig:
    """Settings that define a duplicate; tests/bench/README.md has what the defaults find."""

    line_chars: int = setting(
        20, "shortest line that is removed as a duplicate [characters with white space]", ge=1, le=10**9
    )
    near_duplicates: bool = setting(True, "whether near-duplicate documents are removed")
    ngram: int = setting(
        4, "length of the n-grams by which documents are compared [characters without white space]", ge=1, le=100
    )
    similarity: float = setting(0.35, "minimum Jaccard similarity of two near-duplicates", gt=0, le=1)
    num_perm: int = setting(192, "MinHash values per document [bytes]", ge=1, le=4096)
    num_bands: int = setting(64, "bands of the values; more find more near-duplicates [8 bytes each]", ge=1, le=4096)

    @model_validator(mode="after")
    def _whole_bands(self) -> "DedupConfig":
        if self.num_perm % self.num_bands:
            raise ValueError(f"num_perm ({self.num_perm}) has to be a multiple of num_bands ({self.num_bands})")
        return self


@dataclass(frozen=True, config=STRICT)
class WebtextConfig:
    """Settings for cleaning web text: reading, filters and deduplication."""

    max_line_bytes: int = setting(10**6, "longest line; a longer one is left out and counted [bytes]", ge=1, le=10**9)
    max_document_bytes: int = setting(4 * 10**6, "length at which a document is cut in two [bytes]", ge=1, le=10**9)
    examples: int = setting(3, "removed documents shown in the report for each reason", ge=0, le=1000)
    filters: FilterConfig = Field(default_factory=FilterConfig)
    dedup: DedupConfig = Field(default_factory=DedupConfig)


@dataclass(frozen=True, config=STRICT)
class AozoraConfig:
    """Settings for the works of Aozora Bunko: which are kept, how they are cut, and which are held out."""

    orthography: Literal["new", "old", "all"] = setting(
        "new", "works that are kept: new: in today's orthography (新仮名); old: in the one before 1946, or in katakana"
    )
    copyrighted: bool = setting(
        False, "keep works too that their colophon puts under a license or a holder's copyright"
    )
    min_chars: int = setting(
        200, "shorter works are left out [characters of plain text, with white space]", ge=1, le=10**9
    )
    line_chars: int = setting(20, "shortest line that shows a copy [characters with white space]", ge=1, le=10**9)
    max_repeated: float = setting(
        0.3, "a work is a copy if a larger share of such lines stands in longer works", ge=0, le=1
    )
    piece_characters: int | None = setting(
        None,
        "cut works at line ends into pieces of at least as many characters, white space included; unset: whole works",
        ge=1,
        le=10**9,
    )
    held_out: Path | None = setting(
        None, 'JSON file {"authors": […], "files": […]} with what is held out; unset: authors by a hash'
    )
    held_out_share: float = setting(0.01, "share of the authors that are held out if there is no list", ge=0, le=1)
    examples: int = setting(3, "works that were left out shown in the report for each reason", ge=0, le=1000)


@dataclass(frozen=True, config=STRICT)
class Sources:
    """Settings that choose the source of a profile's raw text."""

    wikipedia: Literal["bundled", "download"] = setting(
        "bundled", "bundled: the sample in data/; download: the real dump"
    )
    date: str | int = setting("latest", "day of the Wikipedia dump, such as 20261101, or latest")
    part: int | None = setting(
        None, "number of the one part of the dump that is downloaded (the first has about 300 MB); unset: all", ge=1
    )
    webtext: Literal["bundled", "download", "files"] = setting(
        "bundled", "bundled: the sample in data/; download: CC-100; files: the texts in `files`, cleaned as web text is"
    )
    world: int = setting(
        0, "documents of the small world; above 0, the models learn these and not the texts above", ge=0
    )
    files: tuple[str, ...] = setting(
        (),
        "text files of your own: paths or patterns such as texts/*.jsonl, relative to the profile's file; .txt with an "
        'empty line between documents or .jsonl with "text", plain or compressed',
    )
    documents: tuple[str, ...] = setting(
        (),
        "files of documents that need no cleaning, such as train.jsonl of `course corpus aozora`, relative to the "
        "profile's file; the GPT-2 learns these, and not the texts above",
    )

    @model_validator(mode="after")
    def _together(self) -> "Sources":
        if (self.webtext == "files") != bool(self.files):
            raise ValueError("files: needs `webtext: files`, and `webtext: files` needs files")
        if self.documents and self.world:
            raise ValueError(f"documents: needs `world: 0`, not {self.world}")
        return self


# The chapter's sections of a profile.
SOURCES_SECTION = Section("corpus.sources", Sources)
DOWNLOAD_SECTION = Section("corpus.download", DownloadConfig)
WIKIPEDIA_SECTION = Section("corpus.wikipedia", WikipediaConfig)
WEBTEXT_SECTION = Section("corpus.webtext", WebtextConfig)
