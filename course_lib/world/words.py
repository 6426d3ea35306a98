"""Words that several genres share."""

PEOPLE = (
    *("健太", "美咲", "翔太", "陽菜", "大輔", "葵"),
    *("直樹", "さくら", "拓也", "結衣", "悠斗", "千尋"),
)
# With about the same temperatures.
CITIES = ("東京", "横浜", "名古屋", "京都", "大阪", "神戸", "広島", "福岡")
