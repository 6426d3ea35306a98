"""Recipes: the pan fits the dish, the amounts fit the number of people, and the minutes add up. Polite form."""

from course_lib.world.genre import Draw, Facts, Genre

COUNTED = ("たまねぎ", "じゃがいも", "トマト", "ピーマン", "かぶ", "なす")
ADDED = ("もやし", "にら", "キャベツ", "ねぎ", "きのこ", "ほうれん草")
MEATS = ("鶏肉", "豚肉", "牛肉", "とうふ", "えび", "たら")
SEASONINGS = ("しょうゆ", "みそ", "塩", "酢", "カレー粉", "ごま油")
SPOONS = ("小さじ1杯", "小さじ2杯", "小さじ3杯")
# dish: (pan, verb)
DISHES = {
    "煮物": ("なべ", "煮"),
    "スープ": ("なべ", "煮"),
    "炒め物": ("フライパン", "炒め"),
    "蒸し物": ("蒸し器", "蒸し"),
}
GRAMS = 80  # for each person

WORDINGS = {
    "opening": (
        "今日は、{vegetable}と{meat}の{dish}を作ります。",
        "{vegetable}と{meat}の{dish}の作り方です。",
        "{meat}と{vegetable}の{dish}を紹介します。",
    ),
    "amounts": (
        "材料は{people}人分で、{vegetable}が{count}個、{meat}が{grams}グラムです。",
        "{people}人分の材料は、{vegetable}{count}個と{meat}{grams}グラムです。",
    ),
    "more": ("ほかに、{added}と{seasoning}を使います。", "{added}と{seasoning}も用意します。"),
    "cut": (
        "まず、{vegetable}と{added}を{shape}切ります。",
        "はじめに{vegetable}と{added}をよく洗って、{shape}切ります。",
    ),
    "heat": (
        "次に、{pan}に{meat}と{vegetable}を入れて、{minutes}分{verb}ます。",
        "{meat}と{vegetable}を、{pan}で{minutes}分{verb}ます。",
    ),
    "season": (
        "{added}を加えて、{seasoning}{spoons}で味をつけます。",
        "最後に{added}を入れて、{seasoning}を{spoons}加えます。",
    ),
    "time": (
        "時間は、準備に{prepare}分、火を通すのに{minutes}分、合わせて{total}分です。",
        "準備の{prepare}分も入れて、全部で{total}分です。",
    ),
    "serve": (
        "{people}人で、熱いうちに食べましょう。",
        "{people}人分の皿に盛って、できあがりです。",
        "この{dish}は、ごはんによく合います。",
    ),
}


def draw(draw: Draw) -> tuple[Facts, list[str]]:
    """Draw the dish, what goes into it, how much, and how long it takes."""
    facts: Facts = {"vegetable": draw.one(COUNTED), "meat": draw.one(MEATS), "dish": (dish := draw.one(DISHES))}
    facts |= {"people": (people := draw.one((2, 3, 4))), "count": draw.one((1, 2, 3)), "grams": GRAMS * people}
    facts |= {"added": draw.one(ADDED), "seasoning": draw.one(SEASONINGS), "spoons": draw.one(SPOONS)}
    facts |= {"shape": draw.one(("小さめに", "薄めに", "大きめに")), "pan": DISHES[dish][0], "verb": DISHES[dish][1]}
    facts |= {"prepare": (prepare := draw.one((5, 10, 15))), "minutes": (minutes := draw.one((5, 10, 15, 20)))}
    return facts | {"total": prepare + minutes}, [*WORDINGS]


GENRE = Genre(
    "recipe",
    draw,
    WORDINGS,
    values={
        "vegetable": COUNTED,
        "meat": MEATS,
        "dish": (*DISHES,),
        "people": (2, 3, 4),
        "count": (1, 2, 3),
        "grams": range(80, 400, 80),
        "added": ADDED,
        "seasoning": SEASONINGS,
        "spoons": SPOONS,
        "shape": ("小さめに", "薄めに", "大きめに"),
        "pan": ("なべ", "フライパン", "蒸し器"),
        "verb": ("煮", "炒め", "蒸し"),
        "prepare": range(5, 20, 5),
        "minutes": range(5, 25, 5),
        "total": range(10, 40, 5),
    },
    rules={
        "pan and dish": lambda dish, pan: pan == DISHES[dish][0],
        "verb and dish": lambda dish, verb: verb == DISHES[dish][1],
        "grams and people": lambda people, grams: grams == GRAMS * people,
        "sum of minutes": lambda prepare, minutes, total: total == prepare + minutes,
    },
)
