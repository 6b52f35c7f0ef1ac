"""A peer for cuda/bench/sizes.lua: times attention and convolutions of PyTorch on a GPU and prints one JSON line.

Use: python3 cuda/bench/peer.py REQUEST. REQUEST is JSON: device, runs, attention [[B, S, h, d]...], conv [[x, filters, pictures]...].
Times are seconds by events, the median of the runs. Attention (forward and backward) uses PyTorch's fused kernels ("flash") and
cuDNN's ("cudnn"); null if a backend does not support a case. Convolutions (y, dx, dw) use cuDNN, channels last. This file is not
part of moonreel.
Licence: Apache-2.0
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ASK = json.loads(sys.argv[1])
GPU = ASK["device"] == "cuda"
torch.set_default_device(ASK["device"])
torch.manual_seed(1)
BF16 = torch.bfloat16
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def once(run):
    if not GPU:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def seconds(run):
    run()
    return statistics.median(once(run) for _ in range(ASK["runs"]))


def attention(B, S, h, d):
    q, k, v, up = (torch.randn(B, S, h, d, dtype=BF16).transpose(1, 2).requires_grad_() for _ in range(4))
    found = {}
    for name, backend in BACKENDS.items():

        def run():
            with sdpa_kernel(backend):
                o = F.scaled_dot_product_attention(q, k, v)
            torch.autograd.grad(o, (q, k, v), up)

        try:
            found[name] = seconds(run)
        except RuntimeError as why:
            found[name] = None
            found[name + "_lacks"] = str(why).split("\n")[0]
    return found


def conv(x, filters, pictures):
    B, T, H, W, C = x
    size = (B, C, H, W) if pictures else (B, C, T + 2, H, W)
    last = torch.channels_last if pictures else torch.channels_last_3d
    pad = [1, 1] if pictures else [0, 1, 1]
    ones = [1] * len(pad)
    x = torch.randn(size, dtype=BF16).to(memory_format=last)
    w = torch.randn(filters, C, *[3] * len(pad), dtype=BF16).to(memory_format=last)
    b = torch.randn(filters, dtype=BF16)
    y = (F.conv2d if pictures else F.conv3d)(x, w, b, padding=pad)
    up = torch.randn_like(y)

    def back(*wanted):
        return torch.ops.aten.convolution_backward(up, x, w, None, ones, pad, ones, False, [0] * len(pad), 1, wanted)

    return {"y": seconds(lambda: (F.conv2d if pictures else F.conv3d)(x, w, b, padding=pad)),
            "dx": seconds(lambda: back(True, False, False)), "dw": seconds(lambda: back(False, True, False))}


torch.backends.cudnn.benchmark = True
print(json.dumps({"version": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                  "attention": [attention(*row) for row in ASK["attention"]],
                  "conv": [conv(*row) for row in ASK["conv"]]}))
