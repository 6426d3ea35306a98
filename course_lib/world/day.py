"""The report of a day: as a diary in plain form, and as a letter in polite form. Same events, two styles."""

import re

from course_lib.world.genre import PEOPLE, Draw, Facts, Genre, Rules, wordings

DAYS_OFF = ("土曜日", "日曜日", "祝日", "振替休日")
SKIES = ("いい天気", "くもり", "雨", "雪")
# place: what one does there, without the ending of the verb; plain form, polite form
INDOORS = {
    "図書館": ("昔の地図を調べ", "絵本を借り"),
    "水族館": ("イルカのショーを見", "くらげをながめ"),
    "美術館": ("外国の絵を見", "古いつぼをながめ"),
    "デパート": ("新しい服を見", "姉の誕生日の贈り物をさがし"),
}
DEEDS = INDOORS | {
    "海": ("貝がらを集め", "砂浜を散歩し"),
    "山": ("きれいな花を見つけ", "めずらしい鳥を見"),
    "川": ("水切りをし", "魚をつかまえ"),
    "動物園": ("ぞうを見", "やぎにえさをあげ"),
}
PLANS = ("映画館", "植物園", "博物館", "遊園地", "温泉")
COUNTS = (2, 3)
FRUITS = ("りんご", "オレンジ", "レモン", "キウイ", "アボカド")
VEGETABLES = ("トマト", "ピーマン", "じゃがいも", "たまねぎ", "かぶ")
MEALS = ("おにぎり", "サンドイッチ", "パン", "お弁当", "焼きそば")

# <plain|polite>
STYLES = """
day       <今日は{day}で|この前の{day}は>、朝から{sky}<だった|でした>。
          <今日は{day}で|この前の{day}は>、一日じゅう{sky}<だった|でした>。
trip      友だちの{friend}と一緒に、{place}へ行<った|きました>。
          友だちの{friend}と待ち合わせて、{place}へ出かけ<た|ました>。
          友だちの{friend}を誘って、{place}まで歩<いた|きました>。
rain      傘をさしてい<た|ました>が、くつも服もぬれてしま<った|いました>。
          風も強く、傘が飛ばされそうにな<った|りました>。
snow      道には雪が積もってい<た|ました>。
          手が冷たく、吐く息が白かった<|です>。
deed      {place}では、二人で{deed}<た|ました>。
          {place}では、{deed}<た|ました>。
meal      昼に{meal}を食べ<た|ました>。
          昼ごはんは{meal}<だった|でした>。
          おなかがすいたので、二人で{meal}を食べ<た|ました>。
shopping  帰りに{fruit}を{count}個、{vegetable}を{more}個買<った|いました>。
          帰りに店に寄って、{fruit}{count}個と{vegetable}{more}個を買<った|いました>。
sum       全部で{total}個になり、荷物が少し重くな<った|りました>。
          {total}個ともかばんに入れて、持ち帰<った|りました>。
feeling   {friend}も、とても楽しそう<だった|でした>。
          とても楽しい一日<だった|でした>。
          少し疲れ<た|ました>が、とても楽しかった<|です>。
wet       雨の日<だった|でした>が、楽しく過ごせ<た|ました>。
          家に帰って、ぬれた服を着がえ<た|ました>。
frozen    寒い一日<だった|でした>が、楽しく過ごせ<た|ました>。
          家に帰って、温かいお茶を飲<んだ|みました>。
plan      今度は{next}へ行くつもり<だ|です>。
          次は{friend}と{next}へ行きたい<|です>。
"""
GREETINGS = """
greeting  お元気ですか。
          おばあちゃん、お元気ですか。
          先生、お変わりありませんか。
well      私は元気です。
          私は元気に過ごしています。
          こちらは、みんな元気です。
closing   では、また手紙を書きます。
          お返事を待っています。
          どうぞお元気で。
"""

# sky: the kinds of the sentences that it brings; what one feels in the evening is the last of them
WEATHER = {"雨": ("rain", "wet"), "雪": ("snow", "frozen")}
FAIR = ("feeling",)
MOODS = {"feeling", "wet", "frozen"}


def diary(draw: Draw) -> tuple[Facts, list[str]]:
    """Draw a day: its weather, a friend, a place, a meal, some shopping."""
    sky = draw.one(SKIES)
    place = draw.one(INDOORS if sky in WEATHER else DEEDS)
    *sight, mood = WEATHER.get(sky, FAIR)
    facts: Facts = {"day": draw.one(DAYS_OFF), "sky": sky, "friend": draw.one(PEOPLE), "place": place}
    facts |= {"deed": draw.one(DEEDS[place]), "meal": draw.one(MEALS)}
    kinds = ["day", "trip", *sight, "deed", "meal"]
    if draw.happens(0.6):
        fruit, count, more = draw.one(FRUITS), draw.one(COUNTS), draw.one(COUNTS)
        facts |= {"fruit": fruit, "vegetable": draw.one(VEGETABLES)}
        facts |= {"count": count, "more": more, "total": count + more}
        kinds += ["shopping", "sum"]
    facts["next"] = draw.one(PLANS)
    return facts, [*kinds, mood, "plan"]


def letter(draw: Draw) -> tuple[Facts, list[str]]:
    """Draw the day of a letter."""
    facts, kinds = diary(draw)
    return facts, ["greeting", "well", *kinds, "closing"]


RULES: Rules = {
    "deed and place": lambda place, deed: deed in DEEDS[place],
    "place and sky": lambda sky, place: place in INDOORS or sky not in WEATHER,
    "rain": lambda sky, told: ("rain" in told) == (sky == "雨"),
    "snow": lambda sky, told: ("snow" in told) == (sky == "雪"),
    "mood": lambda sky, told: told & MOODS <= {*WEATHER.get(sky, FAIR)},
    "sum": lambda count, more, total: total == count + more,
}
STYLE = re.compile(r"<(.*?)\|(.*?)>")
DIARY = Genre("diary", diary, wordings(STYLE.sub(r"\1", STYLES)), RULES)
LETTER = Genre("letter", letter, wordings(STYLE.sub(r"\2", STYLES) + GREETINGS), RULES)
