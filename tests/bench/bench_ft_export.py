"""`course ft export` of a GPT-NeoX with the layers of rinna's 3.6B, against copying the same bytes on the same disk; and its memory.

    python -m tests.bench.bench_ft_export [--layers 8] [--dtype fp16] [--folder DIR]

The copy is shutil.copyfile, one process. Asked for: at least 0.7 × its speed with one rank. Memory: at most 1.2 × the largest shard + 1 GiB.
DIR, on the disk to measure, needs three times the model's size (default: a temporary folder).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file

from tests.bench.timing import seconds

HIDDEN, INNER, HEADS, VOCABULARY, SHARDS = 2816, 11264, 22, 32000, 4
TORCH = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
MEASURED = """
import sys
from pathlib import Path
from course_lib.serving.export import export
export(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
print(next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))  # ru_maxrss has the parent's
"""


def build(folder: Path, layers: int, dtype: torch.dtype) -> None:
    """A Hugging Face folder of random weights, in shards."""
    shapes: dict[str, tuple[int, ...]] = {
        "gpt_neox.embed_in.weight": (VOCABULARY, HIDDEN),
        "embed_out.weight": (VOCABULARY, HIDDEN),
    }
    for layer in range(layers):
        sizes: dict[str, tuple[int, ...]] = {"input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,),
                 "attention.query_key_value": (3 * HIDDEN, HIDDEN), "attention.dense": (HIDDEN, HIDDEN),
                 "mlp.dense_h_to_4h": (INNER, HIDDEN), "mlp.dense_4h_to_h": (HIDDEN, INNER)}  # fmt: skip
        for name, shape in sizes.items():
            shapes[f"gpt_neox.layers.{layer}.{name}.weight"] = shape
            shapes[f"gpt_neox.layers.{layer}.{name}.bias"] = shape[:1]
    for part in ("weight", "bias"):
        shapes[f"gpt_neox.final_layer_norm.{part}"] = (HIDDEN,)
    names = list(shapes)
    cut = -(-len(names) // SHARDS)
    index: dict[str, str] = {}
    for number in range(SHARDS):
        file = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        held = names[number * cut : (number + 1) * cut]
        save_file({name: torch.rand(shapes[name], dtype=torch.bfloat16).to(dtype) for name in held}, folder / file)
        index |= dict.fromkeys(held, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    config = {"model_type": "gpt_neox", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": layers,
              "num_attention_heads": HEADS, "intermediate_size": INNER, "rotary_pct": 1.0, "use_parallel_residual": False,
              "bos_token_id": 2, "eos_token_id": 3}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


def heat(shards: list[Path], folder: Path) -> None:
    """Writes the same bytes and removes them: memory that a virtual machine has to ask for first is several times as slow."""
    os.sync()  # what is still to be written belongs to the run before
    folder.mkdir()
    for shard in shards:
        shutil.copyfile(shard, folder / shard.name)
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--dtype", choices=TORCH, default="fp16", help="of the model")
    parser.add_argument("--to", choices=TORCH, help="of the export; default: the same")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    target = options.to or options.dtype
    with TemporaryDirectory(dir=options.folder) as name:
        model, copied, exported = (Path(name) / part for part in ("model", "copied", "exported"))
        model.mkdir()
        build(model, options.layers, TORCH[options.dtype])
        shards = sorted(model.glob("*.safetensors"))

        from course_lib.serving.export import export

        def ours() -> None:
            export(model, exported, options.ranks, target)

        def copy() -> None:
            copied.mkdir()
            for shard in shards:
                shutil.copyfile(shard, copied / shard.name)

        times: dict[str, list[tuple[float, float]]] = {"ours": [], "copy": []}
        for turn in range(options.rounds + 1):
            for key, run, written in (("ours", ours, exported), ("copy", copy, copied)):
                shutil.rmtree(written, ignore_errors=True)
                heat(shards, Path(name) / "heat")
                took = seconds(run)
                times[key] += [(took, took + seconds(os.sync))] if turn else []
        size = sum(shard.stat().st_size for shard in shards)
        print(f"{options.dtype} → {target}, {options.ranks} rank(s), {size / 1e9:.2f} GB")
        for which, what in ((1, "on the disk (sync), >= 0.7 x"), (0, "into the system's memory")):
            mine, other = ([pair[which] for pair in times[key]] for key in ("ours", "copy"))
            ratio = median(b / a for a, b in zip(mine, other, strict=True))
            rate, peer = (size / 1e6 / median(each) for each in (mine, other))
            print(f"{rate:.0f} MB/s, copyfile {peer:.0f} MB/s: {ratio:.2f} x {what}")
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, model, exported, str(options.ranks), target],
            check=True,
            capture_output=True,
            text=True,
        )
        largest, used = max(shard.stat().st_size for shard in shards), int(done.stdout.split()[-1])
        limit = 1.2 * largest + 2**30
        print(
            f"memory: {used / 1e6:.0f} MB, largest shard {largest / 1e6:.0f} MB; 1.2 x + 1 GiB = {limit / 1e6:.0f} MB: {used <= limit}"
        )


if __name__ == "__main__":
    main()
