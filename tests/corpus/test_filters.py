"""Every filter removes what it is for, and ordinary writing of every kind passes all of them."""

import pytest
from course_lib.corpus.config import FilterConfig
from course_lib.corpus.filters import FILTERS, first_failure, is_prose, measures
from course_lib.settings import config

from tests.corpus.topics import FRAMES, PROSE

DIARY = (
    "日曜の朝、近所の川まで散歩に出かけた。土手の草はもう刈られていて、乾いた匂いがした。\n"
    "橋の下で、釣りをしている親子に会った。「釣れますか」と聞くと、父親は笑って首を横に振った。\n"
    "子どものほうは、釣りよりも石を集めることに忙しい。帰り道、私のポケットにも石が三つ入っていた。"
)
KEPT = {
    "diary": DIARY,
    "half-width": "昨日ﾎｰﾑｾﾝﾀｰでﾌﾟﾗﾝﾀｰを買ってきて、ﾍﾞﾗﾝﾀﾞでﾊｰﾌﾞを育て始めました。ﾊﾞｼﾞﾙとﾐﾝﾄの二種類です。"
    + "ﾐﾝﾄは増えすぎると聞いたので、別のﾎﾟｯﾄに分けて置きました。早くﾄﾏﾄと一緒に食べたいなぁ。",
    "full-width": "第２３回町民ソフトボール大会を１０月５日（日）午前８時３０分から行います。㈱丸山の皆さんも①受付②着替えの順にどうぞ。"
    "雨の場合は１２日に延ばします。詳しいことはＣホール３Ｆの掲示をご覧ください。",
    "waves": "やっと週末〜〜〜！！！今週はずっと残業で、毎日おにぎりだったので・・・今日は朝からパンを焼きました～♪\n"
    "が、まったく膨らまない…………なんで？？？？と思ったらイーストを入れ忘れてましたwwwwww 明日こそーーーー！！！",
    "emoji": "今日は息子の5歳の誕生日でした🎂🎉\n朝から「ケーキまだ？」と20回は聞かれました😂\n電車のケーキを作ったのに、どう見ても芋虫…🐛💦\n"
    "でも「すごーい」と大喜び🚄✨ じいじとばあばも来てくれました👴🏻👵🏻\n生まれてきてくれてありがとう❤️",
    "mixed": "Visual Studio Code で Markdown を書くときの設定を、自分用にメモしておく。まず Settings を開いて editor.wordWrap を on にする。"
    "次に preview は Ctrl+K を押してから V。これで画面が左右に分かれて、書いた内容がすぐに確認できる。",
    "verse": "あかるい窓をあけておくと\nどこからか雨のにおいがして\nきのうの手紙をよむように\nわたしは空をながめている\nとおくの丘をひとりでゆく\n"
    "牛の背中もぬれているだろう\nかえりたいところがあって\nまだ名前をつけていない",
    "one long line": DIARY.replace("\n", "")
    + "それから夕方まで、石の重さを確かめては机に戻していた。ログインのしかたを忘れた機械のように、私は黙っていた。",
}
MENU = "ホーム > 商品一覧 > 台所用品 > 土鍋\nログイン | 会員登録 | ヘルプ\n並び替え 新着順 人気順 価格順\nお気に入りに追加\n最近チェックした商品\nもっと見る\n前へ 1 2 次へ\nご利用ガイド よくある質問 お問い合わせ"
REMOVED = {
    "too_short": "続きを読む",
    "garbled": DIARY.encode().decode("cp932", "replace"),
    "not_japanese": "This page has moved. Please update your bookmarks and visit the new address given below this paragraph. どうも。",
    "links": "相互リンク集です。\n" + "http://example.com/link/to/another/page/ ご覧ください。\n" * 2 + DIARY[:60],
    "digits": "日 月 火 水 木 金 土\n" + "\n".join(f"{n} {n + 1} {n + 2} 予定" for n in range(1, 40, 3)),
    "symbols": "◆◇" * 12 + "\n" + "★☆★☆★☆★☆ お得です！ ★☆★☆★☆★☆\n" * 2 + "本日限りですので、お早めにどうぞ。" + "◆◇" * 12,
    "repetition": "誰でも簡単に毎日稼げる方法があります。" * 4 + "その方法は、誰でも簡単に毎日稼げる方法です。",
    "boilerplate": MENU,
    "little_hiragana": "太宰イツマデモ病人ノ感覚ダケニ興ジテ、高邁ノ精神ワスレテハイナイカ。片仮名ハ読ミニククテカナワヌ。然シ今更何ヲ言ウ。"
    "春ノ日ノ暮レルマデ、我ハ窓ノ外ヲ眺メ、一人静カニ茶ヲ飲ミタリ。遠方ヨリ友来タレリ。",
}  # fmt: skip


@pytest.mark.parametrize("kind", KEPT)
def test_ordinary_writing_stays(kind: str) -> None:
    assert first_failure(KEPT[kind], FilterConfig()) is None


@pytest.mark.parametrize("name", REMOVED)
def test_each_filter_removes_its_kind_and_obeys_its_limit(name: str) -> None:
    text = REMOVED[name]
    failure = first_failure(text, FilterConfig())
    assert failure is not None and failure[0] == name
    assert failure[1] == measures(text)[name]
    setting = next(test.setting for test in FILTERS if test.name == name)
    open_limit = config.build(FilterConfig, {setting: 0 if setting.startswith("min_") else 1})
    later = first_failure(text, open_limit)
    assert later is None or later[0] != name


@pytest.mark.parametrize(
    ("written", "read"), [("utf8", "cp932"), ("utf8", "cp1252"), ("euc_jp", "latin1"), ("cp932", "utf8")]
)
def test_one_wrongly_decoded_line_in_a_page_is_enough(written: str, read: str) -> None:
    bad = DIARY.split("\n")[0].encode(written).decode(read, "replace")
    page = "\n".join([DIARY, DIARY.replace("川", "池"), bad])
    failure = first_failure(page, FilterConfig(max_repetition=1.0))
    assert failure is not None and failure[0] == "garbled"


@pytest.mark.parametrize(
    ("line", "prose"),
    [
        ("猫は台所で寝ている。", True),
        ("やったあーーー", True),
        ("雨のにおいがしている", True),
        ("ホーム > 読みもの > 写真", False),
        ("Copyright (C) 2014 すべての権利を留保します。", False),
        ("羽毛布団 激安 通販 送料無料", False),
        ("", False),
        # Full stops of other widths, and what is none.
        ("深層学習を用いた画像認識手法を提案する．", True),
        ("提案手法､計算量約三割削減｡", True),
        ("実験結果，認識精度向上（図１）．", True),
        ("実験結果，認識精度の向上を確認した[3].", True),
        ("ﾃﾞｰﾀ量ﾊ三割減ｼﾀ｡次ﾆ精度ﾃﾞｱﾙ", True),
        ("実験結果, 認識精度の大幅な向上を確認した. 計算量増大", True),
        ("発売日 2014.1.5 定価 1.5万円 第3.2版", False),
        ("２０１４．１．５　２０１４．１．６", False),
        ("www.example.com 会社案内.pdf", False),
        ("ホーム.商品一覧.会社概要.採用情報", False),
        ("1.会社概要 2.商品一覧 3.採用情報", False),
        ("１．会社概要　２．商品一覧　３．採用情報", False),
        ("製品を見る. 採用情報. 会社概要", False),
        ("ﾟ*｡人気順位｡*ﾟ", False),
        # These words always count, however long the sentence.
        ("本文や写真を許可なくほかの場所に載せることは禁止し、無断転載を見つけた場合は連絡します。", False),
        ("表示が崩れる場合は、ブラウザの設定でJavaScriptを有効にしてからもう一度読み込みましょう。", False),
        ("この記事へのトラックバックは、内容を確認したうえで管理人が承認したものだけを表示しています。", False),
        # The others yield to a full sentence that does not speak to visitors.
        ("パスワードは十二文字以上にして、ほかのサービスと同じものを使わないようにしましょう。", True),
        ("パスワードは十二文字以上に", False),
        ("パスワードを変える。", False),
        ("長いパスワードは，紙に書いて引き出しにしまうより管理ソフトに任せるほうがよい．", True),
        (
            "当サイトでは、利便性向上のためにクッキーを使用しています。閲覧を続けると、クッキーの使用に同意したものとみなされます。",
            False,
        ),
        ("会員登録や配送についての詳しい説明、サイズの選び方、返品の手順などはこちら。", False),
        ("利用規約｜会員登録｜サイトマップ｜お問い合わせ｜パスワードの再設定をするページへ。", False),
    ],
)
def test_prose_lines(line: str, prose: bool) -> None:
    assert is_prose(line) is prose


def test_topics_of_page_frames_are_left_to_prose() -> None:
    assert [line for line in PROSE if not is_prose(line)] == []
    # No word tells the other ten apart, such as 会員登録をした方だけに、毎週お得な情報をお届けします。
    assert sum(map(is_prose, FRAMES)) <= 10


PAPER = (
    "本研究では、深層学習を用いた画像認識手法を提案する。\n提案手法は、畳込み層の重み行列を近似し、計算量を約三割削減した。\n"
    "評価実験では、公開データセット三種を用い、従来手法と認識精度を比較した。"
)


@pytest.mark.parametrize("marks", ["、。", "，．", "､｡", "，。"])
def test_papers_with_marks_of_any_width_stay(marks: str) -> None:
    text = PAPER.translate(str.maketrans("、。", marks))
    assert first_failure(text, FilterConfig()) is None
    assert measures(text)["boilerplate"] == 1
