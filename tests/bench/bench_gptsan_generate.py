"""Generation with the past kept (KV cache) against computing everything again for each token, by turns.

    python -m tests.bench.bench_gptsan_generate [--new 300] [--rounds 3]

A GPTSAN of 6 layers, d_model 256, 8 experts, 1280 positions, random weights, one text, no GPU. Peers with the same weights:
`text so far`, which computes the tokens there are; `original`, as run_generate.py does: the text padded to all positions. The texts of
cache and `text so far` are compared; `original` costs the same for each token, and is timed on a few. Below: seconds a token by length.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from course_lib.gptsan.configuration import GPTSanConfig
from course_lib.gptsan.generate import GPTSANGenerator, Prompt
from course_lib.gptsan.generation_config import GenerateConfig
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.tokenizer import load_tokenizer
from torch import Tensor
from transformers import DynamicCache

from tests.bench.timing import by_turns
from tests.gptsan import handmade

POSITIONS, VOCABULARY, FEW = 1280, 8000, 8
LENGTHS = (40, 160, 320, 640, POSITIONS - FEW - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new", type=int, default=300, help="tokens of a text")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    generator, new = random_generator(), arguments.new
    prompt = random_prompt(20)

    def cached() -> Tensor:
        return generator.tokens(prompt, GenerateConfig(greedy=True, max_new_tokens=new))[0]

    if cached().tolist() != recomputed(generator, prompt, new):
        raise SystemExit("the two ways do not write the same text")
    mine, so_far, ratio = by_turns(cached, lambda: recomputed(generator, prompt, new), arguments.rounds)
    print(
        f"{new} tokens: cache {mine:.2f} s ({new / mine:.0f} tokens/s), text so far {so_far:.2f} s: {1 / ratio:.1f} ×"
    )
    _, few, ratio = by_turns(cached, lambda: recomputed(generator, prompt, FEW, padded=True), arguments.rounds)
    print(f"original {few / FEW * new:.1f} s for as many: {new / FEW / ratio:.0f} ×")
    print("length   cache      text so far   factor")
    for length in LENGTHS:
        step, whole, ratio = by_turns(steps(generator, length), again(generator, length), arguments.rounds)
        print(f"{length:6} {step / FEW * 1e3:7.2f} ms {whole * 1e3:10.1f} ms {FEW / ratio:8.1f}")


def random_generator() -> GPTSANGenerator:
    torch.manual_seed(0)
    config = GPTSanConfig(
        vocab_size=VOCABULARY, max_position_embeddings=POSITIONS, d_model=256, d_ff=1024, d_ext=1024, d_spout=0, num_switch_layers=4,
        num_ext_layers=2, num_heads=8, num_experts=8, pad_token_id=0, eos_token_id=0, separator_token_id=0,
    )  # fmt: skip
    model = GPTSanForCausalLM(config)
    with tempfile.TemporaryDirectory() as folder:
        words = load_tokenizer(handmade.write(Path(folder) / "tokenizer"))
    model.final_logits_bias[0, words.eot] = -1e9  # no text ends
    return GPTSANGenerator(model, words)


def random_prompt(length: int) -> Prompt:
    ids = torch.randint(3, 30, (length,), generator=torch.Generator().manual_seed(0)).tolist()
    return Prompt(ids, [], 1)


@torch.inference_mode()
def recomputed(generator: GPTSANGenerator, prompt: Prompt, new: int, padded: bool = False) -> list[int]:
    """Greedy tokens, each after a pass over all before it, or over all positions."""
    ids, found = list(prompt.read), list[int]()
    for _ in range(new):
        padding = [generator.marks.eot] * (POSITIONS - len(ids)) if padded else []
        hidden = generator.model.model(torch.tensor([ids + padding]), use_cache=False).last_hidden_state[
            :, len(ids) - 1
        ]
        logits = generator.model.lm_head(hidden) + generator.model.final_logits_bias
        found.append(int(logits[0].masked_fill(generator.never, -torch.inf).argmax()))
        ids.append(int(generator.read_as[found[-1]]))
    return found


def steps(generator: GPTSANGenerator, length: int) -> Callable[[], None]:
    """A few tokens more behind a text of some length, of which the past is kept."""
    cache = DynamicCache(config=generator.config)
    with torch.inference_mode():
        generator.model(torch.tensor([random_prompt(length).read]), past_key_values=cache, logits_to_keep=1)

    def run() -> None:
        with torch.inference_mode():
            for _ in range(FEW):
                generator.model(torch.tensor([[5]]), past_key_values=cache)
        cache.crop(-FEW)

    return run


def again(generator: GPTSANGenerator, length: int) -> Callable[[], None]:
    """One token more behind a text of some length, computed again."""
    ids = torch.tensor([random_prompt(length).read])

    def run() -> None:
        with torch.inference_mode():
            generator.model(ids, use_cache=False, logits_to_keep=1)

    return run


if __name__ == "__main__":
    main()
