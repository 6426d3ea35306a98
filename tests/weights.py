"""Reads the weights of a folder with safetensors itself, to compare them with what the library reads and writes."""

from pathlib import Path

import torch
from safetensors.torch import load_file


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor in the model*.safetensors files of a folder."""
    return {name: tensor for path in folder.glob("model*.safetensors") for name, tensor in load_file(path).items()}
