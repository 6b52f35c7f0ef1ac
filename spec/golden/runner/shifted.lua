--- Reference files about times, conditions and rotations of Open-Sora 2.0.
-- @module spec.golden.runner.shifted
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local build = require "spec.golden.runner.build"
local clips = require "spec.golden.runner.clips"
local condition = require "moonreel.diffusion.condition"
local ops = require "moonreel.core.op"
local shift = require "moonreel.diffusion.shift"
local stand_in = require "spec.golden.runner.stand_in"

local TIMES, TABLES, VALUES = 1e-6, 1e-5, 2e-5

-- a program without parameters over tensors
local function run(inputs, nodes)
  local params = G.params("f32"):seal()
  return clips.evaluate({ params = params, run = E.new(build.device(), params, {}) }, inputs, nodes)
end

-- ---- times ----

local function training_times(f, result, case, row)
  local size = { row.latent_T, row.latent_H, row.latent_W }
  local alpha, got = shift.alpha(size, 4), {}
  result:relative(case .. ".alpha", { alpha / size[1] ^ 0.5, alpha }, f:list(case .. ".alpha"),
    TIMES)
  for i, n in ipairs(f:list(case .. ".normal")) do
    got[i] = shift.logit_normal(n, alpha)
  end
  result:absolute(case .. ".t", got, f:list(case .. ".t"), TIMES)
end

local function sampling_times(f, result, case, row)
  local frames = row.num_frames
  local alpha = row.shift ~= false and (row.shift_alpha
    or shift.alpha({ frames, 1, row.image_seq_len }, 1)) or nil
  result:absolute(case, shift.schedule(row.num_steps, alpha), f:list(case), TIMES)
end

local function times(f, result)
  for case, row in pairs(f.meta) do
    if case:find "^train%d" then
      training_times(f, result, case, row)
    elseif case:find "^sched%d" then
      sampling_times(f, result, case, row)
    end
  end
end

-- ---- rotations ----

local function rotations(f, result)
  local ids, axes, theta = f:tensor "ids", f:need "axes_dim", f:need "theta"
  local N, d = ids.shape[2], f.has["q"].shape[4]
  local columns = ids:slice(0, 0, 1):reshape { N, 3 }
  local function heads(x)
    return x:permute { 0, 2, 1, 3 }:reshape { x.shape[1], 1, N, x.shape[2], d }
  end
  local inputs = { q = f:tensor "q", k = f:tensor "k", v = f:tensor "v",
    scale = f:tensor "rmsnorm.scale" }
  for i = 1, 3 do
    inputs["at" .. i] = columns:slice(1, i - 1, i):clone():reshape { N }
  end
  local prog = run(inputs, function(g, io)
    local cos, sin = {}, {}
    for i, D in ipairs(axes) do
      local wave = ops.sincos(io["at" .. i], { dim = D, max_period = theta })
      cos[i], sin[i] = wave:slice(1, 0, D // 2), wave:slice(1, D // 2, D)
    end
    cos, sin = G.concat(cos, 1), G.concat(sin, 1)
    g:output("cos", cos)
    g:output("sin", sin)
    local q, k, v = heads(io.q), heads(io.k), heads(io.v)
    local function back(x)
      return x:reshape { x.shape[1], N, x.shape[4], d }:permute { 0, 2, 1, 3 }
    end
    for name, halves in pairs { interleaved = false, halves = true } do
      local turned = { ops.rotary(q, cos, sin, { halves = halves }),
        ops.rotary(k, cos, sin, { halves = halves }) }
      g:output(name .. ".q_rot", back(turned[1]))
      g:output(name .. ".k_rot", back(turned[2]))
      local o = ops.attention(turned[1], turned[2], v)
      g:output(name .. ".attn_out", o:reshape { o.shape[1], N, o.shape[4] * d })
    end
    g:output("rmsnorm.q_out", back((ops.qk_norm(q, io.scale, false, false, { eps = 1e-6 }))))
  end)
  for _, name in ipairs { "interleaved.q_rot", "interleaved.k_rot", "interleaved.attn_out",
      "halves.q_rot", "halves.k_rot", "halves.attn_out", "rmsnorm.q_out" } do
    result:scaled(name, prog:get(name), f:tensor(name), TABLES)
  end
  for _, name in ipairs { "cos", "sin" } do
    local want = f:tensor("halves." .. name):slice(0, 0, 1):slice(2, 0, d // 2):clone()
    result:scaled("halves." .. name, prog:get(name):reshape(want.shape), want, TABLES)
  end
end

local function embedding(f, result)
  local t = f:tensor "t"
  local prog = run({ t = t * 1000 }, function(g, io)
    g:output("emb256", ops.sincos(io.t, { dim = 256 }))
    g:output("emb32", ops.sincos(io.t, { dim = 32 }))
  end)
  for _, name in ipairs { "emb256", "emb32" } do
    result:scaled(name, prog:get(name), f:tensor(name), TABLES)
  end
end

-- tokens of latents: channel, row, column inside a patch
local function packing(f, result)
  local case = 0
  while f.has[("case%d.x"):format(case)] do
    local x, p = f:tensor(("case%d.x"):format(case)), f:need("case" .. case).patch_size
    local prog = run({ x = x }, function(g, io)
      g:output("packed", ops.patchify(io.x, { pt = 1, ph = p, pw = p }))
    end)
    local name = ("case%d.packed"):format(case)
    local want = f:tensor(name)
    result:scaled(name, prog:get("packed"):reshape(want.shape), want, 1e-12)
    case = case + 1
  end
end

-- ---- conditions ----

local function at_sampling(f, result)
  local case = 0
  while f.meta["case" .. case] do
    local row, given = f:need("case" .. case), {}
    local shape = row.z
    local step, causal = 4, row.causal
    for b = 0, shape[1] - 1 do
      local function ref(i) return f:find(("case%d.ref%d_%d"):format(case, b, i)) end
      local parts = condition.parts(row.type, shape[3], 4 * shape[3], step, causal)
      for i, part in ipairs(parts) do
        local z = ref(i == 2 and 1 or 0) or ref(0)
        if z and shape[3] > 1 then
          local from = part.at == 0 and 0 or z.shape[2] - part.n
          given[#given + 1] = { b = b, at = part.at, n = part.n,
            z = z:slice(1, from, from + part.n):clone():reshape { 1, shape[2], part.n, shape[4],
              shape[5] } }
        end
      end
    end
    local latent, mask = stand_in.laid(shape, given)
    for name, got in pairs { masked_ref = latent, masks = mask } do
      local at = ("case%d.%s"):format(case, name)
      result:absolute(at, got:totable(), f:list(at), 0)
    end
    case = case + 1
  end
end

-- the loss without given ends, and the plain one
local function masked_loss(f, result)
  local case = 0
  while f.meta["case" .. case] do
    local row = f:need("case" .. case)
    local function at(name) return ("case%d.%s"):format(case, name) end
    local pred, target = f:tensor(at "pred"), f:tensor(at "target")
    local cells = row.H // 2 * (row.W // 2) * row.C * 4
    local square = pred - target
    square = ops.mean((square * square):reshape { row.B, row.T, cells }, { axes = { 2 } }):totable()
    local plain, sum = 0, 0
    for b = 1, row.B do
      local mask, total, n = {}, 0, 0
      for i = 1, row.T do
        mask[i] = false
      end
      for _, at_frame in ipairs(row.masked_frames[b]) do
        mask[at_frame + 1] = true
      end
      for i, counts in ipairs(condition.counted(mask)) do
        local value = square[(b - 1) * row.T + i]
        plain = plain + value / (row.B * row.T)
        total, n = total + (counts and value or 0), n + (counts and 1 or 0)
      end
      sum = sum + total / n / row.B
    end
    result:relative(at "loss", { sum, plain }, f:list(at "loss"), VALUES)
    case = case + 1
  end
end

local function same_names(a, b)
  for i = 1, math.max(#a, #b) do
    if not a[i] or not b[i] or a[i][1] ~= b[i][1] then
      return false
    end
  end
  return true
end

-- what one case gives of each sample
local function trained(f, result, case, row, text)
  local function at(name) return ("case%d.%s"):format(case, name) end
  local x, W, b = f:tensor(at "x"), f:tensor(at "ae_W"), f:tensor(at "ae_b")
  local function encode(v)
    return stand_in.encode(v, row.ae_spatial, row.ratio, row.causal, W, b)
  end
  local x0, draws, given = {}, f.has[at "draws"] and f:list(at "draws") or {}, {}
  for i = 0, row.B - 1 do
    local clip = x:slice(0, i, i + 1):clone()
    x0[i + 1] = encode(clip)
    local latent = x0[1].shape[3]
    local weights = condition.fitting(stand_in.weights(text, "config"), latent, row.ratio,
      row.causal)
    if row.T > 1 then
      local after = stand_in.weights(text, "config_after")
      result:exact(at "types that are left", same_names(weights, after) and 0 or 1)
      local name = condition.draw(weights, draws[i + 1])
      for _, part in ipairs(condition.parts(name, latent, row.T, row.ratio, row.causal)) do
        local z = part.slice and x0[i + 1]:slice(2, part.at, part.at + part.n):clone()
          or encode(clip:slice(2, part.first, part.first + part.frames):clone())
        given[#given + 1] = { b = i, at = part.at, n = part.n, z = z }
      end
    end
  end
  local all = G.concat(x0, 0)
  local latent, mask = stand_in.laid(all.shape, given)
  result:scaled(at "x_0", all, f:tensor(at "x_0"), VALUES)
  result:scaled(at "cond", G.concat({ mask, latent }, 1), f:tensor(at "cond"), VALUES)
end

local function at_training(f, result)
  local case = 0
  while f.meta["case" .. case] do
    local row = f:need("case" .. case)
    if row.pad then
      result:leave("case" .. case, "a mode that the reference's training never asks for")
    else
      trained(f, result, case, row, f.source.metadata["case" .. case])
    end
    case = case + 1
  end
end

return { { "^timesteps", times }, { "^rope_axes", rotations }, { "^timestep_embedding", embedding },
  { "^pack_ids", packing }, { "^condition_infer", at_sampling },
  { "^condition_train", at_training }, { "^loss_masked", masked_loss } }
