"""Settings of chapter 1, apart from the code they steer so that `course --help` need not import that."""

from typing import Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from course_lib.config import STRICT, setting

Dataset = Literal["jawiki", "cc100"]  # what can be downloaded
ADDRESS = r"^https?://[^\s?#]+$"
REPEATED = 10  # characters of a run that counts as repeated when it comes twice


@dataclass(frozen=True, config=STRICT)
class WikipediaConfig:
    """Which articles and sections are kept."""

    min_chars: int = setting(100, "shorter articles are left out [characters of plain text]", ge=0, le=10**9)
    drop_sections: tuple[str, ...] = setting(
        ("脚注", "注釈", "出典", "註", "註釈", "注", "注記", "参照", "参考文献", "関連項目", "関連書籍", "関連文献", "外部リンク", "脚注・出典",
         "注釈・出典", "出典・参考文献", "参考資料", "文献", "関連リンク", "ギャラリー", "関連人物"),
        "headings whose sections (lists of sources and links) are left out",
    )  # fmt: skip
    disambiguation: tuple[str, ...] = setting(
        ("aimai", "disambig", "disambiguation", "曖昧さ回避", "人名の曖昧さ回避", "地名の曖昧さ回避", "山の曖昧さ回避", "同名の作品", "given name", "surname"),
        "templates that make a page a list of meanings, not an article",
    )  # fmt: skip


@dataclass(frozen=True, config=STRICT)
class DownloadConfig:
    """Where the corpora come from and how patient the download is."""

    wikipedia_mirror: str = setting("https://dumps.wikimedia.org", "address that has jawiki/ below it", pattern=ADDRESS)
    cc100_mirror: str = setting(
        "https://data.statmt.org/cc-100", "address that has ja.txt.xz below it", pattern=ADDRESS
    )
    retries: int = setting(8, "further attempts in a row that may bring nothing new", ge=0, le=10_000)
    timeout: float = setting(60.0, "longest silence of the server [s]", gt=0, le=86_400)
    backoff: float = setting(1.0, "wait before the first further attempt, then doubled up to a minute [s]", ge=0, le=60)


@dataclass(frozen=True, config=STRICT)
class FilterConfig:
    """The limits. Shares are parts of one; white space is not counted anywhere."""

    min_chars: int = setting(80, "shortest document kept [characters]", ge=0, le=10**9)
    max_garbled: float = setting(0.01, "most wrongly decoded characters, such as U+FFFD or 縺 [share]", ge=0, le=1)
    min_japanese: float = setting(0.4, "fewest kana and kanji among the letters [share]", ge=0, le=1)
    min_hiragana: float = setting(0.2, "fewest hiragana among kana and kanji: prose has them [share]", ge=0, le=1)
    min_prose: float = setting(0.45, "fewest characters in lines that read like sentences [share]", ge=0, le=1)
    max_symbols: float = setting(0.3, "most signs and emoji [share]", ge=0, le=1)
    max_digits: float = setting(0.25, "most digits [share]", ge=0, le=1)
    max_links: float = setting(0.15, "most characters in web addresses [share]", ge=0, le=1)
    max_repetition: float = setting(0.1, f"most runs of {REPEATED} characters that came before [share]", ge=0, le=1)


@dataclass(frozen=True, config=STRICT)
class DedupConfig:
    """What counts as a repeat. Defaults: tests/bench/bench_near_duplicates.py."""

    line_chars: int = setting(
        20, "shortest line that is removed when it came before [characters]; はい。 may repeat", ge=1, le=10**9
    )
    near_duplicates: bool = setting(True, "whether near repeats of documents are removed")
    ngram: int = setting(4, "length of the runs that two documents may share [characters]", ge=1, le=100)
    similarity: float = setting(0.35, "share of runs in common (Jaccard) from which documents are repeats", gt=0, le=1)
    num_perm: int = setting(
        192, "MinHash values of a document; more estimate closer [bytes of memory a document]", ge=1, le=4096
    )
    num_bands: int = setting(
        64, "parts of the signature that are looked up; more find more [8 bytes each a document]", ge=1, le=4096
    )

    @model_validator(mode="after")
    def _whole_bands(self) -> "DedupConfig":
        if self.num_perm % self.num_bands:
            raise ValueError(f"num_perm ({self.num_perm}) has to be a multiple of num_bands ({self.num_bands})")
        return self


@dataclass(frozen=True, config=STRICT)
class WebtextConfig:
    """How web text is read, filtered and rid of repeats."""

    max_line_bytes: int = setting(1_000_000, "a longer line is skipped and counted [bytes]", ge=1, le=10**9)
    max_document_bytes: int = setting(
        4_000_000, "a longer document goes on as another after this [bytes]", ge=1, le=10**9
    )
    examples: int = setting(3, "removed documents shown in the report, for each reason", ge=0, le=1000)
    filters: FilterConfig = Field(default_factory=FilterConfig)
    dedup: DedupConfig = Field(default_factory=DedupConfig)


@dataclass(frozen=True, config=STRICT)
class Sources:
    """Where a profile's raw text comes from."""

    wikipedia: Literal["bundled", "download"] = setting("bundled", "the sample in data/, or the real dump")
    webtext: Literal["bundled", "download"] = setting("bundled", "the sample in data/, or CC-100")
    date: str | int = setting("latest", "date of the Wikipedia dump, as 20261101, or latest")
