"""Recipes: way and time of cooking fit the dish, amounts fit the number of people, minutes add up. Polite form."""

from course_lib.world.genre import Draw, Facts, Genre, Rules, wordings

# dish: the kind of the sentence that cooks it, the vegetables, the minutes
DISHES = {
    "煮物": ("boil", ("たまねぎ", "じゃがいも", "かぶ"), (15, 20)),
    "スープ": ("boil", ("たまねぎ", "じゃがいも", "かぶ", "トマト"), (15, 20)),
    "炒め物": ("fry", ("たまねぎ", "パプリカ", "ピーマン", "トマト"), (3, 5)),
    "蒸し物": ("steam", ("たまねぎ", "じゃがいも", "かぶ", "ピーマン"), (15, 20)),
}
ADDED = ("キャベツ", "水菜", "白菜", "小松菜", "チンゲン菜")
MEATS = ("鶏肉", "豚肉", "牛肉", "豆腐", "ソーセージ")
SEASONINGS = ("しょうゆ", "みそ", "白だし", "めんつゆ", "塩こうじ")
# people: spoons of seasoning
SPOONS = {2: ("大さじ1", "大さじ2"), 3: ("大さじ2", "大さじ3"), 4: ("大さじ3", "大さじ4")}
SHAPES = ("小さめに", "食べやすい大きさに", "大きめに")
GRAMS = 80  # for each person

WORDINGS = wordings("""
opening  今日は、{vegetable}と{meat}の{dish}を作ります。
         {vegetable}と{meat}の{dish}の作り方です。
         {vegetable}と{meat}の{dish}を紹介します。
amounts  材料は{people}人分で、{vegetable}が{count}個、{meat}が{grams}グラムです。
         {people}人分の材料は、{vegetable}{count}個と{meat}{grams}グラムです。
more     ほかに、{added}を使います。
         {added}も用意します。
cut      まず、{vegetable}と{added}を{shape}切ります。
         はじめに、{vegetable}と{added}を{shape}切っておきます。
boil     次に、なべに{vegetable}と{meat}、{cups}カップの{liquid}を入れて、{minutes}分煮ます。
         次に、なべに{liquid}を{cups}カップ入れ、{vegetable}と{meat}を{minutes}分煮ます。
fry      次に、フライパンに油を熱して、{vegetable}と{meat}を{minutes}分炒めます。
         次に、フライパンに油をひき、{vegetable}と{meat}を{minutes}分炒めます。
steam    次に、湯気の上がった蒸し器に{vegetable}と{meat}を並べて、{minutes}分蒸します。
         次に、{vegetable}と{meat}を、蒸し器で{minutes}分蒸します。
season   {added}を加えて軽く火を通し、{seasoning}{spoons}で味をつけます。
         仕上げに{added}を加えて軽く火を通し、{seasoning}{spoons}で味をつけます。
sauce    {added}を加えて軽く蒸し、{seasoning}{spoons}で味をつけます。
         仕上げに{added}を加えて軽く蒸し、{seasoning}{spoons}で味をつけます。
time     準備に{prepare}分、火を通すのに{minutes}分、合わせて{total}分かかります。
         準備の{prepare}分と合わせて、全部で{total}分です。
serve    みんなで分けて、熱いうちに食べましょう。
         できあがったら、熱いうちに食べましょう。
         この{dish}は、ごはんによく合います。
""")


def draw(draw: Draw) -> tuple[Facts, list[str]]:
    """Draw the dish, what goes into it, how much, and how long it takes."""
    dish, people = draw.one(DISHES), draw.one(SPOONS)
    way, vegetables, times = DISHES[dish]
    vegetable = draw.one(vegetables)
    prepare, minutes = draw.one((5, 10)), draw.one(times)
    facts: Facts = {"dish": dish, "vegetable": vegetable, "meat": draw.one(MEATS), "people": people}
    facts |= {"count": draw.one((people - 1, people)), "grams": GRAMS * people, "spoons": draw.one(SPOONS[people])}
    facts |= {"added": draw.one(ADDED), "seasoning": draw.one(SEASONINGS), "shape": draw.one(SHAPES)}
    if way == "boil":
        facts |= {"liquid": draw.one(("水", "だし汁")), "cups": people}
    facts |= {"prepare": prepare, "minutes": minutes, "total": prepare + minutes}
    end = "sauce" if way == "steam" else "season"
    return facts, ["opening", "amounts", "more", "cut", way, end, "time", "serve"]


RULES: Rules = {
    "way and dish": lambda dish, told: told & {"boil", "fry", "steam"} <= {DISHES[dish][0]},
    "vegetable and dish": lambda dish, vegetable: vegetable in DISHES[dish][1],
    "grams and people": lambda people, grams: grams == GRAMS * people,
    "count and people": lambda people, count: people - count in (0, 1),
    "spoons and people": lambda people, spoons: spoons in SPOONS[people],
    "cups and people": lambda people, cups: cups == people,
    "minutes and dish": lambda dish, minutes: minutes in DISHES[dish][2],
    "sum of minutes": lambda prepare, minutes, total: total == prepare + minutes,
}
GENRE = Genre("recipe", draw, WORDINGS, RULES)
