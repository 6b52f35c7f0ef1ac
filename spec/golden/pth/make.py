"""Files as torch.save writes them, and expected.safetensors with every tensor that moonreel reads.

Usage: python3 make.py   (torch 2.15.0). The files of README.md's first table are kept as they are.
"""
import glob
import json
import struct
import warnings

import torch

warnings.simplefilter("ignore")
torch.manual_seed(1)


class M(torch.nn.Module):
    """The class of module.pth, which lives in __main__."""


def kinds():
    x = torch.arange(24, dtype=torch.float32)
    return {
        "f8_e4m3": torch.randn(7).to(torch.float8_e4m3fn),
        "f8_e5m2": torch.randn(5).to(torch.float8_e5m2),
        "u16": torch.tensor([1, 65535], dtype=torch.uint16),
        "u32": torch.tensor([1, 2**32 - 1], dtype=torch.uint32),
        "u64": torch.tensor([1, 2**63 + 5], dtype=torch.uint64),
        "complex": torch.randn(3, dtype=torch.complex64),
        "conjugated": torch.randn(3, dtype=torch.complex64).conj(),
        "negated": torch.randn(3, dtype=torch.complex64).conj().imag,
        "sparse": torch.eye(3).to_sparse(),
        "quantised": torch.quantize_per_tensor(torch.randn(4), 0.1, 3, torch.qint8),
        "nine": torch.zeros([1] * 9),
        "transposed": x.view(4, 6).T,
        "channels_last": x.view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
        "slice": x.view(4, 6)[1:3, 2:5],
        "every_third": x[1::3],
        "expanded": torch.arange(3).view(3, 1).expand(3, 4),
        "diagonal": x.view(4, 6)[:4, :4].diagonal(),
        "permuted": torch.arange(720, dtype=torch.int16).view(2, 3, 4, 5, 6).permute(4, 1, 3, 0, 2)[1:5, :, ::2],
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3.5),
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
        "integers": [2**70, -2**63, 2**64 - 1],
        "float": 1.5,
        "none": None,
    }


def module():
    m = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    m.register_buffer("unsaved", torch.ones(2), persistent=False)
    return m


UNREADABLE = {"complex", "conjugated", "negated", "sparse", "quantised", "nine"}
NEWER_DTYPES = {"f8_e4m3", "f8_e5m2", "u16", "u32", "u64"}  # torch cannot read its own old files with these


def make():
    all_kinds = kinds()
    old = {k: v for k, v in all_kinds.items() if k not in NEWER_DTYPES | {"sparse"}}
    torch.save(all_kinds, "kinds.pth")
    torch.save(all_kinds, "kinds_protocol4.pth", pickle_protocol=4)
    torch.save(old, "kinds_legacy.pth", _use_new_zipfile_serialization=False)
    torch.save(module(), "sequential.pth")
    torch.save(module(), "sequential_protocol4.pth", pickle_protocol=4)
    torch.serialization.set_crc32_options(False)
    torch.save(module().state_dict(), "without_sums.pth")
    torch.serialization.set_crc32_options(True)


def tensors(x, prefix=""):
    if isinstance(x, torch.nn.Module):
        x = x.state_dict()
    for key, value in x.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict):
            yield from tensors(value, name)
        elif isinstance(value, torch.Tensor) and key not in UNREADABLE:
            yield name, value.detach().contiguous()


DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
          "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "uint16": "U16", "uint32": "U32",
          "uint64": "U64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}


def expect():
    header, data = {}, b""
    for path in sorted(glob.glob("*.pth") + glob.glob("*.bin") + glob.glob("*.pt")):
        for name, t in tensors(torch.load(path, weights_only=False)):
            raw = t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
            header[f"{path}/{name}"] = {"dtype": DTYPES[str(t.dtype)[6:]], "shape": list(t.shape),
                                        "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open("expected.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


make()
expect()
