"""Q5_0 tensors of a GGUF file as Q8_0 ones of the same values, for engines that do not read Q5_0.

A Q5_0 block holds 32 numbers as an f16 scale, 32 high bits and 32 low halves: value = scale * (q - 16), q of 5 bits. A Q8_0
block holds the same scale and 32 signed bytes: value = scale * q. So q - 16 as a byte is the same number exactly. All
else is copied as it is.
"""

import hashlib
import os
import sys
from pathlib import Path

import gguf
import numpy as np

Q5_0, Q8_0 = gguf.GGMLQuantizationType.Q5_0, gguf.GGMLQuantizationType.Q8_0
Q5_0_BYTES = 22  # of a block of 32


def q8_rows(rows: np.ndarray) -> np.ndarray:
    """[rows, bytes] of Q5_0 blocks as [rows, bytes] of Q8_0 blocks."""
    blocks = np.ascontiguousarray(rows).reshape(-1, Q5_0_BYTES)
    scales, low = blocks[:, :2], blocks[:, 6:]
    high_bits = np.ascontiguousarray(blocks[:, 2:6]).view("<u4")  # [blocks, 1]
    high = (high_bits >> np.arange(32, dtype=np.uint32)) & 1
    values = np.concatenate([low & 15, low >> 4], axis=1) | (high << 4)
    signed = (values.astype(np.int16) - 16).astype(np.int8)
    return np.concatenate([scales, signed.view(np.uint8)], axis=1).reshape(rows.shape[0], -1)


def checked_q8(name: str, rows: np.ndarray) -> np.ndarray:
    packed = q8_rows(rows)
    if not np.array_equal(gguf.dequantize(np.ascontiguousarray(rows), Q5_0), gguf.dequantize(packed, Q8_0)):
        raise RuntimeError(f"tensor {name} changed its values when repacked from Q5_0 to Q8_0")
    return packed


def copy_fields(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue  # the writer's own
        value = field.contents()
        if key == "general.file_type":
            value = int(gguf.LlamaFileType.MOSTLY_Q8_0)
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, value, field.types[0], sub_type=sub_type)


def write_repacked(reader: gguf.GGUFReader, target: Path) -> None:
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    copy_fields(reader, writer)
    for tensor in reader.tensors:
        if tensor.tensor_type == Q5_0:
            writer.add_tensor(tensor.name, checked_q8(tensor.name, tensor.data), raw_dtype=Q8_0)
        else:
            writer.add_tensor(tensor.name, np.ascontiguousarray(tensor.data), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def without_q5(model: Path, folder: Path) -> Path:
    """The model itself, or if it has Q5_0 tensors a repacked copy in `folder`, made once."""
    stat = model.stat()
    tag = hashlib.sha256(f"{model.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:12]
    target = folder / f"{model.stem}.{tag}.gguf"
    if target.exists():
        return target
    reader = gguf.GGUFReader(model)
    if all(tensor.tensor_type != Q5_0 for tensor in reader.tensors):
        return model
    print(f"repacking Q5_0 as Q8_0, once: {target}", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{target.name}.{os.getpid()}"
    try:
        write_repacked(reader, partial)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    return target
