"""The peer of `moonreel bench`: the same steps in plain PyTorch, one JSON line on stdout.

Use: python3 peer_torch.py step|demo-step|vae|t5-block|conv|clip REQUEST, REQUEST being JSON made by lua/moonreel/bench. Nothing here
is part of moonreel; it runs only when PyTorch is installed. The models are those of moonreel.models.stdit3 and mmdit,
written in the usual PyTorch way (attention and AdamW fused where this PyTorch has them). A request names the dtype, the
seconds after which no further run begins (`end_s`) and, of a step, the ways to run it: as it is, by torch.compile, or both,
of which the faster is answered. Licence: Apache-2.0
"""
import json
import os
import sys
import time

WHAT, ASK = sys.argv[1], json.loads(sys.argv[2])
END = time.perf_counter() + ASK["end_s"]  # no further run begins that would end after this
if ASK["isa"] == "avx2":  # held to the instruction set moonreel was held to
    for name, value in (("ATEN_CPU_CAPABILITY", "avx2"), ("ONEDNN_MAX_CPU_ISA", "AVX2"),
                        ("DNNL_MAX_CPU_ISA", "AVX2"), ("MKL_ENABLE_INSTRUCTIONS", "AVX2")):
        os.environ.setdefault(name, value)
os.environ["OMP_NUM_THREADS"] = str(ASK["threads"])

import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402



def peak_bytes():
    """Most memory that was resident in this program; getrusage() begins with the size of the one that started it."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


SAYS = {"name": "PyTorch", "version": torch.__version__, "import_bytes": peak_bytes()}
COMPILE = False  # are models run by torch.compile?
torch.set_num_threads(ASK["threads"])
GPU = ASK.get("device") == "cuda"
if GPU:
    torch.set_default_device("cuda")
torch.manual_seed(1)


def ready(net):
    return torch.compile(net) if COMPILE else net


def attend(q, k, v, mask=None):
    """[..., h, N, d]; mask: additive, or None."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    s = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if mask is not None:
        s = s + mask
    return s.float().softmax(-1).to(v.dtype) @ v


def sinusoid(t, dim):
    f = torch.exp(torch.arange(dim // 2) * (-9.210340371976184 / (dim // 2)))
    a = t[:, None].float() * f
    return torch.cat([a.cos(), a.sin()], 1)


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class SelfAttention(nn.Module):
    def __init__(self, D, heads, norm=True):
        super().__init__()
        self.heads, d = heads, D // heads
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.q_norm, self.k_norm = (RMSNorm(d), RMSNorm(d)) if norm else (nn.Identity(), nn.Identity())

    def forward(self, x, turn=None, mask=None):  # [R, N, D]
        R, N, D = x.shape
        q, k, v = self.qkv(x).view(R, N, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = self.q_norm(q), self.k_norm(k)
        if turn is not None:
            q, k = turn(q), turn(k)
        return self.proj(attend(q, k, v, mask).transpose(1, 2).reshape(R, N, D))


class CrossAttention(nn.Module):
    def __init__(self, D, heads):
        super().__init__()
        self.heads = heads
        self.q_linear, self.kv_linear, self.proj = nn.Linear(D, D), nn.Linear(D, 2 * D), nn.Linear(D, D)

    def forward(self, x, y, mask=None):  # [B, N, D], [B, L, D]
        B, N, D = x.shape
        q = self.q_linear(x).view(B, N, self.heads, -1).transpose(1, 2)
        k, v = self.kv_linear(y).view(B, y.shape[1], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        return self.proj(attend(q, k, v, mask).transpose(1, 2).reshape(B, N, D))


class Mlp(nn.Module):
    def __init__(self, D, hidden, out):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(D, hidden), nn.Linear(hidden, out)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, D, heads, temporal):
        super().__init__()
        self.temporal = temporal
        self.scale_shift_table = nn.Parameter(torch.randn(6, D) / D ** 0.5)
        self.attn, self.cross_attn, self.mlp = SelfAttention(D, heads), CrossAttention(D, heads), Mlp(D, 4 * D, D)

    def forward(self, x, y, t, turn, T, mask):  # x [B, T S, D]
        B, N, D = x.shape
        m = (self.scale_shift_table[None] + t.view(B, 6, D)).chunk(6, 1)
        u = F.layer_norm(x, (D,), eps=1e-6) * (1 + m[1]) + m[0]
        if self.temporal:
            u = u.view(B, T, N // T, D).transpose(1, 2).reshape(-1, T, D)
            u = self.attn(u, turn).view(B, N // T, T, D).transpose(1, 2).reshape(B, N, D)
        else:
            u = self.attn(u.view(B * T, N // T, D)).view(B, N, D)
        x = x + m[2] * u
        x = x + self.cross_attn(x, y, mask)
        return x + m[5] * self.mlp(F.layer_norm(x, (D,), eps=1e-6) * (1 + m[4]) + m[3])


class STDiT3(nn.Module):
    def __init__(self, D, heads, depth, inputs, outputs, caption):
        super().__init__()
        self.D, self.d = D, D // heads
        self.x_embedder, self.final = nn.Linear(inputs, D), nn.Linear(D, outputs)
        self.t_embedder = nn.Sequential(nn.Linear(256, D), nn.SiLU(), nn.Linear(D, D))
        self.fps_embedder = nn.Sequential(nn.Linear(256, D), nn.SiLU(), nn.Linear(D, D))
        self.t_block, self.y_proj = nn.Sequential(nn.SiLU(), nn.Linear(D, 6 * D)), Mlp(caption, D, D)
        self.blocks = nn.ModuleList(Block(D, heads, i % 2 == 1) for i in range(2 * depth))
        self.final_table = nn.Parameter(torch.randn(2, D) / D ** 0.5)

    def forward(self, x, t, fps, y, position, mask=None):  # x [B, T, S, C]
        B, T, S, _ = x.shape
        dtype = self.final_table.dtype
        angle = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(0, self.d, 2) / self.d)
        cos, sin = (f.repeat_interleave(2, 1).to(dtype) for f in (angle.cos(), angle.sin()))

        def turn(q):
            a, b = q[..., ::2], q[..., 1::2]
            return q * cos + torch.stack((-b, a), -1).flatten(-2) * sin

        x = (self.x_embedder(x) + position).view(B, T * S, self.D)
        t = self.t_embedder(sinusoid(t, 256).to(dtype)) + self.fps_embedder(sinusoid(fps, 256).to(dtype))
        t6, y = self.t_block(t), self.y_proj(y)
        for block in self.blocks:
            given = x, y, t6, turn, T, mask
            x = checkpoint(block, *given, use_reentrant=False) if ASK.get("grad_checkpoint") else block(*given)
        shift, scale = (self.final_table[None] + t[:, None]).chunk(2, 1)
        return self.final(F.layer_norm(x, (self.D,), eps=1e-6) * (1 + scale) + shift).view(B, T, S, -1)


class TextEncoder(nn.Module):
    """Bytes and hashed n-grams, summed, then one transformer layer."""

    def __init__(self, s):
        super().__init__()
        D = s["text_width"]
        self.byte, self.ngram = nn.Embedding(256, D), nn.Embedding(s["text_rows"], D)
        self.position = nn.Parameter(torch.randn(s["text"], D) * 0.1)
        self.layers = nn.ModuleList(nn.ModuleList([nn.LayerNorm(D), SelfAttention(D, s["text_heads"], False), nn.LayerNorm(D),
                                                   Mlp(D, 4 * D, D)]) for _ in range(1))
        self.norm = nn.LayerNorm(D)

    def forward(self, ids, grams, mask):
        x = self.byte(ids) + self.ngram(grams).sum(2) + self.position
        for norm1, attn, norm2, mlp in self.layers:
            x = x + attn(norm1(x), mask=mask)
            x = x + mlp(norm2(x))
        return self.norm(x)


def turn_halves(x, cos, sin):
    """Rotate [..., N, d] by angles [N, d / 2]: channel j with channel d / 2 + j."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def modulated(x, shift, scale):
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift


class JointHeads(nn.Module):
    """Queries, keys, values of one stream, by head and with norms; further outputs stand behind the values."""

    def __init__(self, D, heads, more=0):
        super().__init__()
        self.D, self.heads = D, heads
        self.q, self.k, self.v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D + more)
        self.q_norm, self.k_norm = RMSNorm(D // heads), RMSNorm(D // heads)

    def forward(self, x):
        def heads(y):
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        v, more = self.v(x).split((self.D, self.v.out_features - self.D), -1)
        return self.q_norm(heads(self.q(x))), self.k_norm(heads(self.k(x))), heads(v), more


def joint_attention(q, k, v, turn):
    return attend(turn_halves(q, *turn), turn_halves(k, *turn), v).transpose(1, 2).flatten(2)


class JointStream(nn.Module):
    def __init__(self, D, heads, hidden):
        super().__init__()
        self.modulation, self.heads, self.proj, self.mlp = nn.Linear(D, 6 * D), JointHeads(D, heads), nn.Linear(D, D), Mlp(D, hidden, D)


class DoubleBlock(nn.Module):
    def __init__(self, D, heads, hidden):
        super().__init__()
        self.streams = nn.ModuleList(JointStream(D, heads, hidden) for _ in range(2))

    def forward(self, txt, img, vec, turn):
        m = [s.modulation(F.silu(vec))[:, None].chunk(6, -1) for s in self.streams]
        heads = [s.heads(modulated(x, *c[:2])) for s, x, c in zip(self.streams, (txt, img), m)]
        o = joint_attention(*(torch.cat((a, b), 2) for a, b in list(zip(*heads))[:3]), turn)
        out = []
        for s, x, c, y in zip(self.streams, (txt, img), m, o.split((txt.shape[1], img.shape[1]), 1)):
            x = x + c[2] * s.proj(y)
            out.append(x + c[5] * s.mlp(modulated(x, *c[3:5])))
        return out


class SingleBlock(nn.Module):
    def __init__(self, D, heads, hidden):
        super().__init__()
        self.modulation, self.heads, self.last = nn.Linear(D, 3 * D), JointHeads(D, heads, hidden), nn.Linear(D + hidden, D)

    def forward(self, x, vec, turn):
        shift, scale, gate = self.modulation(F.silu(vec))[:, None].chunk(3, -1)
        q, k, v, hidden = self.heads(modulated(x, shift, scale))
        o = joint_attention(q, k, v, turn)
        return x + gate * self.last(torch.cat((o, F.gelu(hidden, approximate="tanh")), -1))


class MMDiT(nn.Module):
    def __init__(self, m):
        super().__init__()
        D, heads, hidden = m["hidden_size"], m["num_heads"], int(m["hidden_size"] * m["mlp_ratio"])
        self.axes, self.theta = m["axes_dim"], m["theta"]

        def embedder(inputs):
            return nn.Sequential(nn.Linear(inputs, D), nn.SiLU(), nn.Linear(D, D))

        self.img_in, self.txt_in = nn.Linear(m["in_channels"], D), nn.Linear(m["context_in_dim"], D)
        self.time_in, self.vector_in = embedder(256), embedder(m["vec_in_dim"])
        self.double_blocks = nn.ModuleList(DoubleBlock(D, heads, hidden) for _ in range(m["depth"]))
        self.single_blocks = nn.ModuleList(SingleBlock(D, heads, hidden) for _ in range(m["depth_single_blocks"]))
        self.final_modulation, self.final = nn.Linear(D, 2 * D), nn.Linear(D, m["in_channels"])

    def turn(self, L, grid, dtype):
        """Cosines and sines [L + cells, d / 2]: text stands at 0, a cell at its frame, row and column."""
        at = torch.cartesian_prod(*(torch.arange(n) for n in grid)).float()
        angles = [at[:, i:i + 1] * self.theta ** (-torch.arange(0, d, 2) / d) for i, d in enumerate(self.axes)]
        angle = F.pad(torch.cat(angles, 1), (0, 0, L, 0))
        return angle.cos().to(dtype), angle.sin().to(dtype)

    def forward(self, x, t, y, vector, grid):  # x [B, cells, in_channels], y [B, L, context_in_dim]
        vec = self.time_in(sinusoid(t, 256).to(x.dtype)) + self.vector_in(vector)
        img, txt = self.img_in(x), self.txt_in(y)
        turn = self.turn(y.shape[1], grid, x.dtype)

        def run(block, *given):
            return checkpoint(block, *given, use_reentrant=False) if ASK.get("grad_checkpoint") else block(*given)

        for block in self.double_blocks:
            txt, img = run(block, txt, img, vec, turn)
        x = torch.cat((txt, img), 1)
        for block in self.single_blocks:
            x = run(block, x, vec, turn)
        return self.final(modulated(x[:, y.shape[1]:], *self.final_modulation(F.silu(vec))[:, None].chunk(2, -1)))


def stdit3_step(dtype):
    B, C, T, H, W = ASK["latent"]
    m = ASK["model"]
    net = STDiT3(m["hidden_size"], m["num_heads"], m["depth"], 4 * C, 8 * C, m["caption_channels"]).to(dtype)
    run, S = ready(net), H * W // 4
    x = torch.randn(B, T, S, 4 * C)
    y = torch.randn(B, m["model_max_length"], m["caption_channels"]).to(dtype)
    position = torch.randn(1, 1, S, m["hidden_size"]).to(dtype)
    t, fps = torch.full((B,), 500.0), torch.full((B,), 24.0)
    return net, x, lambda: run(x.to(dtype), t, fps, y, position).float()[..., :4 * C]


def mmdit_step(dtype):
    B, C, T, H, W = ASK["latent"]
    m = ASK["model"]
    net, grid = MMDiT(m).to(dtype), (T, H // m["patch_size"], W // m["patch_size"])
    run, x = ready(net), torch.randn(B, grid[0] * grid[1] * grid[2], m["in_channels"])
    y, vector = torch.randn(B, ASK["text"], m["context_in_dim"]).to(dtype), torch.randn(B, m["vec_in_dim"]).to(dtype)
    t = torch.full((B,), 500.0)
    return net, x, lambda: run(x.to(dtype), t, y, vector, grid).float()


def fixed_step(dtype):
    net, x, predict = {"stdit3": stdit3_step, "mmdit": mmdit_step}[ASK["family"]](dtype)
    target = torch.randn(x.shape)

    def step():
        for p in net.parameters():
            if p.grad is not None:
                p.grad.zero_()
        loss = (predict() - target).square().mean()
        loss.backward()
        return loss

    return step


def adamw(parameters):
    """In one kernel where this PyTorch has it for this device."""
    given = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.01}
    try:
        return torch.optim.AdamW(parameters, fused=True, **given)
    except (RuntimeError, TypeError):
        return torch.optim.AdamW(parameters, foreach=True, **given)


def demo_step(dtype):
    s = ASK["shape"]
    B, T, S, C, D = s["batch"], s["frames"], s["rows"] * s["cols"], s["channels"], s["width"]
    net = STDiT3(D, s["heads"], s["depth"], C, C * (2 if s["sigma"] else 1), s["text_width"])
    text = TextEncoder(s)
    both = nn.ModuleList([net, text]).to(dtype)
    run_net, run_text = ready(net), ready(text)
    masters = [p.detach().float().clone().requires_grad_() for p in both.parameters()] if dtype != torch.float32 else list(both.parameters())
    optimizer = adamw(masters)
    ema = [p.detach().clone() for p in masters]
    transform = torch.randn(3 * s["block"] ** 2, C) * 0.05
    pixels = torch.randint(0, 256, (B, T, 3, s["height"], s["pixel_width"]), dtype=torch.uint8)
    ids = torch.randint(0, 256, (B, s["text"]))
    grams = torch.randint(0, s["text_rows"], (B, s["text"], s["ngram"]))
    length = torch.full((B, 1, 1, 1), 46)
    mask = torch.zeros(B, 1, 1, s["text"]).masked_fill(torch.arange(s["text"]) >= length, float("-inf")).to(dtype)
    position = torch.randn(1, T, S, D).to(dtype)
    t, fps, n = torch.linspace(100, 900, B), torch.full((B,), 8.0), s["block"]

    def step():
        with torch.no_grad():
            cells = pixels.float().div(127.5).sub(1).unfold(3, n, n).unfold(4, n, n)
            x0 = cells.permute(0, 1, 3, 4, 2, 5, 6).reshape(B, T, S, -1) @ transform
            noise = torch.randn_like(x0)
            u = (t / 1000).view(B, 1, 1, 1)
            xt = ((1 - u) * x0 + u * noise).to(dtype)
        y = run_text(ids, grams, mask)
        loss = (run_net(xt, t, fps, y, position, mask).float()[..., :C] - (x0 - noise)).square().mean()
        loss.backward()
        parameters = list(both.parameters())
        if masters[0] is not parameters[0]:
            for master, p in zip(masters, parameters):
                master.grad = p.grad.float()
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_mul_(ema, 0.99)
            torch._foreach_add_(ema, [m.detach() for m in masters], alpha=0.01)
            if masters[0] is not parameters[0]:
                for master, p in zip(masters, parameters):
                    p.copy_(master)
        for p in parameters:
            p.grad = None
        loss.item()

    return step


# ---- the video autoencoder of Open-Sora 1.2, channels last, one half at a time

def norm2d(c):
    return nn.GroupNorm(32, c, eps=1e-6)


class Residual(nn.Module):
    """Norm, SiLU, convolution, twice, added to the input; `conv(i, o)` makes a convolution."""

    def __init__(self, i, o, norm, conv, short):
        super().__init__()
        self.norm1, self.conv1, self.norm2, self.conv2 = norm(i), conv(i, o), norm(o), conv(o, o)
        self.short = short(i, o) if i != o else nn.Identity()

    def forward(self, x):
        y = self.conv1(F.silu(self.norm1(x)))
        return self.short(x) + self.conv2(F.silu(self.norm2(y)))


def residual2d(i, o):
    return Residual(i, o, norm2d, lambda a, b: nn.Conv2d(a, b, 3, padding=1), lambda a, b: nn.Conv2d(a, b, 1))


class PictureAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm, self.qkv, self.out = norm2d(c), nn.Linear(c, 3 * c), nn.Linear(c, c)

    def forward(self, x):
        B, C, H, W = x.shape
        q, k, v = self.qkv(self.norm(x).permute(0, 2, 3, 1).reshape(B, 1, H * W, C)).chunk(3, -1)
        return x + self.out(attend(q, k, v)).view(B, H, W, C).permute(0, 3, 1, 2)


def picture_encoder():
    layers, c = [nn.Conv2d(3, 128, 3, padding=1)], 128
    for level, o in enumerate((128, 256, 512, 512)):
        layers += [residual2d(c, o), residual2d(o, o)]
        if level < 3:
            layers += [nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(o, o, 3, stride=2)]
        c = o
    layers += [residual2d(c, c), PictureAttention(c), residual2d(c, c), norm2d(c), nn.SiLU(),
               nn.Conv2d(c, 8, 3, padding=1), nn.Conv2d(8, 8, 1)]
    return nn.Sequential(*layers)


def picture_decoder():
    c = 512
    layers = [nn.Conv2d(4, 4, 1), nn.Conv2d(4, c, 3, padding=1), residual2d(c, c), PictureAttention(c), residual2d(c, c)]
    for level, o in enumerate((512, 512, 256, 128)):
        layers += [residual2d(c, o), residual2d(o, o), residual2d(o, o)]
        if level < 3:
            layers += [nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(o, o, 3, padding=1)]
        c = o
    return nn.Sequential(*layers, norm2d(c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1))


class Causal(nn.Module):
    """A convolution over 3 x 3 x 3 that sees no later frame."""

    def __init__(self, i, o, step=1, bias=True):
        super().__init__()
        self.step, self.conv = step, nn.Conv3d(i, o, 3, stride=(step, 1, 1), bias=bias)

    def forward(self, x):
        return self.conv(F.pad(x, (1, 1, 1, 1, 3 - self.step, 0)))


class TimeShuffle(nn.Module):
    def forward(self, x):
        B, C, T, H, W = x.shape
        return x.view(B, C // 2, 2, T, H, W).permute(0, 1, 3, 2, 4, 5).reshape(B, C // 2, 2 * T, H, W)


def residual3d(i, o):
    return Residual(i, o, lambda c: nn.GroupNorm(32, c), lambda a, b: Causal(a, b, bias=False),
                    lambda a, b: nn.Conv3d(a, b, 1, bias=False))


def frame_encoder():
    layers, c = [Causal(4, 128, bias=False)], 128
    for stage, o in enumerate((128, 256, 256, 512)):
        layers += [residual3d(c, o)] + [residual3d(o, o) for _ in range(3)]
        if stage in (1, 2):
            layers += [Causal(o, o, step=2)]
        c = o
    return nn.Sequential(*layers, *(residual3d(c, c) for _ in range(4)), nn.GroupNorm(32, c), nn.SiLU(),
                         nn.Conv3d(c, 8, 1), nn.Conv3d(8, 8, 1))


def frame_decoder():
    c = 512
    layers = [nn.Conv3d(4, 4, 1), Causal(4, c)] + [residual3d(c, c) for _ in range(4)]
    for stage, o in zip((3, 2, 1, 0), (512, 256, 256, 128)):
        layers += [residual3d(c, o)] + [residual3d(o, o) for _ in range(3)]
        c = o
        if stage > 1:
            half = 512 if stage == 3 else 256
            layers += [Causal(c, 2 * half), TimeShuffle()]
            c = half
    return nn.Sequential(*layers, nn.GroupNorm(32, c), nn.SiLU(), Causal(c, 4))


def vae_part(dtype):
    frames, height, width, pictures = ASK["size"]
    h, w, latent = height // 8, width // 8, -(-frames // 4)
    make, shape = {"encode 4 pictures": (picture_encoder, (pictures, 3, height, width)),
                   "encode 17 frames": (frame_encoder, (1, 4, 4 * latent, h, w)),
                   "decode 17 frames": (frame_decoder, (1, 4, latent, h, w)),
                   "decode 4 pictures": (picture_decoder, (pictures, 4, h, w))}[ASK["part"]]
    last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    net, x = make().to(dtype).to(memory_format=last), torch.randn(shape).to(dtype).to(memory_format=last)
    return lambda: net(x)


# ---- the released Hunyuan autoencoder by diffusers, a clip as a whole

def released_clip(dtype):
    import diffusers
    SAYS.update(name="diffusers", version=f"{diffusers.__version__} with PyTorch {torch.__version__}", import_bytes=peak_bytes())
    diffusers.utils.logging.set_verbosity_error()
    clip, fields = ASK["clip"], ASK["fields"]
    names = ("in_channels", "out_channels", "latent_channels", "block_out_channels", "layers_per_block", "norm_num_groups",
             "mid_block_add_attention")
    net = diffusers.AutoencoderKLHunyuanVideo(
        **{name: fields[name] for name in names}, spatial_compression_ratio=fields["spatial_compression_ratio"],
        temporal_compression_ratio=fields["time_compression_ratio"]).to(dtype).eval()
    net.use_framewise_encoding = net.use_framewise_decoding = False
    if ASK["job"] == "encode":
        x = torch.randn(1, fields["in_channels"], clip["frames"], clip["height"], clip["width"]).to(dtype)
        return lambda: net.encode(x).latent_dist.sample()
    space, time = fields["spatial_compression_ratio"], fields["time_compression_ratio"]
    z = torch.randn(1, fields["latent_channels"], (clip["frames"] - 1) // time + 1, clip["height"] // space,
                    clip["width"] // space).to(dtype)
    return lambda: net.decode(z).sample


# ---- one convolution, of pictures or causal over frames

def convolution(dtype):
    B, T, H, W, C = ASK["x"]
    O, g, groups = ASK["filters"], {"dtype": dtype}, ASK.get("groups", 1)
    (t, h, w), stride, pad = ASK["kernel"], ASK.get("stride", [1, 1, 1]), ASK["pad"]
    b = torch.randn(O, **g)
    if T == 1 and t == 1:
        x = torch.randn(B, C, H, W, **g).to(memory_format=torch.channels_last)
        k = torch.randn(O, C // groups, h, w, **g).to(memory_format=torch.channels_last)
        return lambda: F.conv2d(x, k, b, stride=stride[1:], padding=(pad[2], pad[4]), groups=groups)
    # frames that stand before the first are there already
    front, beside = (0, pad[0]) if pad[0] == pad[1] else (pad[0], 0)
    x = torch.randn(B, C, T + front, H, W, **g).to(memory_format=torch.channels_last_3d)
    k = torch.randn(O, C // groups, t, h, w, **g).to(memory_format=torch.channels_last_3d)
    return lambda: F.conv3d(x, k, b, stride=stride, padding=(beside, pad[2], pad[4]), groups=groups)


# ---- a block of T5 v1.1 XXL

class TextBlock(nn.Module):
    def __init__(self, D=4096, heads=64, inner=10240):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, RMSNorm(D), RMSNorm(D)
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=False) for _ in range(4))
        self.wi_0, self.wi_1, self.wo = (nn.Linear(a, b, bias=False) for a, b in ((D, inner), (D, inner), (inner, D)))

    def forward(self, x, bias):
        B, L, D = x.shape
        u = self.norm1(x)
        q, k, v = (f(u).view(B, L, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        # scores are not scaled
        y = attend(q * (D // self.heads) ** 0.5, k, v, bias)
        x = x + self.o(y.transpose(1, 2).reshape(B, L, D))
        u = self.norm2(x)
        return x + self.wo(F.gelu(self.wi_0(u), approximate="tanh") * self.wi_1(u))


def text_block(dtype):
    B, L = ASK["block"]
    net, x, bias = TextBlock().to(dtype), torch.randn(B, L, 4096).to(dtype), torch.zeros(1, 64, L, L).to(dtype)
    return lambda: net(x, bias)


def without_gradient(make_step):
    def make(dtype):
        run = make_step(dtype)

        def step():
            with torch.inference_mode():
                run()

        return step

    return make


def rate(dtype, n):
    """TFLOP/s of a product, to show a slow BLAS; 0 where there is none."""
    a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
    best = 0.0
    for _ in range(4):
        start = time.perf_counter()
        try:
            a @ b
        except RuntimeError:
            return 0.0
        best = max(best, 2e-12 * n ** 3 / (time.perf_counter() - start))
    return best


def best_time(step, seconds):
    """The best of at least three runs after one to warm up; of fewer where the step is so slow, and how many counted.
    A request may ask for another number of `turns`."""
    times, start = [], time.perf_counter()
    while len(times) < ASK.get("turns", 4) or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        step()
        if GPU:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        if time.perf_counter() + times[-1] > END:
            break
    counted = times[1:] or times
    return min(counted), len(counted)


def say(result):
    print(json.dumps({**result, **SAYS}))


make = {"step": fixed_step, "demo-step": demo_step, "vae": without_gradient(vae_part),
        "t5-block": without_gradient(text_block), "conv": without_gradient(convolution),
        "clip": without_gradient(released_clip)}[WHAT]
kind = {"f32": torch.float32, "bf16": torch.bfloat16}[ASK["dtype"]]
least = ASK.get("flop", 0) * 1e-12 / max(rate(kind, 1024), 1e-6)  # seconds, from its products alone
if time.perf_counter() + least > END:
    say({"least_seconds": least})
    sys.exit()
results = []
for COMPILE in {"plain": [False], "compiled": [True], "both": [False, True]}[ASK.get("way", "plain")]:
    try:
        step = make(kind)
        if COMPILE:
            step()
        results.append(best_time(step, ASK["seconds"]) + (COMPILE,))
    except Exception:  # what this PyTorch, or the compiler that it finds, cannot compile
        if not COMPILE or not results:
            raise
seconds, runs, compiled = min(results, key=lambda r: r[0])
say({"dtype": str(kind).replace("torch.", ""), "threads": ASK["threads"], "seconds": seconds, "runs": runs, "compiled": compiled,
     "isa": torch.backends.cpu.get_cpu_capability() if hasattr(torch.backends, "cpu") else "",
     "product_tflops": rate(kind, 1024), "tflops": ASK.get("flop", 0) / seconds * 1e-12,
     "peak_bytes": peak_bytes()})
