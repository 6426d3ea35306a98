"""`course ft export` and `import` against FasterTransformer's own converters: the same bytes, and the model back.

    pip install --no-deps --target T4 transformers==4.40.2 tokenizers==0.19.1 huggingface-hub==0.23.4
    python -m tests.bench.bench_ft_upstream --checkout FasterTransformer --transformers T4

FasterTransformer is a checkout of https://github.com/NVIDIA/FasterTransformer; only its converters run, on the CPU. They need
transformers 4, because transformers 5 has no rotary_pct.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import torch
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.serving.export import export
from course_lib.serving.ft_import import import_folder
from course_lib.serving.ft_settings import Given
from course_lib.serving.ft_source import Corrections

from tests.serving import models
from tests.serving.models import FAMILIES, HEADS, HIDDEN, LAYERS, as_task, build, save
from tests.serving.test_ft_import import same

DTYPES: tuple[NumberFormat, ...] = ("fp32", "fp16")
CONVERTERS = Path("examples/pytorch")
NEOX, GPT2 = "gptneox/utils/huggingface_gptneox_convert.py", "gpt/utils/huggingface_gpt_convert.py"
JAPANESE = "gptneox/utils/huggingface_jp_gptneox_convert.py"


def convert(checkout: Path, four: Path, source: Path, target: Path, family: str, ranks: int, dtype: str) -> Path:
    """Runs the original's converter."""
    script = checkout / CONVERTERS / (GPT2 if family == "gpt2" else NEOX)
    command = [sys.executable, script, "-o", target, "-i", source, "-i_g", ranks, "-p", 1, "-weight_data_type", dtype]
    command += [] if family == "gpt2" else ["-m_n", "x"]
    environment = os.environ | {"PYTHONPATH": str(four)}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return target / f"{ranks}-gpu"


def add_prefixes(checkout: Path, folder: Path, ranks: int, dtype: str) -> None:
    """Writes the tasks' files with the original's function, which does not use transformers."""
    spec = importlib.util.spec_from_file_location("japanese", checkout / CONVERTERS / JAPANESE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files = [folder.parent / f"{name}.task.weight" for name in models.prefixes()]
    for file, values in zip(files, models.prefixes().values(), strict=True):
        torch.save(values, file)
    arguments = SimpleNamespace(
        prompt_in_file_list=",".join(map(str, files)), saved_dir=str(folder.parent), infer_gpu_num=ranks
    )
    numbers = {"fp32": np.float32, "fp16": np.float16}[dtype]
    module.prefix_prompt_convert(arguments, {"n_layer": LAYERS, "n_head": HEADS, "n_embd": HIDDEN}, numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, help="FasterTransformer")
    parser.add_argument("--transformers", type=Path, required=True, help="folder with transformers 4")
    given = parser.parse_args()
    count = 0
    folders = [*product(FAMILIES, (1, 2, 4), DTYPES)]
    for family, ranks, dtype in folders:
        with TemporaryDirectory() as name:
            compared = compare(Path(name), given.checkout, given.transformers, family, ranks, dtype)
        print(f"{family}, {ranks} ranks, {dtype}: {compared} files with the same bytes, and the model back")
        count += compared
    print(f"{count} files of {len(folders)} folders")


def compare(folder: Path, checkout: Path, four: Path, family: str, ranks: int, dtype: NumberFormat) -> int:
    """Compares the files of both exports, and the model that comes back with the original; returns the number of files."""
    source = save(build(family), folder / "source")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"rotary_pct": 0.5, "rotary_emb_base": 1e4}))
    theirs = convert(checkout, four, source, folder / "theirs", family, ranks, dtype)
    tasks = [as_task(*task) for task in models.prefixes().items()] if family != "gpt2" else []
    if tasks:
        add_prefixes(checkout, theirs, ranks, dtype)
    ours = export(source, folder / "ours", ranks, dtype, tasks, Corrections(False, False, False), "x").folder
    wanted, found = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (theirs, ours))
    # The prefix function leaves its part of config.ini to its caller; GPT-2's model_name is a path
    theirs_ini, ours_ini = (files.pop("config.ini").decode().splitlines() for files in (wanted, found))
    assert {line for line in theirs_ini if "model_name" not in line} <= set(ours_ini)
    assert found == wanted, [key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)]
    (theirs / "config.ini").write_bytes((ours / "config.ini").read_bytes())
    import_folder(theirs, folder / "back", given=Given(biases_divided_by=ranks if family != "gpt2" else None))
    assert same(folder / "back", build(family).to(TORCH[dtype]))
    return len(wanted)


if __name__ == "__main__":
    main()
