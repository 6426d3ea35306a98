"""What the opt-in mask finds on lines written by hand; their author also wrote the mask."""

import pytest
from course_lib.corpus.mask import mask_personal

# Kind → lines with exactly one such item.
HELD = {
    "phone": (
        "電話は03-1234-5678です", "TEL:0120-123-456", "携帯 090-1234-5678", "080-0000-1111まで", "（03）1234-5678",
        "(06)6123-4567へどうぞ", "０３－１２３４－５６７８", "+81-3-1234-5678", "+81 90 1234 5678", "09012345678に連絡",
        "0120123456（無料）", "電話 0312345678", "電話：0451234567", "℡０３－００００－００００", "050-1234-5678（IP電話）",
        "0466-12-3456", "04-7123-4567", "011(123)4567", "0570-012-345", "FAX 03‐1234‐5678", "070 1234 5678",
        "+81-(0)3-1234-5678", "0800-123-4567",
        # Missed, as the docstring says: kanji digits.
        "〇三の一二三四の五六七八へ電話を",
    ),
    "mail": (
        "連絡先はtaro@example.comまで", "info＠example.co.jp", "ｉｎｆｏ＠ｅｘａｍｐｌｅ．ｊｐ", "a.b+c@mail.example.org。",
        "メール:web_master@example.ne.jp", "<x-1@example.com>", "hanako@sub.example.ac.jp宛て",
        # Missed, as the docstring says.
        "taro(at)example.com", "taro［アット］example.jp",
    ),
    "postal code": (
        "〒123-4567", "〒１２３－４５６７", "〒 100-0001 東京都千代田区", "郵便番号：530-0001", "郵便番号 9800001",
        "060-0001 北海道札幌市", "220-0011 神奈川県横浜市", "〒1000001", "600-8216 京都府",
        # Missed: a city without its prefecture behind the code.
        "231-0001 横浜市中区",
    ),
}  # fmt: skip
PLAIN = (
    "1995-2004年の記録", "2020-05-06に公開", "価格は1,234-5,678円", "ISBN 978-4-06-123456-7", "ISBN4-06-123456-7",
    "番号 123-4567 の部品", "型番はMK-200-1234", "得点は03-12", "12:30-13:45", "第03-12号", "2,000円から3,000円",
    "人口は1234567人", "@yamada さんの投稿", "3@100円", "a@b", "foo@bar は関数の飾り", "円周率は3.14159265",
    "05-06-2020", "192.168.100.200", "東経139-4567", "平成12-15年度", "バージョン 0.12.345", "０．５－１．５ミリ",
    "注文番号 2024-0001-2345", "03-1234", "口座番号1234567", "100-200人", "4000-5000メートル", "午前0時10分",
    "学籍番号 12345678901",
    # Masked wrongly: digits of a product number that look like those of a phone number.
    "品番 012-3456-7890",
)  # fmt: skip


def _counts(kind: str) -> tuple[int, int, int]:
    """Return the numbers of items found, of items masked wrongly, and of items of a kind."""
    right = sum(mask_personal(line)[1][kind] == 1 for line in HELD[kind])
    others = [line for other, lines in HELD.items() if other != kind for line in lines]
    wrong = sum(mask_personal(line)[1][kind] for line in (*PLAIN, *others))
    return right, wrong, len(HELD[kind])


@pytest.mark.parametrize(
    ("kind", "expected"), [("phone", (23, 1, 24)), ("mail", (7, 0, 9)), ("postal code", (9, 0, 10))]
)
def test_precision_and_recall_on_lines_by_hand(kind: str, expected: tuple[int, int, int]) -> None:
    assert _counts(kind) == expected


def test_only_the_item_is_replaced() -> None:
    text, counts = mask_personal("〒100-0001 東京都。連絡先はinfo@example.jp、電話03-1234-5678（平日）")
    assert text == "〒<郵便番号> 東京都。連絡先は<メールアドレス>、電話<電話番号>（平日）"
    assert counts == {"phone": 1, "mail": 1, "postal code": 1}
