from course_lib.subword.compare import _crossing, compare, entries, overlap, speeds, table
from course_lib.subword.config import BpeConfig, UnigramConfig
from course_lib.subword.folder import Codec, Preparation, lossless_decoder
from course_lib.subword.sweep import at_most, train_on
from course_lib.subword.unseen import unseen_texts
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


def test_only_larger_vocabularies_are_trained_again_and_in_the_same_way() -> None:
    texts = unseen_texts()
    codecs = {
        "segmented": train_on(texts, BpeConfig(vocab_size=3000, limit_alphabet=1500), True),
        "raw": train_on(texts, BpeConfig(vocab_size=3000, limit_alphabet=1500), False),
        "unigram": train_on(texts, UnigramConfig(vocab_size=2400), True),
        "small": train_on(texts, BpeConfig(vocab_size=2000, limit_alphabet=1500), False),
    }
    found = at_most(codecs, 2000, texts)
    assert found["small"] is codecs["small"]
    assert {codec.tokenizer.get_vocab_size() for codec in found.values()} == {2000}
    for name, codec in codecs.items():
        assert type(found[name].tokenizer.model) is type(codec.tokenizer.model)
        assert found[name].preparation == codec.preparation
    # BPE learns its merges one after the other, so the smaller vocabulary is a part of the larger one.
    assert found["raw"].tokenizer.get_vocab().keys() <= codecs["raw"].tokenizer.get_vocab().keys()
