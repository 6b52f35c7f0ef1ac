"""Start weights of PixArt's form as torch saves them, random: OUT/PixArt-Sigma-NAME.pth, and beside it
OUT/pixart_NAME.safetensors with every tensor, which `make golden GOLDEN=OUT` compares with what a model takes.

    python3 make.py OUT [NAME [HIDDEN DEPTH CAPTION ROWS TEXT]]

ROWS are those of the null caption in the file, TEXT those of the model. Needs torch; made with 2.15.0: `make.py .`
and `make.py . cut 24 1 5 9 6`.
"""
import json
import struct
import sys

import torch

OUT, NAME = sys.argv[1], (sys.argv[2:] or ["long"])[0]
HIDDEN, DEPTH, CAPTION, ROWS, TEXT = map(int, sys.argv[3:] or (16, 2, 6, 4, 7))
HEADS, MLP, CHANNELS = 2, 4 * HIDDEN, 4
torch.manual_seed(HIDDEN + DEPTH)


def linear(name, outputs, inputs):
    return {name + ".weight": (outputs, inputs), name + ".bias": (outputs,)}


def shapes():
    all_of_it = {"pos_embed": (1, 36, HIDDEN), "x_embedder.proj.weight": (HIDDEN, CHANNELS, 2, 2),
                 "x_embedder.proj.bias": (HIDDEN,), "y_embedder.y_embedding": (ROWS, CAPTION),
                 "final_layer.scale_shift_table": (2, HIDDEN)}
    for name, outputs, inputs in (("t_embedder.mlp.0", HIDDEN, 256), ("t_embedder.mlp.2", HIDDEN, HIDDEN),
                                  ("t_block.1", 6 * HIDDEN, HIDDEN), ("y_embedder.y_proj.fc1", HIDDEN, CAPTION),
                                  ("y_embedder.y_proj.fc2", HIDDEN, HIDDEN), ("final_layer.linear", 32, HIDDEN)):
        all_of_it.update(linear(name, outputs, inputs))
    for i in range(DEPTH):
        block = f"blocks.{i}."
        all_of_it[block + "scale_shift_table"] = (6, HIDDEN)
        for name, outputs, inputs in (("attn.qkv", 3 * HIDDEN, HIDDEN), ("attn.proj", HIDDEN, HIDDEN),
                                      ("cross_attn.q_linear", HIDDEN, HIDDEN), ("cross_attn.kv_linear", 2 * HIDDEN, HIDDEN),
                                      ("cross_attn.proj", HIDDEN, HIDDEN), ("mlp.fc1", MLP, HIDDEN), ("mlp.fc2", HIDDEN, MLP)):
            all_of_it.update(linear(block + name, outputs, inputs))
    return all_of_it


weights = {name: torch.randn(shape) for name, shape in shapes().items()}
torch.save({"state_dict": weights, "epoch": 1}, f"{OUT}/PixArt-Sigma-{NAME}.pth")
config = {"hidden": HIDDEN, "heads": HEADS, "caption": CAPTION, "text_len": TEXT, "depth": DEPTH, "qk_norm": False}
header, data = {"__metadata__": {"class": "none", "config": json.dumps(config)}}, b""
for name, t in weights.items():
    raw = t.numpy().tobytes()
    header["weight." + name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(f"{OUT}/pixart_{NAME}.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + data)
