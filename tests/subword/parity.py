"""Texts in which tokenizers of other engines go wrong, Japanese and English."""

# Of the longest text in which an engine may not differ from another one.
TEXTS = [
    "",
    "吾輩は猫である。名前はまだ無い。",
    "It was the best of times, it was the worst of times.",
    "Visual Studio Codeで自然言語処理を勉強している。It's 3.14 (yes), OK!",
    # Spaces: leading, double, trailing, alone.
    " 前",
    "  two  spaces   three ",
    "後 ",
    " ",
    "   ",
    # Line breaks, also at the ends, and ideographic spaces.
    "\n",
    "一行目。\n二行目。\n\n四行目。\n",
    "\n\n first\n second ",
    "\u3000段落の字下げ。\n\u3000\u3000「二つ」\u3000終わり\u3000",
    "\r\n\tタブ\t",
    # sentencepiece's own mark for a space, and the marks of the course.
    "▁",
    "a▁b ▁▁c▁",
    "␣␛ ␛s␛e␛n",
    # Names of control tokens and of bytes.
    "<s>",
    "</s></s>",
    "<unk>雨<unk>",
    "打ち消し線は<s>文字</s>と書く。<0x41> <0xE3><0x81><0x82> <<s>> <s",
    # Emoji: joined, with a skin tone, a flag, a keycap, with a variation selector.
    "😀",
    "👨‍👩‍👧👍🏽🇯🇵1️⃣❤️ と 😀😀😀",
    # Rare kanji, outside the basic plane too, a variant of one, and kanji that are only for compatibility.
    "𠮷野家で𩸽を食べ、鬱蒼とした龘と驫麤を見た。",
    "葛󠄀城と葛城、﨑と崎、神と神",
    # Combining characters: kana with a mark of its own, accents, Hangul, Thai.
    "が か\u3099 ぱ は\u309a カ\u3099\u309a",
    "café cafe\u0301 Zürich Zu\u0308rich",
    "한국어 각 ภาษาไทย कि",
    "①㈱ⅣＡＢＣ１２３ｶﾞｷﾞ㌔",
    # Runs, in which equally probable segmentations differ only in order.
    "ーーーーーーーーーー",
    "……………………！！！！！！！",
    "------------------------ ======== ........",
    "あああああああああああああああああああ",
    "wwwwwwwwwwww 000000000000 1234567890123",
    # Invisible and right-to-left characters.
    "a\u200bb\u00adc\ufeffd\u2028e\x85f",
    "שלום عليكم",
]
