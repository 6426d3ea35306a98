"""Reports of matches: the halves add up, and who has more points wins. Polite form."""

from course_lib.world.genre import Draw, Facts, Genre, Rules, wordings
from course_lib.world.words import CITIES, PEOPLE

SPORTS = ("サッカー", "ホッケー", "ラクロス")
VENUES = ("県立競技場", "市民グラウンド", "大学のグラウンド", "中央競技場", "海辺の競技場")
POINTS = range(3)  # of a team in a half

WORDINGS = wordings("""
opening  {venue}で、{home}と{away}が{sport}の試合をしました。
         {home}対{away}の{sport}の試合が、{venue}で行われました。
         {home}は{venue}で、{away}と{sport}の試合をしました。
first    前半は、{home}が{home1}点、{away}が{away1}点でした。
         前半の得点は、{home}が{home1}点、{away}が{away1}点でした。
second   後半は、{home}が{home2}点、{away}が{away2}点でした。
         後半の得点は、{home}が{home2}点、{away}が{away2}点でした。
result   この結果、{winner}が{high}対{low}で{loser}に勝ちました。
         試合は、{high}対{low}で{winner}の勝ちでした。
         {loser}は、{low}対{high}で{winner}に敗れました。
hero     {winner}の{hero}選手が、最後までよく走りました。
         {winner}の{hero}選手が、大事な点を決めました。
comment  {hero}選手は、「みんなのおかげです」と話しました。
         「とてもうれしいです」と、{hero}選手は言いました。
         {winner}の監督は、{hero}選手をほめました。
ending   {loser}の監督は、「次は必ず勝ちます」と言いました。
         {winner}は、次の試合でも勝利をめざします。
""")


def draw(draw: Draw) -> tuple[Facts, list[str]]:
    """Draw the teams and the points of both halves, so that one team wins."""
    home = draw.one(CITIES)
    away = draw.one(city for city in CITIES if city != home)
    facts: Facts = {"sport": draw.one(SPORTS), "venue": draw.one(VENUES), "home": home, "away": away}
    home1, away1 = draw.one(POINTS), draw.one(POINTS)
    home2, away2 = draw.one((h, a) for h in POINTS for a in POINTS if home1 + h != away1 + a)
    facts |= {"home1": home1, "away1": away1, "home2": home2, "away2": away2}
    low, high = sorted((home1 + home2, away1 + away2))
    winner, loser = (home, away) if home1 + home2 == high else (away, home)
    facts |= {"winner": winner, "loser": loser, "high": high, "low": low, "hero": draw.one(PEOPLE)}
    return facts, [*WORDINGS]


RULES: Rules = {
    "two teams": lambda home, away: home != away,
    "winner and teams": lambda home, away, winner: winner in (home, away),
    "loser and teams": lambda home, away, loser: loser in (home, away),
    "winner and loser": lambda winner, loser: winner != loser,
    "winner and points": lambda home1, home2, away1, away2, home, winner: (
        (winner == home) == (home1 + home2 > away1 + away2)
    ),
    "sum of points": lambda home1, home2, away1, away2, high, low: (
        [low, high] == sorted((home1 + home2, away1 + away2))
    ),
}
GENRE = Genre("match", draw, WORDINGS, RULES)
