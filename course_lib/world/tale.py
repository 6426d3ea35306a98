"""Tales: somebody loses a thing, and finds it again with the help of a passer-by or of a pet. Polite form."""

from course_lib.world.genre import PEOPLE, Draw, Facts, Genre, Rules, wordings

PETS = {"犬": "ポチ", "猫": "ミケ", "うさぎ": "モモ"}
ITEMS = {"帽子": "赤い", "傘": "青い", "手袋": "白い", "かばん": "黄色い", "笛": "銀色の"}
PLACES = ("公園", "駅", "神社", "学校")
SPOTS = ("ベンチの下", "大きな木の下", "階段の下", "入口のそば")
HELPERS = ("おばあさん", "おじいさん", "先生", "パン屋さん", "郵便屋さん", "大工さん")
GIFTS = ("りんご", "みかん", "クッキー", "ドーナツ")

WORDINGS = wordings("""
opening   ある町に、{who}という子どもと、{animal}の{pet}が住んでいました。
          {who}には、{animal}の{pet}という友だちがいました。
          {who}は、{animal}の{pet}といつも一緒でした。
treasure  {who}は、大切な{color}{item}を持っていました。
          {who}には、誕生日にもらった大切な{color}{item}がありました。
          {who}の宝物は、{color}{item}でした。
trip      ある日、{who}は{pet}を連れて{place}へ行きました。
          ある朝、{who}と{pet}は{place}へ出かけました。
          ある日曜日、{who}は{pet}と{place}まで歩いていきました。
loss      ところが、帰ろうとすると、その{color}{item}がありません。
          ところが、気がつくと、その{color}{item}がなくなっていました。
          ところが、歩いているうちに、その{color}{item}をなくしてしまいました。
search    {who}はあちこちさがしましたが、{item}は見つかりません。
          「どこへ行ったのだろう」と、{who}は悲しそうに言いました。
          {who}と{pet}は、{item}をさがし始めました。
meeting   そこへ、{helper}がやって来ました。
          しばらくすると、{helper}が通りかかりました。
          ちょうどそこへ、{helper}が来ました。
asking    {who}は{helper}に、{item}のことを話しました。
          「{item}を見ませんでしたか」と、{who}は聞きました。
answer    すると{helper}は、{item}のある場所を教えてくれました。
          {helper}は、「それなら、あちらで見ましたよ」と言いました。
hint      そのとき、{pet}が急に走りだしました。
          すると、{pet}が何かに気づいて走りだしました。
          しばらくすると、{pet}が{who}をふり返って、歩きだしました。
found     行ってみると、{item}は{spot}にありました。
          行ってみると、{spot}に{item}がありました。
          {who}が急いで行くと、{item}は{spot}にありました。
followed  ついて行くと、{item}は{spot}にありました。
          ついて行くと、{spot}に{item}がありました。
          {who}があとを追うと、{spot}に{item}がありました。
thanks    {who}は{helper}のところへもどって、お礼におやつの{gift}をわたしました。
          {who}は{helper}のところへもどると、「ありがとうございました」と言って、おやつの{gift}をわたしました。
praise    「よくやったね」と言って、{who}は{pet}の頭をなでました。
          「ありがとう」と言って、{who}は{pet}をだきしめました。
ending    {who}と{pet}は、{item}を持って家へ帰りました。
          その夜、{who}は{item}をそばに置いて眠りました。
          それから、{who}は{item}を前よりも大切にするようになりました。
""")


def draw(draw: Draw) -> tuple[Facts, list[str]]:
    """Draw who loses what and where, and whether a passer-by helps."""
    facts: Facts = {"who": draw.one(PEOPLE), "animal": (animal := draw.one(PETS)), "pet": PETS[animal]}
    facts |= {"item": (item := draw.one(ITEMS)), "color": ITEMS[item]}
    facts |= {"place": draw.one(PLACES), "spot": draw.one(SPOTS)}
    kinds = ["opening", "treasure", "trip", "loss", "search"]
    if draw.happens(0.6):
        facts |= {"helper": draw.one(HELPERS), "gift": draw.one(GIFTS)}
        return facts, [*kinds, "meeting", "asking", "answer", "found", "thanks", "ending"]
    return facts, [*kinds, "hint", "followed", "praise", "ending"]


RULES: Rules = {
    "pet and animal": lambda animal, pet: pet == PETS[animal],
    "color and item": lambda item, color: color == ITEMS[item],
}
GENRE = Genre("tale", draw, WORDINGS, RULES)
