"""Settings of chapter 1's Wikipedia extraction (those of download and web text stand in their own files)."""

from pydantic.dataclasses import dataclass

from course_lib.config import STRICT, setting


@dataclass(frozen=True, config=STRICT)
class WikipediaConfig:
    """Which articles and sections are kept."""

    min_chars: int = setting(100, "shorter articles are left out [characters of plain text]", ge=0)
    drop_sections: tuple[str, ...] = setting(
        ("脚注", "注釈", "出典", "註", "註釈", "注", "注記", "参照", "参考文献", "関連項目", "関連書籍", "関連文献", "外部リンク", "脚注・出典",
         "注釈・出典", "出典・参考文献", "参考資料", "文献", "関連リンク", "ギャラリー", "関連人物"),
        "headings whose sections (lists of sources and links) are left out",
    )  # fmt: skip
    disambiguation: tuple[str, ...] = setting(
        ("aimai", "disambig", "disambiguation", "曖昧さ回避", "人名の曖昧さ回避", "地名の曖昧さ回避", "山の曖昧さ回避", "同名の作品", "given name", "surname"),
        "templates that make a page a list of meanings, not an article",
    )  # fmt: skip
