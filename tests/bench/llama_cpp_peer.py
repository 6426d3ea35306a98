"""The course's model in llama.cpp: log probabilities and greedy continuations of the same token ids.

    python -m tests.bench.llama_cpp_peer write MODEL WORLD -o FILE.npz     in the course's environment
    course gguf export MODEL -o FILE.gguf                                  there, too
    python -m tests.bench.llama_cpp_peer compare FILE.gguf FILE.npz        with llama-cpp-python, without the course
    python -m tests.bench.llama_cpp_peer tokens MODEL FILE.gguf            the ids of texts alone, with xllamacpp (a wheel)

`write` stores the ids of 20 world documents with the log probabilities of `transformers` at every position, and the
greedy continuations of their beginnings, with the distance of the two most likely tokens. `compare` computes both with
llama.cpp, with its key/value cache in single precision and in half precision, its default. It prints the largest
difference and how many continuations are the same, and how many of the texts of tests/subword/parity.py, normalized
(and segmented, if the model's tokenizer takes such text), become other ids in llama.cpp. `tokens` does the last alone.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.peer import agree, main

DOCUMENTS, CHARACTERS, NEW = 20, 30, 64
# ggml's numbers of its types
CACHES = {"single precision": 0, "half precision": 1}


def write(model: Path, world: Path, target: Path) -> None:
    """Write ids, log probabilities [positions, vocabulary] and greedy continuations as NumPy arrays."""
    import torch
    from course_lib.pretrain import text_codec
    from course_lib.serving.gguf_export import BYTE
    from transformers import AutoModelForCausalLM, GenerationConfig

    from tests.subword.parity import TEXTS

    codec, reference = text_codec.load(model), AutoModelForCausalLM.from_pretrained(model).eval()
    reference.generation_config = GenerationConfig(
        eos_token_id=reference.config.eos_token_id, pad_token_id=reference.config.eos_token_id
    )
    with world.open(encoding="utf8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(DOCUMENTS), strict=False)]
    arrays: dict[str, Any] = {"texts": np.array([text[:CHARACTERS] for text in texts])}
    for number, text in enumerate(texts):
        ids, prompt = codec.encode(text)[: reference.config.max_position_embeddings], codec.encode(text[:CHARACTERS])
        with torch.inference_mode():
            logits = reference(torch.tensor([ids])).logits[0]
            out = reference.generate(
                torch.tensor([prompt]),
                max_new_tokens=NEW,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        best = torch.cat(out.logits).topk(2).values
        arrays |= {f"ids{number}": np.array(ids), f"log{number}": logits.double().log_softmax(-1).float().numpy()}
        arrays |= {f"prompt{number}": np.array(prompt), f"new{number}": out.sequences[0, len(prompt) :].numpy()}
        arrays[f"gap{number}"] = (best[:, 0] - best[:, 1]).numpy()
    prepare = codec.codec.prepare if codec.codec else str
    arrays["prepared"] = np.array([prepare(text) for text in TEXTS])
    for number, text in enumerate(TEXTS):
        arrays[f"prepared{number}"] = np.array(codec.encode(text), np.int64)
    names = codec.tokenizer.convert_ids_to_tokens(range(len(codec)))
    arrays["bytes"] = np.array([number for number, name in enumerate(names) if BYTE.fullmatch(name)])
    np.savez(target, **arrays)
    print(f"{len(texts)} documents → {target}")


def compare(model: Path, source: Path) -> None:
    """Print a table of what llama.cpp computes from the same ids."""
    import llama_cpp

    cases = np.load(source)
    numbers = range(len(cases["texts"]))
    print(f"llama-cpp-python {llama_cpp.__version__}")
    print("| cache | largest difference of a log probability | the same continuation | tokens before the first other |")
    print("|---|--:|--:|--:|")
    for name, kind in CACHES.items():
        llm = llama_cpp.Llama(
            str(model), n_ctx=0, n_threads=1, logits_all=True, type_k=kind, type_v=kind, verbose=False
        )
        errors, pairs = [], []
        for number in numbers:
            ours = cases[f"log{number}"]
            llm.reset()
            llm.eval(cases[f"ids{number}"].tolist())
            theirs = _log_softmax(llm.scores[: len(ours)])
            errors.append(np.abs(theirs - ours[:, : theirs.shape[1]]).max())
            pairs.append((_greedy(llm, cases[f"prompt{number}"].tolist()), cases[f"new{number}"].tolist()))
        equal = sum(found == wanted for found, wanted in pairs)
        agreed = sum(agree(found, wanted) for found, wanted in pairs)
        tokens = sum(len(wanted) for _, wanted in pairs)
        print(f"| {name} | {max(errors):.1e} | {equal} of {len(pairs)} | {agreed} of {tokens} |")
        for number, (found, wanted) in enumerate(pairs):
            if (at := agree(found, wanted)) < len(wanted):
                gap = cases[f"gap{number}"][at]
                print(f"prompt {number}, token {at}: our two most likely tokens are {gap:.1e} apart", file=sys.stderr)
    found = [llm.tokenize(str(text).encode(), add_bos=False) for text in cases["texts"]]
    wrong = sum(ids != cases[f"prompt{number}"].tolist() for number, ids in enumerate(found))
    positions = sum(len(cases[f"ids{number}"]) for number in numbers)
    print(f"{positions} positions; raw text: {wrong} of {len(found)} beginnings became other ids, none with an error")
    texts, known = cases["prepared"], 0
    others = []
    for number, text in enumerate(map(str, texts)):
        ids = cases[f"prepared{number}"].tolist()
        if llm.tokenize(text.encode(), add_bos=False) != ids:
            has_bytes = not {*cases["bytes"].tolist()}.isdisjoint(ids)
            known += has_bytes
            others += [] if has_bytes else [text]
    print(f"prepared texts: {len(others) + known} of {len(texts)} became other ids, {known} of them with byte tokens")
    print("a Unigram's byte tokens become <unk> by https://github.com/ggml-org/llama.cpp/issues/28862; the others:")
    print(*map(repr, others), sep="\n")


def tokens(model: Path, exported: Path) -> None:
    """Print which texts of tests/subword/parity.py become other ids in llama.cpp than in the course."""
    import httpx
    import xllamacpp
    from course_lib.pretrain import text_codec
    from course_lib.serving.gguf_export import BYTE

    from tests.subword.parity import TEXTS

    settings = xllamacpp.CommonParams()
    settings.model.path, settings.n_ctx, settings.port = str(exported), 256, 18080
    server = xllamacpp.Server(settings)
    codec, others, by_bytes = text_codec.load(model), [], 0
    prepare = codec.codec.prepare if codec.codec else str
    for text in TEXTS:
        asked = {"content": prepare(text), "add_special": False, "parse_special": False}
        found = httpx.post(f"{server.listening_address}/tokenize", json=asked, trust_env=False, timeout=60).json()
        ours, theirs = (codec.tokenizer.convert_ids_to_tokens(ids) for ids in (codec.encode(text), found["tokens"]))
        if ours == theirs:
            continue
        without_bytes: list[str] = []
        for token in ours:
            token = codec.tokenizer.unk_token if BYTE.fullmatch(token) else token
            if token != codec.tokenizer.unk_token or without_bytes[-1:] != [token]:
                without_bytes.append(token)
        if without_bytes == theirs:
            by_bytes += 1
        else:
            others.append(text)
    print(f"xllamacpp {xllamacpp.__version__}: {by_bytes + len(others)} of {len(TEXTS)} texts became other ids")
    print(f"{by_bytes} of them because byte tokens are <unk> (ggml-org/llama.cpp#28862); the others: {others}")


def _greedy(llm: Any, ids: list[int]) -> list[int]:
    """Return up to NEW most likely tokens after the ids, with the end-of-text token."""
    llm.reset()
    new: list[int] = []
    step = ids
    while len(new) < NEW and llm.token_eos() not in new:
        llm.eval(step)
        step = [int(llm.scores[llm.n_tokens - 1].argmax())]
        new += step
    return new


def _log_softmax(logits: Any) -> Any:
    """Return log probabilities in double precision."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


if __name__ == "__main__":
    main(__doc__, write, compare, tokens)
