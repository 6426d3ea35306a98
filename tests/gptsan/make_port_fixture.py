"""Writes fixtures/port.npz: logits that transformers' own GPTSAN (4.27 … 4.57) computes from weights that any test can build again.

    python tests/gptsan/make_port_fixture.py

Run by hand in an environment of its own, with `pip install torch==2.13.0 transformers==4.57.1`. What the port gets wrong is
avoided: it is given a mask always, and with a spout token types of one column more.
"""

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

FIXTURE = Path(__file__).parent / "fixtures" / "port.npz"
SHAPE: dict[str, Any] = {
    "vocab_size": 48,
    "max_position_embeddings": 10,  # less than the tokens: positions are clipped
    "d_model": 32,
    "d_ff": 64,
    "d_ext": 48,
    "d_spout": 8,
    "num_switch_layers": 2,
    "num_ext_layers": 2,
    "num_heads": 4,
    "num_experts": 3,
}
BATCH, LENGTH, PREFIX, PADDING = 2, 12, 5, 4
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "prefix": {"prefix": True},
    "spout": {"spout": True},
    "spout and prefix": {"spout": True, "prefix": True},
    "padding": {"padding": True},
    "padding and prefix": {"padding": True, "prefix": True},
}


def fill(state: Mapping[str, torch.Tensor]) -> None:
    """Gives every tensor values of its own that depend on its name only, so large that spout and prefix are felt."""
    for name, tensor in state.items():
        if name != "lm_head.weight":  # the embeddings again
            values = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(tuple(tensor.shape))
            std = 0.1 if "embed_tokens" in name or "last_project" in name else 0.3
            tensor.copy_(torch.from_numpy(std * values + name.endswith("norm.weight")))


def given(case: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The inputs of a case, as the port wants them."""
    random = np.random.RandomState(7)
    inputs = {"input_ids": torch.from_numpy(random.randint(0, SHAPE["vocab_size"], (BATCH, LENGTH)))}
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    if case.get("padding"):
        mask[0, :PADDING] = 0
    inputs["attention_mask"] = mask
    if case.get("spout"):
        inputs["spout"] = torch.from_numpy(random.uniform(size=(BATCH, SHAPE["d_spout"])).astype(np.float32))
    if case.get("prefix"):
        types = torch.zeros(BATCH, LENGTH + bool(case.get("spout")), dtype=torch.long)
        types[0, : PREFIX + PADDING * bool(case.get("padding"))] = 1
        types[1, :PREFIX] = 1
        inputs["token_type_ids"] = types
    return inputs


def main() -> None:
    from transformers.models.deprecated.gptsan_japanese import GPTSanJapaneseConfig as Config
    from transformers.models.deprecated.gptsan_japanese import GPTSanJapaneseForConditionalGeneration as Port

    logits = {}
    for name, case in CASES.items():
        model = Port(Config(**SHAPE, expert_capacity=1000)).eval()
        with torch.no_grad():
            fill(model.state_dict())
            logits[name] = model(**given(case)).logits.numpy()
    np.savez_compressed(FIXTURE, **logits)


if __name__ == "__main__":
    main()
