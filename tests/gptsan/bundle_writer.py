"""Writes TensorFlow checkpoints (V2) from the description of the format, for tests of the reader."""

import struct
from pathlib import Path

import numpy as np
from course_lib.gptsan.parameters import variables
from course_lib.gptsan.shape import GPTSanShape
from course_lib.gptsan.tensor_bundle import MAGIC, masked_crc32c

DTYPES = {"float32": 1, "int64": 9, "float16": 19}
RESTART = 4  # entries between keys that stand whole


def varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + varint(number >> 7) if number > 0x7F else bytes([number])


def message(fields: dict[int, int | bytes]) -> bytes:
    """A protobuf message of integers and inner messages; what is 0 is left out."""
    content = b""
    for number, value in fields.items():
        if isinstance(value, bytes):
            content += varint(number << 3 | 2) + varint(len(value)) + value
        elif value:
            content += varint(number << 3) + varint(value)
    return content


def block(rows: list[tuple[bytes, bytes]]) -> bytes:
    content, restarts, before = b"", [], b""
    for number, (key, value) in enumerate(rows):
        if number % RESTART == 0:
            restarts.append(len(content))
            before = b""
        shared = next((i for i, (a, b) in enumerate(zip(key, before)) if a != b), min(len(key), len(before)))
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    return content + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def table(rows: list[tuple[bytes, bytes]], rows_per_block: int) -> bytes:
    content, pointers = b"", []

    def add(inner: bytes) -> bytes:
        nonlocal content
        handle = varint(len(content)) + varint(len(inner))
        content += inner + b"\0" + struct.pack("<I", masked_crc32c(inner + b"\0"))
        return handle

    for at in range(0, len(rows), rows_per_block):
        some = rows[at : at + rows_per_block]
        pointers.append((some[-1][0], add(block(some))))
    footer = add(block([])) + add(block(pointers))
    return content + footer.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def write_bundle(prefix: Path, tensors: dict[str, np.ndarray], shards: int = 1, rows_per_block: int = 10) -> Path:
    """The files of a checkpoint; tensors go to the shards in turn."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    data = [b""] * shards
    rows = [(b"", message({1: shards}))]
    for number, (name, value) in enumerate(sorted(tensors.items())):
        raw, shard = value.tobytes(), number % shards
        shape = b"".join(message({2: message({1: size})}) for size in value.shape)
        entry = message({1: DTYPES[value.dtype.name], 2: shape, 3: shard, 4: len(data[shard]), 5: len(raw)})
        data[shard] += raw
        rows.append((name.encode(), entry + b"\x35" + struct.pack("<I", masked_crc32c(raw))))
    for shard, raw in enumerate(data):
        prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}").write_bytes(raw)
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(rows, rows_per_block))
    return prefix.parent


SMALL = GPTSanShape(
    vocab_size=11, max_position_embeddings=7, d_model=4, num_heads=2, num_experts=3, d_ff=32, d_ext=16, d_spout=3,
    num_switch_layers=2, num_ext_layers=1,
)  # fmt: skip


def random_variables(shape: GPTSanShape = SMALL, seed: int = 0) -> dict[str, np.ndarray]:
    """Variables of the original, every number another one."""
    rng = np.random.default_rng(seed)
    return {v.tf: rng.standard_normal(v.tf_shape(shape)).astype("f4") for v in variables(shape)}


def write_original(folder: Path, values: dict[str, np.ndarray], shards: int = 2) -> Path:
    """A checkpoint as the original's training leaves it: with moments and step."""
    moments = {name + end: np.ones_like(value) for name, value in values.items() for end in ("/adam_m", "/adam_v")}
    return write_bundle(folder / "model.ckpt-7", values | moments | {"global_step": np.array(7, "i8")}, shards)
