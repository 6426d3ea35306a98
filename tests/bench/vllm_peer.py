"""The course's model in vLLM: greedy continuations of the same token ids, token by token.

    python -m tests.bench.vllm_peer write MODEL WORLD -o FILE          in the course's environment
    python -m tests.bench.vllm_peer compare MODEL FILE                 in an environment with vLLM, without the course

`write` stores the ids of the beginnings of 32 world documents, the greedy continuations of `transformers` with the log
probability of each token, and the raw texts. `compare` lets vLLM continue the ids (`prompt_token_ids`) and the raw texts,
and prints how many are the same. Where texts differ, it prints the gap between our most likely token and vLLM's.
"""

import json
from pathlib import Path
from typing import Any

from tests.bench.peer import agree, main

PROMPTS, CHARACTERS, NEW = 32, 30, 64


def write(model: Path, world: Path, target: Path) -> None:
    """Write the prompts and the course's own continuations as JSON."""
    import torch
    from course_lib.pretrain import text_codec
    from transformers import AutoModelForCausalLM, GenerationConfig

    codec, reference = text_codec.load(model), AutoModelForCausalLM.from_pretrained(model).eval()
    reference.generation_config = GenerationConfig(
        eos_token_id=reference.config.eos_token_id, pad_token_id=reference.config.eos_token_id
    )
    cases = []
    with world.open(encoding="utf8") as lines:
        texts = [json.loads(line)["text"][:CHARACTERS] for line, _ in zip(lines, range(PROMPTS), strict=False)]
    for text in texts:
        ids = codec.encode(text)
        out = reference.generate(
            torch.tensor([ids]), max_new_tokens=NEW, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
        new = out.sequences[0, len(ids) :].tolist()
        tops = [step[0].log_softmax(-1).topk(5) for step in out.logits]
        likely = [dict(zip(top.indices.tolist(), top.values.tolist(), strict=True)) for top in tops]
        cases.append({"text": text, "ids": ids, "new": new, "likely": likely})
    target.write_text(json.dumps(cases, ensure_ascii=False), encoding="utf8")
    print(f"{len(cases)} prompts, {sum(len(case['new']) for case in cases)} new tokens → {target}")


def compare(model: Path, source: Path) -> None:
    """Print a table of what vLLM writes after the same ids, and after the raw texts."""
    import vllm

    cases: list[dict[str, Any]] = json.loads(source.read_text(encoding="utf8"))
    engine = vllm.LLM(
        model=str(model), dtype="float32", max_model_len=256, enforce_eager=True, generation_config="vllm"
    )
    greedy = vllm.SamplingParams(temperature=0, max_tokens=NEW)
    by_ids = engine.generate([{"prompt_token_ids": case["ids"]} for case in cases], greedy, use_tqdm=False)
    by_text = engine.generate([case["text"] for case in cases], greedy, use_tqdm=False)
    wrong_ids = sum(list(out.prompt_token_ids) != case["ids"] for out, case in zip(by_text, cases, strict=True))
    rows = [("ids sent", by_ids), ("raw text sent", by_text)]
    print(f"vllm {vllm.__version__}\n| | the same text | tokens before the first difference |\n|---|--:|--:|")
    for name, outs in rows:
        pairs = [(list(out.outputs[0].token_ids), case["new"]) for out, case in zip(outs, cases, strict=True)]
        equal = sum(theirs == ours for theirs, ours in pairs)
        agreed = sum(agree(theirs, ours) for theirs, ours in pairs)
        print(f"| {name} | {equal} of {len(pairs)} | {agreed} of {sum(len(ours) for _, ours in pairs)} |")
    print(f"raw text: {wrong_ids} of {len(cases)} prompts became other ids than the course's, none with an error")
    for number, (out, case) in enumerate(zip(by_ids, cases, strict=True)):
        theirs, ours = list(out.outputs[0].token_ids), case["new"]
        if theirs != ours and (at := agree(theirs, ours)) < min(len(theirs), len(ours)):
            likely = case["likely"][at]
            gap = likely[str(ours[at])] - likely.get(str(theirs[at]), float("-inf"))
            print(f"prompt {number}, token {at}: log probabilities {gap:.1e} apart")


if __name__ == "__main__":
    main(__doc__, write, compare)
