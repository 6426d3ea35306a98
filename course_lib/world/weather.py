"""Weather forecasts: temperatures fit the season, advice fits the sky. Polite form."""

from course_lib.world.genre import CITIES, Draw, Facts, Genre, Rules, wordings

INLAND = ("京都",)
# season: its maxima; the minimum is lower by so many degrees
SEASONS = {"春": ((15, 17, 19), 8), "夏": ((29, 31, 33), 6), "秋": ((18, 20, 22), 8), "冬": ((5, 7, 9), 4)}
SNOW = 5  # degrees: it snows on days that are no warmer
SKIES = ("晴れ", "くもり", "雨", "雪")
WINDS = ("北", "南", "東", "西")
FORCES = ("弱く", "やや強く", "強く")

WORDINGS = wordings("""
opening       {season}を迎えた{area}の、明日の天気予報です。
              {season}の{area}の、明日の天気をお伝えします。
              すっかり{season}になった{area}の、明日の天気予報です。
sky           明日の{area}は{sky}でしょう。
              明日は、朝から{sky}でしょう。
              {area}では、明日は{sky}の見込みです。
later         夕方には{later}に変わるでしょう。
              夜には{later}に変わりそうです。
              夜は{later}でしょう。
temperatures  最高気温は{high}度、最低気温は{low}度でしょう。
              気温は、朝は{low}度ですが、昼には{high}度まで上がる見込みです。
wind          {wind}の風が{force}吹くでしょう。
              {wind}寄りの風が{force}吹くでしょう。
waves         沖では、波が高くなりそうです。
              海へ行く方は、高波にご注意ください。
gusts         自転車に乗る方は、風にご注意ください。
              強い風で、物が飛ばされるおそれがあります。
umbrella      傘を忘れずにお出かけください。
              お出かけには、傘が必要です。
slippery      道がすべりやすくなるので、足もとにお気をつけください。
              車を運転する方は、すべりやすい道にご注意ください。
folding       折りたたみの傘があると安心です。
              お帰りの時間には、傘が必要になりそうです。
bright        昼間は、日ざしがたっぷり届くでしょう。
              洗濯物がよく乾くでしょう。
dull          昼間は、日ざしが少ないでしょう。
              洗濯物は乾きにくいでしょう。
""")


def warning(area: str, force: str) -> set[str]:
    """Return the kind of the sentence that a strong wind adds, if any."""
    return set() if force != "強く" else {"gusts"} if area in INLAND else {"waves"}


def advice(sky: str, later: str) -> str:
    """Return the kind of the forecast's last sentence."""
    if sky in ("雨", "雪"):
        return "umbrella" if sky == "雨" else "slippery"
    if later == "雨":
        return "folding"
    return "bright" if sky == "晴れ" else "dull"


ADVICE = {"umbrella", "slippery", "folding", "bright", "dull"}


def draw(draw: Draw) -> tuple[Facts, list[str]]:
    """Draw area, season, temperatures, sky and wind."""
    area, season = draw.one(CITIES), draw.one(SEASONS)
    maxima, less = SEASONS[season]
    high = draw.one(maxima)
    low = high - less
    sky = draw.one(SKIES if high <= SNOW else SKIES[:3])
    later = draw.one(other for other in SKIES[:3] if other != sky)
    wind, force = draw.one(WINDS), draw.one(FORCES)
    facts: Facts = {"area": area, "season": season, "high": high, "low": low, "sky": sky, "later": later}
    kinds = ["opening", "sky", "later", "temperatures", "wind", *warning(area, force), advice(sky, later)]
    return facts | {"wind": wind, "force": force}, kinds


RULES: Rules = {
    "temperature and season": lambda season, high: high in SEASONS[season][0],
    "low and high": lambda season, low, high: high - low == SEASONS[season][1],
    "snow and cold": lambda sky, high: sky != "雪" or high <= SNOW,
    "change of sky": lambda sky, later: sky != later,
    "warning and wind": lambda area, force, told: told & {"waves", "gusts"} <= warning(area, force),
    "advice": lambda sky, later, told: told & ADVICE <= {advice(sky, later)},
}
GENRE = Genre("weather", draw, WORDINGS, RULES)
