"""Prefixes in front of real models: order, positions, masks, gradients, and a base that stays as it is."""

from typing import Any

import pytest
import torch
from course_lib.errors import UsageError
from course_lib.generation.prefix_cache import Shape, past, positions, require_positions
from course_lib.prefix.encoder import PrefixEncoder
from course_lib.prefix.warm_start import cache_values, fit
from torch import Tensor

from tests.prefix.bases import FAMILIES, POSITIONS, VOCABULARY, base

FAMILY = pytest.mark.parametrize("family", FAMILIES)


def run(model: Any, prefixes: list[Tensor | None], ids: Tensor, mask: Tensor | None = None, **how: Any) -> Tensor:
    """Logits of rows, each with its prefix."""
    mask = torch.ones_like(ids) if mask is None else mask
    cache, front = past(prefixes, Shape.of(model.config), model.dtype, model.device, **how)
    position_ids = positions(torch.tensor([0 if p is None else len(p) for p in prefixes]), mask)
    found = model(ids, past_key_values=cache, attention_mask=torch.cat([front, mask], 1), position_ids=position_ids)
    logits: Tensor = found.logits
    return logits


def ids(*shape: int) -> Tensor:
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(1))


def prefix(length: int, seed: int = 0) -> Tensor:
    return torch.randn(length, 3 * 2 * 32, generator=torch.Generator().manual_seed(seed))


def test_order_of_the_numbers_is_layer_kind_head_size() -> None:
    """As the reference: view [P, 2L, n, d], permute to [2L, n, P, d], pairs of keys and values."""
    shape, rows = Shape(3, 4, 8), prefix(5)
    cache, mask = past([rows, rows], shape, torch.float32, "cpu")
    pairs = rows.view(5, 6, 4, 8).permute(1, 2, 0, 3).split(2)
    for layer, (keys, values) in zip(cache.layers, pairs, strict=True):
        for row in (0, 1):
            assert torch.equal(layer.keys[row], keys) and torch.equal(layer.values[row], values)
    assert mask.tolist() == [[1] * 5] * 2 and cache.get_seq_length() == 5


def test_one_prefix_for_all_rows_is_stored_once() -> None:
    rows = prefix(5)
    cache, _ = past([rows] * 64, Shape(3, 4, 8), torch.float32, "cpu")
    stored = {tensor.untyped_storage().data_ptr() for layer in cache.layers for tensor in (layer.keys, layer.values)}
    assert len(stored) == 1 and cache.layers[0].keys.untyped_storage().nbytes() == rows.numel() * 4


@FAMILY
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_real_tokens_as_a_prefix_give_the_logits_of_the_tokens(family: str, attention: str) -> None:
    """The sharpest test of positions and order: a prefix that is the cache of k tokens continues exactly as those tokens would."""
    model = base(family, attention)
    text = ids(1, 20)
    whole = model(text).logits[:, 8:]
    values = cache_values(model, text[0, :8].tolist())
    torch.testing.assert_close(run(model, [values], text[:, 8:]), whole, atol=1e-5, rtol=1e-4)
    assert (run(model, [values.flip(1)], text[:, 8:]) - whole).abs().max() > 0.01


@FAMILY
@pytest.mark.parametrize(("attention", "side"), [("sdpa", "left"), ("eager", "right")])
def test_rows_of_different_prefixes_and_lengths_equal_each_alone(family: str, attention: str, side: str) -> None:
    model = base(family, attention)
    prefixes = [prefix(3), None, prefix(7, 1), prefix(1, 2)]
    texts = [ids(1, length) for length in (6, 4, 2, 5)]
    padded, mask = torch.zeros(4, 6, dtype=torch.long), torch.zeros(4, 6, dtype=torch.long)
    for row, text in enumerate(texts):
        columns = slice(6 - text.shape[1], 6) if side == "left" else slice(text.shape[1])
        padded[row, columns], mask[row, columns] = text[0], 1
    together = run(model, prefixes, padded, mask)
    for row, text in enumerate(texts):
        alone = run(model, [prefixes[row]], text)[0]
        torch.testing.assert_close(together[row][mask[row] == 1], alone, atol=1e-5, rtol=1e-4)
        if prefixes[row] is None:
            torch.testing.assert_close(alone, model(text).logits[0], atol=1e-5, rtol=1e-4)


def test_gpt2_has_learned_positions_and_no_more() -> None:
    model = base("gpt2")
    require_positions(model.config, 8, POSITIONS - 8)
    with pytest.raises(UsageError, match=f"prefix of 9 and a text of {POSITIONS - 8}.* has {POSITIONS} positions"):
        require_positions(model.config, 9, POSITIONS - 8)
    require_positions(base("gpt_neox").config, 9, POSITIONS)


@FAMILY
def test_half_precision_bases(family: str) -> None:
    exact, model = base(family), base(family).to(torch.bfloat16)
    values = prefix(4).requires_grad_()
    found = run(model, [values, None], ids(2, 6))
    assert found.dtype == torch.bfloat16
    expected = run(exact, [values, None], ids(2, 6))
    assert torch.nn.functional.cosine_similarity(found.float(), expected, -1).min() > 0.99
    found.float().logsumexp(-1).sum().backward()
    assert values.grad is not None and values.grad.dtype == torch.float32 and values.grad.abs().sum() > 0


@FAMILY
def test_gradients_are_those_of_finite_differences(family: str) -> None:
    model = base(family).double()
    values = (prefix(2).double() * 0.5).requires_grad_()
    run(model, [values, values, None], ids(3, 4), grows=False).logsumexp(-1).sum().backward()
    gradient, step = values.grad, 1e-6
    assert gradient is not None
    for index in ((0, 0), (0, 40), (1, 100), (1, 191)):  # keys and values of the first and the last layer
        changed = values.detach().clone()
        sums = []
        for move in (step, -2 * step):
            changed[index] += move
            sums.append(run(model, [changed, changed, None], ids(3, 4)).logsumexp(-1).sum())
        assert gradient[index].item() == pytest.approx((sums[0] - sums[1]).item() / (2 * step), rel=1e-3, abs=1e-8)


@FAMILY
def test_a_cache_that_does_not_grow_may_be_read_again(family: str) -> None:
    model = base(family)
    cache, front = past([prefix(3)], Shape.of(model.config), torch.float32, "cpu", grows=False)
    mask = torch.cat([front, torch.ones(1, 4)], 1)
    first, second = (model(ids(1, 4), past_key_values=cache, attention_mask=mask).logits for _ in range(2))
    assert torch.equal(first, second) and cache.get_seq_length() == 3
    torch.testing.assert_close(first, run(model, [prefix(3)], ids(1, 4)))


def test_warm_start_as_the_reference() -> None:
    """200 steps of torch's AdamW, weight decay on all but biases, written out."""
    torch.manual_seed(3)
    target = torch.randn(4, 12)
    encoder, twin = PrefixEncoder(4, 12, 5, 3), PrefixEncoder(4, 12, 5, 3)
    twin.load_state_dict(encoder.state_dict())
    losses = fit(encoder, target)
    assert len(losses) == 200
    decayed = [weight for name, weight in twin.named_parameters() if "bias" not in name]
    rest = [weight for name, weight in twin.named_parameters() if "bias" in name]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0}], 1e-4
    )
    for _ in range(200):
        optimizer.zero_grad()
        ((twin() - target) ** 2).mean().backward()
        optimizer.step()
    torch.testing.assert_close(encoder.state_dict(), twin.state_dict())


@pytest.mark.parametrize("tokens", [VOCABULARY + 1, [0, VOCABULARY], []])
def test_a_warm_start_from_unknown_ids_is_refused(tokens: int | list[int]) -> None:
    with pytest.raises(UsageError, match=f"the model knows 0 to {VOCABULARY - 1}"):
        cache_values(base("gpt_neox"), tokens)
