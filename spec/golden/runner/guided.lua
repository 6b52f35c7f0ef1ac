--- Reference files about the sampler of Open-Sora 2.0: times, every latent, predictions.
-- @module spec.golden.runner.guided
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local condition = require "moonreel.diffusion.condition"
local guide = require "moonreel.diffusion.guide"
local mmdit = require "spec.golden.runner.mmdit"
local shift = require "moonreel.diffusion.shift"

local VALUES, TIMES, STEP = 1e-4, 1e-6, 4

local function names(value) return value == true or value == "True" end

-- options with numbers and truths for texts
local function options_of(row)
  local o = {}
  for key, value in pairs(row) do
    o[key] = tonumber(value) or value
  end
  for _, key in ipairs { "text_osci", "image_osci", "scale_temporal_osci" } do
    o[key] = names(row[key])
  end
  o.shift = row.shift == nil or names(row.shift)
  return o
end

-- one step: z to the z of the next time, and what the model said
local function stepper(m, shape, o, has_guidance)
  local B, thirds = shape[1], o.distilled and 1 or 3
  local frames = shape[3]
  local g, io = G.graph(m.params), {}
  local function input(name, dims) io[name] = g:input(name, "f32", dims) end
  input("z", shape)
  input("t", { thirds * B })
  input("dt", { 1 })
  input("y", { thirds * B, o.text, o.context })
  input("vector", { thirds * B, 1, o.vector })
  if o.cond then
    input("cond", { thirds * B, 1 + shape[2], table.unpack(shape, 3) })
  end
  if has_guidance then
    input("guidance", { thirds * B })
  end
  local copies = {}
  for i = 1, thirds do
    copies[i] = io.z
  end
  local pred = m.net:forward(g, { x = G.concat(copies, 0), t = io.t, y = io.y, vector = io.vector,
    cond = io.cond, guidance = io.guidance })
  g:output("pred", pred)
  local v = pred
  if not o.distilled then
    input("g_text", { 1 })
    input("g_image", { frames })
    v = guide.mix(pred, io.g_text, io.g_image)
  end
  g:output("next", io.z + v * io.dt:reshape { 1, 1, 1, 1, 1 }:expand(shape))
  g:finish()
  return m.run:compile(g)
end

-- the condition of [c, c, 0]
local function conditions(shape, kind, ref)
  local latent = T.new("f32", { 3 * shape[1], 1 + shape[2], table.unpack(shape, 3) })
  for b = 0, shape[1] - 1 do
    for i, part in ipairs(condition.parts(kind, shape[3], STEP * (shape[3] - 1) + 1, STEP, true)) do
      local z = ref(b, i - 1) or ref(b, 0)
      local from = part.at == 0 and 0 or z.shape[2] - part.n
      local given = z:slice(1, from, from + part.n):clone():reshape { 1, shape[2], part.n, shape[4],
        shape[5] }
      local ones = T.new("f32", { 1, 1, part.n, shape[4], shape[5] }) + 1
      for third = 0, 1 do
        local row = latent:slice(0, third * shape[1] + b, third * shape[1] + b + 1)
          :slice(2, part.at, part.at + part.n)
        row:slice(1, 0, 1):copy_from(ones)
        row:slice(1, 1, 1 + shape[2]):copy_from(given)
      end
    end
  end
  return latent
end

-- thirds of texts: of the prompts, and twice of the negative ones
local function thirds(a, b, distilled)
  return distilled and a or G.concat({ a, b, b }, 0)
end

-- all steps; watch(i, z) before step i, said(i, pred)
local function sample(m, c)
  local o, shape = c.options, c.noise.shape
  local distilled = o.method == "distill"
  local config = m.net.config
  local many = (distilled and 1 or 3) * shape[1]
  local prog = stepper(m, shape, { distilled = distilled, cond = config.cond_embed,
    text = c.txt.shape[2], context = c.txt.shape[3], vector = c.vec.shape[2] },
    config.guidance_embed)
  prog:set("y", thirds(c.txt, c.txt_uncond, distilled))
  prog:set("vector", thirds(c.vec, c.vec_uncond, distilled):reshape { many, 1, c.vec.shape[2] })
  if config.cond_embed then
    prog:set("cond", conditions(shape, c.kind, c.ref))
  end
  local function all(value)
    local list = {}
    for i = 1, many do
      list[i] = value
    end
    return T.from({ many }, list)
  end
  local z, n = c.noise, o.num_steps
  for i = 0, n - 1 do
    local t, text = c.times[i + 1], guide.scales(o, i)
    c.watch(i, z)
    prog:set("z", z)
    prog:set("t", all(1000 * t))
    prog:set("dt", T.from({ 1 }, { c.times[i + 2] - t }))
    if config.guidance_embed then
      prog:set("guidance", all(text))
    end
    if not distilled then
      prog:set("g_text", T.from({ 1 }, { text }))
      prog:set("g_image", T.from({ shape[3] }, guide.image(o, c.kind, i, n, shape[3])))
    end
    prog:run()
    c.said(i, prog:get "pred")
    z = prog:get "next"
  end
  c.watch(n, z)
  -- the references stand in the first sample again
  for i, part in ipairs(c.kind:find "^i2v" and condition.parts(c.kind, shape[3], 1, STEP, true)
      or {}) do
    local ref = c.ref(0, i - 1) or c.ref(0, 0)
    local from = part.at == 0 and 0 or ref.shape[2] - 1
    z:slice(0, 0, 1):slice(2, part.at, part.at + 1):copy_from(ref:slice(1, from, from + 1):clone()
      :reshape { 1, shape[2], 1, shape[4], shape[5] })
  end
  return z
end

local function schedule(o, shape, p)
  return shift.schedule(o.num_steps, o.shift and (o.flow_shift
    or shift.alpha({ shape[3], shape[4], shape[5] }, p * p)) or nil)
end

-- ---- the reference ----

local function denoise(f, result)
  local m, o = mmdit.load(f, "param.", f:need "model"), options_of(f:need "sampling_option")
  local p, noise = m.net.config.patch_size, f:tensor "noise"
  local times = schedule(o, noise.shape, p)
  result:absolute("timesteps", times, f:list "timesteps", TIMES)
  local z = sample(m, { options = o, noise = noise, times = times, kind = f:need "cond_type",
    txt = f:tensor "txt", txt_uncond = f:tensor "txt_uncond", vec = f:tensor "vec",
    vec_uncond = f:tensor "vec_uncond",
    ref = function(b, i) return f:find(("ref%d_%d"):format(b, i)) end,
    watch = function(i, x)
      local name = ("step%02d.img"):format(i)
      if f.has[name] then
        result:scaled(name, mmdit.as_tokens(x, p), f:tensor(name), VALUES)
      end
    end,
    said = function(i, pred)
      local name = ("step%02d.pred"):format(i)
      if f.has[name] then
        result:scaled(name, mmdit.as_tokens(pred, p), f:tensor(name), VALUES)
      end
    end })
  result:scaled("latent_final", z, f:tensor "latent_final", VALUES)
end

-- ---- another program ----

local function guidance(f, result)
  local m = mmdit.load(f, "weight.", f:need "config")
  local p = m.net.config.patch_size
  for run = 0, 9 do
    local row = f.meta["run" .. run]
    if row then
      local function input(name) return f:find(("in.%d.%s"):format(run, name)) end
      local o, noise = options_of(row), input "noise"
      local times = schedule(o, noise.shape, p)
      result:absolute("times", times, f:list(("f64.%d.times"):format(run)), TIMES)
      local tokens, at = f:tensor(("out.%d.tokens"):format(run)), {}
      local pred = f:tensor(("out.%d.pred"):format(run))
      for k, i in ipairs(f:list(("out.%d.pred_steps"):format(run))) do
        at[i // 1 | 0] = k - 1
      end
      local function row_of(t, i) return t:slice(0, i, i + 1):clone():reshape {
        table.unpack(t.shape, 2) } end
      local z = sample(m, { options = o, noise = noise, times = times, kind = row.kind,
        txt = input "txt", txt_uncond = input "txt_uncond", vec = input "vec",
        vec_uncond = input "vec_uncond",
        ref = function(b, i) return input(("ref%d_%d"):format(b, i)) end,
        watch = function(i, x)
          result:scaled(("out.%d.tokens"):format(run), mmdit.as_tokens(x, p), row_of(tokens, i),
            VALUES)
        end,
        said = function(i, v)
          if at[i] then
            result:scaled(("out.%d.pred"):format(run), mmdit.as_tokens(v, p), row_of(pred, at[i]),
              VALUES)
          end
        end })
      local name = ("out.%d.latent_final"):format(run)
      result:scaled(name, z, f:tensor(name), VALUES)
      for i = 0, o.num_steps - 1 do
        local text, image = guide.scales(o, i)
        result:absolute("g_text", { text }, { f:list(("f64.%d.g_text"):format(run))[i + 1] }, 0)
        result:absolute("g_image", { image }, { f:list(("f64.%d.g_image"):format(run))[i + 1] }, 0)
      end
    end
  end
end

return { { "^denoise_", denoise }, { "^i2v_guidance", guidance } }
