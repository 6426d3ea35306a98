"""The report of a day: as a diary in plain form, and as a letter in polite form. Same events, two styles."""

from collections.abc import Callable, Sequence

from course_lib.world.genre import Draw, Facts, Genre, Value
from course_lib.world.words import PEOPLE

WEEKDAYS = ("月曜日", "火曜日", "水曜日", "木曜日", "金曜日", "土曜日", "日曜日")
SKIES = ("いい天気", "くもり", "雨", "雪")
# place: what one does there, without the ending of the verb; plain form, polite form
DEEDS = {
    "海": ("貝がらを集め", "遠くの船をながめ", "砂の城をこしらえ"),
    "山": ("頂上で弁当を広げ", "鳥をながめ", "遠くの町をながめ"),
    "図書館": ("雑誌をながめ", "昔の地図を調べ", "絵本を借り"),
    "動物園": ("ぞうを見", "さるにえさをあげ", "ペンギンをながめ"),
    "川": ("石を投げ", "魚をつかまえ", "きれいな石を集め"),
    "町": ("古い店を見", "新しい服を着てみ", "映画を見"),
}
FRUITS = ("りんご", "みかん", "もも", "なし", "かき", "レモン")
MEALS = ("おにぎり", "サンドイッチ", "パン", "弁当", "のり巻き", "焼きそば")

# kind: (plain, polite) for each wording
STYLES = {
    "day": (
        ("今日は{weekday}で、朝から{sky}だった。", "今日は{weekday}で、朝から{sky}でした。"),
        ("今日は{weekday}で、一日じゅう{sky}だった。", "今日は{weekday}で、一日じゅう{sky}でした。"),
    ),
    "trip": (
        ("{friend}と一緒に{place}へ行った。", "{friend}と一緒に{place}へ行きました。"),
        ("{friend}と待ち合わせて、{place}へ出かけた。", "{friend}と待ち合わせて、{place}へ出かけました。"),
        ("{friend}を誘って、{place}まで歩いた。", "{friend}を誘って、{place}まで歩きました。"),
    ),
    "rain": (
        ("傘をさしていたが、くつがぬれてしまった。", "傘をさしていましたが、くつがぬれてしまいました。"),
        ("雨は昼を過ぎてもやまなかった。", "雨は昼を過ぎてもやみませんでした。"),
    ),
    "snow": (
        ("道には雪が積もっていた。", "道には雪が積もっていました。"),
        ("手が冷たくて、息が白かった。", "手が冷たくて、息が白かったです。"),
    ),
    "deed": (
        ("{place}では、{friend}と{deed}た。", "{place}では、{friend}と{deed}ました。"),
        ("{place}では、{deed}た。", "{place}では、{deed}ました。"),
    ),
    "meal": (
        ("昼に{meal}を食べた。", "昼に{meal}を食べました。"),
        ("昼ごはんは{meal}だった。", "昼ごはんは{meal}でした。"),
        ("おなかがすいたので、二人で{meal}を食べた。", "おなかがすいたので、二人で{meal}を食べました。"),
    ),
    "shopping": (
        (
            "帰りに{fruit}を{count}個、{other}を{more}個買った。",
            "帰りに{fruit}を{count}個、{other}を{more}個買いました。",
        ),
        (
            "店に寄って、{fruit}{count}個と{other}{more}個を買って帰った。",
            "店に寄って、{fruit}{count}個と{other}{more}個を買って帰りました。",
        ),
    ),
    "sum": (
        ("全部で{total}個になった。", "全部で{total}個になりました。"),
        ("合わせて{total}個になった。", "合わせて{total}個になりました。"),
    ),
    "feeling": (
        ("{friend}は楽しそうだった。", "{friend}は楽しそうでした。"),
        ("とても楽しい一日だった。", "とても楽しい一日でした。"),
        ("少し疲れたが、楽しかった。", "少し疲れましたが、楽しかったです。"),
    ),
    "plan": (
        ("今度は{next}へ行くつもりだ。", "今度は{next}へ行くつもりです。"),
        ("次は{friend}と{next}へ行きたい。", "次は{friend}と{next}へ行きたいです。"),
    ),
}
GREETINGS: dict[str, tuple[str, ...]] = {
    "greeting": ("お元気ですか。", "お母さん、お元気ですか。", "先生、お変わりありませんか。"),
    "closing": ("では、また手紙を書きます。", "お返事をお待ちしています。", "どうぞお元気で。"),
}


def diary(draw: Draw) -> tuple[Facts, list[str]]:
    """Draw a day: its weather, a friend, a place, a meal, some shopping."""
    facts: Facts = {"weekday": draw.one(WEEKDAYS), "sky": (sky := draw.one(SKIES)), "friend": draw.one(PEOPLE)}
    facts |= {"place": (place := draw.one(DEEDS)), "deed": draw.one(DEEDS[place]), "meal": draw.one(MEALS)}
    weather = {"雨": ["rain"], "雪": ["snow"]}.get(sky, [])
    kinds = ["day", "trip", *weather, "deed", "meal"]
    if draw.happens(0.6):
        facts |= {"fruit": (fruit := draw.one(FRUITS)), "other": draw.one(one for one in FRUITS if one != fruit)}
        facts |= {"count": (count := draw.one(range(1, 6))), "more": (more := draw.one(range(1, 6)))}
        facts["total"] = count + more
        kinds += ["shopping", "sum"]
    facts["next"] = draw.one(other for other in DEEDS if other != place)
    return facts, [*kinds, "feeling", "plan"]


def letter(draw: Draw) -> tuple[Facts, list[str]]:
    """Draw the day of a letter."""
    facts, kinds = diary(draw)
    return facts, ["greeting", *kinds, "closing"]


VALUES: dict[str, Sequence[Value]] = {
    "weekday": WEEKDAYS,
    "sky": SKIES,
    "friend": PEOPLE,
    "place": (*DEEDS,),
    "deed": sum(DEEDS.values(), ()),
    "meal": MEALS,
    "fruit": FRUITS,
    "other": FRUITS,
    "count": range(1, 6),
    "more": range(1, 6),
    "total": range(2, 11),
    "next": (*DEEDS,),
}
RULES: dict[str, Callable[..., bool]] = {
    "deed and place": lambda place, deed: deed in DEEDS[place],
    "rain": lambda sky, told: ("rain" in told) == (sky == "雨"),
    "snow": lambda sky, told: ("snow" in told) == (sky == "雪"),
    "sum of fruit": lambda count, more, total: total == count + more,
    "two kinds of fruit": lambda fruit, other: fruit != other,
    "another place": lambda place, next: place != next,
}


def _wordings(style: int) -> dict[str, tuple[str, ...]]:
    return {kind: tuple(both[style] for both in wordings) for kind, wordings in STYLES.items()}


DIARY = Genre("diary", diary, _wordings(0), VALUES, RULES)
LETTER = Genre("letter", letter, _wordings(1) | GREETINGS, VALUES, RULES)
