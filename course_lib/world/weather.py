"""Weather forecasts: temperatures fit the season, advice fits the sky. Polite form."""

from course_lib.world.genre import Draw, Facts, Genre
from course_lib.world.words import CITIES

# season: highest temperatures, and by how many degrees the lowest is lower
SEASONS = {
    "春": (range(14, 23), range(6, 9)),
    "夏": (range(27, 36), range(5, 8)),
    "秋": (range(15, 24), range(6, 9)),
    "冬": (range(5, 12), range(3, 5)),
}
SNOW = 7  # degrees: it snows on days that are no warmer
SKIES = ("晴れ", "くもり", "雨", "雪")
WINDS = ("北", "南", "東", "西")
FORCES = ("弱く", "やや強く", "強く")

WORDINGS = {
    "opening": (
        "{season}の一日、{area}の天気予報です。",
        "{season}の日、{area}の天気予報です。",
        "{season}の日の{area}の天気をお伝えします。",
    ),
    "sky": (
        "明日の{area}は{sky}でしょう。",
        "明日は、朝から{sky}でしょう。",
        "{area}では、明日は{sky}の見込みです。",
    ),
    "later": (
        "夕方からは{later}になるでしょう。",
        "夜には{later}に変わりそうです。",
        "夜からは{later}になりそうです。",
    ),
    "temperatures": (
        "最高気温は{high}度、最低気温は{low}度でしょう。",
        "気温は、朝が{low}度、昼には{high}度まで上がる見込みです。",
    ),
    "wind": (
        "{wind}の風が{force}吹くでしょう。",
        "{wind}の風が{force}吹く見込みです。",
    ),
    "waves": ("沖では、波が高くなりそうです。", "海へ行く方は、高い波に注意してください。"),
    "umbrella": ("傘を忘れずにお出かけください。", "お出かけには、傘が必要です。"),
    "slippery": (
        "道がすべりやすくなるので、足もとに気をつけてください。",
        "車を運転する方は、すべりやすい道に注意してください。",
    ),
    "hot": ("暑くなりますので、水をこまめに飲みましょう。", "暑さで体調をくずさないように、気をつけてください。"),
    "cold": ("寒くなりますので、暖かい服を着てお出かけください。", "朝は道がこおるおそれがあります。"),
    "mild": ("外で過ごすのによい一日になりそうです。", "洗濯物がよく乾くでしょう。"),
    "dull": ("日ざしの少ない一日になりそうです。", "日中は、過ごしやすいでしょう。"),
}


def advice(sky: str, high: int, low: int) -> str:
    """Return the kind of the forecast's last sentence."""
    if sky in ("雨", "雪"):
        return "umbrella" if sky == "雨" else "slippery"
    if high >= 30 or low < 4:
        return "hot" if high >= 30 else "cold"
    return "mild" if sky == "晴れ" else "dull"


ADVICE = ("umbrella", "slippery", "hot", "cold", "mild", "dull")


def draw(draw: Draw) -> tuple[Facts, list[str]]:
    """Draw place, season, sky, temperatures and wind."""
    facts: Facts = {"area": draw.one(CITIES), "season": (season := draw.one(SEASONS))}
    highs, less = SEASONS[season]
    facts["high"] = high = draw.one(highs)
    facts["low"] = low = high - draw.one(less)
    facts["sky"] = sky = draw.one(SKIES if high <= SNOW else SKIES[:3])
    facts["later"] = draw.one(other for other in SKIES[:3] if other != sky)
    facts |= {"wind": draw.one(WINDS), "force": (force := draw.one(FORCES))}
    waves = ["waves"] * (force == "強く")
    return facts, ["opening", "sky", "later", "temperatures", "wind", *waves, advice(sky, high, low)]


GENRE = Genre(
    "weather",
    draw,
    WORDINGS,
    values={
        "area": CITIES,
        "season": (*SEASONS,),
        "sky": SKIES,
        "later": SKIES[:3],
        "high": range(5, 36),
        "low": range(1, 31),
        "wind": WINDS,
        "force": FORCES,
    },
    rules={
        "temperature and season": lambda season, high: high in SEASONS[season][0],
        "low and high": lambda season, low, high: high - low in SEASONS[season][1],
        "snow and cold": lambda sky, high: sky != "雪" or high <= SNOW,
        "change of sky": lambda sky, later: sky != later,
        "waves and wind": lambda force, told: force == "強く" or "waves" not in told,
        "advice": lambda sky, high, low, told: not (told & {*ADVICE}) or told & {*ADVICE} == {advice(sky, high, low)},
    },
)
