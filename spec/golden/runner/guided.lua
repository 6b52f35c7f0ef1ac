--- Reference files about the sampler of Open-Sora 2.0: times, every latent, predictions.
-- @module spec.golden.runner.guided
local G = require "moonreel.core.graph"
local condition = require "moonreel.diffusion.condition"
local cut = require "moonreel.sample.given"
local guide = require "moonreel.diffusion.guide"
local mmdit = require "spec.golden.runner.mmdit"
local shifted = require "moonreel.diffusion.shifted"

local VALUES, TIMES = 1e-4, 1e-6

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
  o.step, o.causal = o.temporal_reduction or 4, row.is_causal_vae == nil or names(row.is_causal_vae)
  return o
end

-- the autoencoder of a file as far as conditions ask
local function auto_of(o, dims)
  return { step = o.step, head = function(_, n) return o.causal and (n - 1) * o.step + 1
    or n * o.step end, latent = function() return { table.unpack(dims, 2) } end }
end

-- the program of a step
local function stepper(m, dims, copies, o)
  local g, many, config = G.graph(m.params), copies * dims[1], m.net.config
  local text = { y = g:input("y", "f32", { many, o.text, o.context }),
    vector = g:input("vector", "f32", { many, 1, o.vector }) }
  local report = {}
  for name, shape in pairs(m.net:conditions { many, table.unpack(dims, 2) }) do
    report[name] = g:input(name, "f32", shape)
  end
  shifted.step(g, { dims = dims, copies = copies, predict = function(x, t)
    return m.net:forward(g, { x = x, t = t, y = text.y, vector = text.vector, cond = report.cond,
      guidance = report.guidance })
  end })
  g:finish()
  return m.run:compile(g), config
end

-- what is given of a sample: ref(i) is its i-th reference, from 0; clips are those of the end
local function given_of(dims, o, kind, ref)
  local list, frames = {}, o.step * (dims[3] - (o.causal and 1 or 0)) + (o.causal and 1 or 0)
  for i, part in ipairs(condition.parts(kind, dims[3], frames, o.step, o.causal)) do
    local z = ref(i - 1) or ref(0)
    local from = part.at == 0 and 0 or z.shape[2] - part.n
    list[i] = { at = part.at, z = z:slice(1, from, from + part.n):clone() }
  end
  return list
end

-- texts of all copies
local function of_copies(a, b, copies)
  return copies == 1 and a or (G.concat({ a, b, copies == 3 and b or nil }, 0))
end

-- all steps; watch(i, z) before step i, said(i, pred, copies)
local function sample(m, c)
  local o, dims = c.options, c.noise.shape
  local given, any = {}, false
  for b = 1, dims[1] do
    given[b] = given_of(dims, o, c.kind, function(i) return c.ref(b - 1, i) end)
    any = any or #given[b] > 0
  end
  local copies = o.method == "distill" and 1 or any and 3 or 2
  local prog, config = stepper(m, dims, copies, { text = c.txt.shape[2], context = c.txt.shape[3],
    vector = c.vec.shape[2] })
  prog:set("y", of_copies(c.txt, c.txt_uncond, copies))
  prog:set("vector", of_copies(c.vec, c.vec_uncond, copies):reshape { copies * dims[1], 1,
    c.vec.shape[2] })
  if config.cond_embed then
    local cond = condition.of_copies(dims, given, copies)
    c.conditioned(cond, copies)
    prog:set("cond", cond)
  end
  c.watch(0, c.noise)
  local z = shifted.run(prog, { z = c.noise, times = c.times, copies = copies, guided = o,
    kind = c.kind, takes_guidance = config.guidance_embed, watch = function(i, ran)
      c.said(i - 1, ran:get "pred", copies)
      c.watch(i, ran:get "z")
    end })
  -- the reference does so for the first sample alone
  if c.kind:find "^i2v" then
    condition.put_back(z, 0, given[1])
  end
  return z
end

-- 0 to 1, as files have them
local function schedule(m, o, dims)
  local times = shifted.times({}, { model = m.net }, { latent = { table.unpack(dims, 2) } },
    { steps = o.num_steps, shift = o.shift, flow_shift = o.flow_shift })
  local shown = {}
  for i, t in ipairs(times) do
    shown[i] = t / 1000
  end
  return times, shown
end

-- what a file says of three copies, of which we have fewer where two are one
local function of_file(pred, copies, got)
  return copies < 3 and pred.shape[1] > got.shape[1] and pred:slice(0, 0, got.shape[1]):clone()
    or pred
end

local function compare_condition(f, result, name, cond, copies, p)
  local got = mmdit.as_tokens(cond, p)
  result:absolute(name, got:totable(), of_file(f:tensor(name), copies, got):totable(), 0)
end

-- ---- the reference ----

local function denoise(f, result)
  local m, o = mmdit.load(f, "param.", f:need "model"), options_of(f:need "sampling_option")
  local p, noise = m.net.config.patch_size, f:tensor "noise"
  local times, shown = schedule(m, o, noise.shape)
  result:absolute("timesteps", shown, f:list "timesteps", TIMES)
  local z = sample(m, { options = o, noise = noise, times = times, kind = f:need "cond_type",
    conditioned = function(cond, copies)
      compare_condition(f, result, "cond_packed", cond, copies, p)
    end,
    txt = f:tensor "txt", txt_uncond = f:tensor "txt_uncond", vec = f:tensor "vec",
    vec_uncond = f:tensor "vec_uncond",
    ref = function(b, i) return f:find(("ref%d_%d"):format(b, i)) end,
    watch = function(i, x)
      local name = ("step%02d.img"):format(i)
      if f.has[name] then
        result:scaled(name, mmdit.as_tokens(x, p), f:tensor(name), VALUES)
      end
    end,
    said = function(i, pred, copies)
      local name, got = ("step%02d.pred"):format(i), mmdit.as_tokens(pred, p)
      if f.has[name] then
        result:scaled(name, got, of_file(f:tensor(name), copies, got), VALUES)
      end
    end })
  result:scaled("latent_final", z, f:tensor "latent_final", VALUES)
  -- its decoder repeats each latent frame
  local frames, step = {}, o.step
  for i = 0, o.num_frames - 1 do
    frames[i + 1] = z:slice(2, i // step, i // step + 1):clone()
  end
  local first, last = cut.copies(auto_of(o, noise.shape), { kind = f:need "cond_type",
    frames = o.num_frames })
  local want = f:tensor "frames_out_of_identity_decoder"
  result:scaled("frames", G.concat(table.move(frames, first + 1, #frames - last, 1, {}), 2), want,
    VALUES)
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
      local times, shown = schedule(m, o, noise.shape)
      result:absolute("times", shown, f:list(("f64.%d.times"):format(run)), TIMES)
      local tokens, at = f:tensor(("out.%d.tokens"):format(run)), {}
      local pred = f:tensor(("out.%d.pred"):format(run))
      for k, i in ipairs(f:list(("out.%d.pred_steps"):format(run))) do
        at[i // 1 | 0] = k - 1
      end
      local function row_of(t, i) return t:slice(0, i, i + 1):clone():reshape {
        table.unpack(t.shape, 2) } end
      local z = sample(m, { options = o, noise = noise, times = times, kind = row.kind,
        conditioned = function(cond, copies)
          compare_condition(f, result, ("out.%d.cond_packed"):format(run), cond, copies, p)
        end,
        txt = input "txt", txt_uncond = input "txt_uncond", vec = input "vec",
        vec_uncond = input "vec_uncond",
        ref = function(b, i) return input(("ref%d_%d"):format(b, i)) end,
        watch = function(i, x)
          result:scaled(("out.%d.tokens"):format(run), mmdit.as_tokens(x, p), row_of(tokens, i),
            VALUES)
        end,
        said = function(i, v, copies)
          if at[i] then
            local got = mmdit.as_tokens(v, p)
            result:scaled(("out.%d.pred"):format(run), got, of_file(row_of(pred, at[i]), copies,
              got), VALUES)
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
