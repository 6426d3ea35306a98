from course_lib.subword.compare import _crossing, compare, entries, overlap, speeds, table
from course_lib.subword.folder import Codec, Preparation, lossless_decoder
from tokenizers import Tokenizer, models, pre_tokenizers


def character_codec(characters: str) -> Codec:
    """One token per character, by hand: every measure can be worked out on paper."""
    vocabulary = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>", *characters])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = lossless_decoder(byte_fallback=False)
    return Codec(tokenizer, Preparation(segmented=False, marked=True))


def test_measures_of_a_tokenizer_worked_out_by_hand() -> None:
    row = compare({"characters": character_codec("雨が降る。")}, ["雨が降る。", "雪が降る。", ""])[0]
    assert (row.vocabulary, row.characters_per_token, row.unknown) == (8, 1.0, 0.1)
    assert (row.crossing, row.lossless) == (0.0, 0.5)
    assert "characters" in table([row]) and speeds([row]).count("MB/s") == 2 and 0 < row.whole_speed < row.speed


def test_crossing_counts_tokens_with_a_boundary_inside() -> None:
    # 雨 | が | 降る | 。
    assert _crossing("雨が降る。", False, [(0, 2), (2, 4), (4, 5)]) == 1
    assert _crossing("雨が降る。", False, [(0, 5)]) == 1
    assert _crossing("雨 が 降る", True, [(0, 1), (1, 3), (3, 6)]) == 0
    assert _crossing("雨 が 降る", True, [(0, 3)]) == 1


def test_overlap_of_longer_entries() -> None:
    first, second = character_codec("abc"), character_codec("abc")
    first.tokenizer.add_tokens(["ab", "abc"])
    second.tokenizer.add_tokens(["ab", "bc", "▁ab"])
    assert overlap(first, second) == 4 / 6
    assert overlap(first, second, shortest=2) == 1 / 3
    assert sorted(entries(second)) == ["a", "ab", "ab", "b", "bc", "c"]
