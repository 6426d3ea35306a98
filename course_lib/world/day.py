"""The report of a day: as a diary in plain form, and as a letter in polite form. Same events, two styles."""

from collections.abc import Callable, Sequence

from course_lib.world.genre import Draw, Facts, Genre, Value
from course_lib.world.words import PEOPLE

WEEKDAYS = ("月曜日", "火曜日", "水曜日", "木曜日", "金曜日", "土曜日", "日曜日")
SKIES = ("いい天気", "くもり", "雨", "雪")
# place: what one does there, without the ending of the verb; plain form, polite form
INDOORS = {
    "図書館": ("雑誌をながめ", "昔の地図を調べ", "絵本を借り"),
    "水族館": ("イルカのショーを見", "くらげをながめ", "大きなさめを見"),
    "美術館": ("外国の絵を見", "昔の絵をながめ", "古いつぼを見"),
    "デパート": ("新しい服を見", "おもちゃをながめ", "誕生日の贈り物を探し"),
}
DEEDS = INDOORS | {
    "海": ("貝がらを集め", "遠くの船をながめ", "砂浜を散歩し"),
    "山": ("頂上でひと休みし", "鳥をながめ", "遠くの町をながめ"),
    "川": ("水切りをし", "魚をつかまえ", "きれいな石を集め"),
    "動物園": ("ぞうを見", "やぎにえさをあげ", "ペンギンをながめ"),
}
COUNTS = range(1, 6)
FRUITS = ("りんご", "みかん", "オレンジ", "レモン", "キウイ", "アボカド")
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
        ("風も強く、傘が飛ばされそうになった。", "風も強く、傘が飛ばされそうになりました。"),
    ),
    "snow": (
        ("道には雪が積もっていた。", "道には雪が積もっていました。"),
        ("手が冷たく、吐く息が白かった。", "手が冷たく、吐く息が白かったです。"),
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
            "店に寄って、{fruit}{count}個と{other}{more}個を買った。",
            "店に寄って、{fruit}{count}個と{other}{more}個を買いました。",
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
    "wet": (
        ("雨の日だったが、楽しく過ごせた。", "雨の日でしたが、楽しく過ごせました。"),
        ("家に帰って、ぬれた服を着がえた。", "家に帰って、ぬれた服を着がえました。"),
    ),
    "frozen": (
        ("寒い一日だったが、楽しく過ごせた。", "寒い一日でしたが、楽しく過ごせました。"),
        ("家に帰って、温かいお茶を飲んだ。", "家に帰って、温かいお茶を飲みました。"),
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


# sky: the kinds of the sentences that it brings; what one feels in the evening is the last of them
WEATHER = {"雨": ("rain", "wet"), "雪": ("snow", "frozen")}
FAIR = ("feeling",)
MOODS = {"feeling", "wet", "frozen"}


def diary(draw: Draw) -> tuple[Facts, list[str]]:
    """Draw a day: its weather, a friend, a place, a meal, some shopping."""
    sky = draw.one(SKIES)
    place = draw.one(INDOORS if sky in WEATHER else DEEDS)
    *sight, mood = WEATHER.get(sky, FAIR)
    facts: Facts = {"weekday": draw.one(WEEKDAYS), "sky": sky, "friend": draw.one(PEOPLE), "place": place}
    facts |= {"deed": draw.one(DEEDS[place]), "meal": draw.one(MEALS)}
    kinds = ["day", "trip", *sight, "deed", "meal"]
    if draw.happens(0.6):
        fruit, count, more = draw.one(FRUITS), draw.one(COUNTS), draw.one(COUNTS)
        facts |= {"fruit": fruit, "other": draw.one(one for one in FRUITS if one != fruit)}
        facts |= {"count": count, "more": more, "total": count + more}
        kinds += ["shopping", "sum"]
    facts["next"] = draw.one(other for other in DEEDS if other != place)
    return facts, [*kinds, mood, "plan"]


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
    "count": COUNTS,
    "more": COUNTS,
    "total": range(2, 11),
    "next": (*DEEDS,),
}
RULES: dict[str, Callable[..., bool]] = {
    "deed and place": lambda place, deed: deed in DEEDS[place],
    "place and sky": lambda sky, place: place in INDOORS or sky not in WEATHER,
    "rain": lambda sky, told: ("rain" in told) == (sky == "雨"),
    "snow": lambda sky, told: ("snow" in told) == (sky == "雪"),
    "mood": lambda sky, told: told & MOODS <= {*WEATHER.get(sky, FAIR)},
    "sum of fruit": lambda count, more, total: total == count + more,
    "two kinds of fruit": lambda fruit, other: fruit != other,
    "another place": lambda place, next: place != next,
}


def _wordings(style: int) -> dict[str, tuple[str, ...]]:
    return {kind: tuple(both[style] for both in wordings) for kind, wordings in STYLES.items()}


DIARY = Genre("diary", diary, _wordings(0), VALUES, RULES)
LETTER = Genre("letter", letter, _wordings(1) | GREETINGS, VALUES, RULES)
