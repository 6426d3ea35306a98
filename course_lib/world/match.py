"""Reports of matches: one of the two teams wins, with more points. Polite form."""

from course_lib.world.genre import CITIES, Draw, Facts, Genre, Rules, wordings

SURNAMES = ("佐藤", "鈴木", "高橋", "田中", "伊藤", "渡辺", "山本", "中村", "小林", "加藤", "吉田", "山田")
SPORTS = ("サッカー", "ホッケー")
VENUES = ("市立競技場", "市民グラウンド", "大学のグラウンド", "中央競技場", "海辺の競技場")
SCORES = ((1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2))  # of the winner and the loser

WORDINGS = wordings("""
opening  {venue}で、{home}と{away}が{sport}の試合をしました。
         {home}対{away}の{sport}の試合が、{venue}で行われました。
         {home}と{away}の{sport}の試合が、{venue}でありました。
result   {winner}が、{high}対{low}で勝ちました。
         試合は、{high}対{low}で{winner}の勝ちでした。
         {high}対{low}で、{winner}が勝利をおさめました。
hero     {winner}の{hero}選手は、最後までよく走りました。
         {winner}の{hero}選手が、大事なゴールを決めました。
comment  {hero}選手は、「みんなのおかげです」と話しました。
         「とてもうれしいです」と、{hero}選手は話しました。
         {winner}の監督は、{hero}選手をたたえました。
ending   {winner}は、次の試合でも勝利をめざします。
         {winner}の次の試合は、来週行われます。
""")


def draw(draw: Draw) -> tuple[Facts, list[str]]:
    """Draw the teams, who wins, and by how much."""
    home, away = draw.one(CITIES[::2]), draw.one(CITIES[1::2])
    winner = draw.one((home, away))
    high, low = draw.one(SCORES)
    facts: Facts = {"sport": draw.one(SPORTS), "venue": draw.one(VENUES), "home": home, "away": away}
    facts |= {"winner": winner, "high": high, "low": low, "hero": draw.one(SURNAMES)}
    return facts, [*WORDINGS]


RULES: Rules = {
    "winner and teams": lambda home, away, winner: winner in (home, away),
    "points": lambda high, low: high > low,
}
GENRE = Genre("match", draw, WORDINGS, RULES)
