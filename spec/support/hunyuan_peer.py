"""What a clip through AutoencoderKLHunyuanVideo of diffusers takes, as a whole, random weights.

Use: hunyuan_peer.py FRAMES HEIGHT WIDTH f32|bf16 encode|decode
The same by moonreel: autoencoder_full.lua beside it
"""
import resource
import sys
import time

import torch
from diffusers import AutoencoderKLHunyuanVideo

frames, height, width = map(int, sys.argv[1:4])
dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[sys.argv[4]]
model = AutoencoderKLHunyuanVideo().to(dtype).eval()
# by itself it cuts clips into blended pieces of time
model.use_framewise_encoding = model.use_framewise_decoding = False
with torch.no_grad():
    if sys.argv[5] == "encode":
        run, x = model.encode, torch.zeros(1, 3, frames, height, width, dtype=dtype)
    else:
        run, x = model.decode, torch.randn(1, 16, (frames - 1) // 4 + 1, height // 8, width // 8)
    start = time.time()
    run(x.to(dtype))
    seconds = time.time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
print(f"{sys.argv[5]} of {frames} frames of {height} x {width}: {seconds:.1f} s; peak {peak:.2f} GB")
