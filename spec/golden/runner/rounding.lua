--- Reference files about what the reference rounds to bf16: times, sizes, frequencies, angles, and
-- a whole model in bf16. Values are stored widened to f32.
-- @module spec.golden.runner.rounding
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local build = require "spec.golden.runner.build"
local file = require "spec.golden.runner.file"
local nn = require "moonreel.nn"
local positions = require "moonreel.models.stdit3.positions"
local stdit3 = require "moonreel.models.stdit3"

-- One step of bf16, relative. A model in bf16 is 5 to 9 % away from f32 by its own rounding, so two
-- of them are compared by their order of magnitude.
local STEP, SCALE, MODEL = 2 ^ -7, 1e-12, 0.1

-- outputs of a graph without parameters, each rounded to bf16, as flat lists
local function rounded_lists(add)
  local g, names = G.graph(), {}
  for name, value in pairs(add(g)) do
    names[#names + 1] = name
    g:output(name, nn.cast(nn.cast(value, "bf16"), "f32"))
  end
  g:finish()
  local prog, lists = E.new(build.device(), nil, {}):compile(g), {}
  prog:run()
  for _, name in ipairs(names) do
    lists[name] = prog:get(name):totable()
  end
  return lists
end

-- Sines and cosines: bf16 steps are relative, yet near a zero the f32 angle decides.
local function add_waves(result, name, got, want)
  local worst = #got == #want and 0 or math.huge
  for i, w in ipairs(want) do
    worst = math.max(worst, math.abs(got[i] - w) / math.max(math.abs(w), STEP))
  end
  result:add(name, worst, STEP)
end

-- pos.N with its args (rows, columns, height, width, base size) and scale; fewer rows may be stored
local function add_positions(f, name, input_sq_size, result)
  local rows, cols, height, width, base_size = table.unpack(f:list(name .. ".args"))
  local shape = f.has[name].shape
  local D = shape[#shape]
  if cols < 1 or rows < 1 or rows * cols > 1 << 20 or D % 4 ~= 0 then
    base.raise("MR_E_DATA", ("%s: %s: no table of %s x %s positions of width %s"):format(f.path,
      name, rows, cols, D))
  end
  local scale = f:list(name .. ".scale")[1]
  result:relative(name .. ".scale",
    {positions.scale(height, width, input_sq_size, true)}, {scale}, SCALE)
  local got = rounded_lists(function(g)
    return {table = positions.table(g, rows, cols, scale, base_size, D, true)}
  end).table
  local want = f:list(name)
  add_waves(result, name, table.move(got, 1, #want, 1, {}), want)
end

local function add_rotation(f, result)
  local shape = f.has["rope_cos_bf16"].shape
  local frames, n = shape[1], shape[2]
  local got = rounded_lists(function(g)
    local cos, sin = positions.rotation(g, frames, 2 * n, true)
    return {cos = cos, sin = sin}
  end)
  add_waves(result, "rope_cos_bf16", got.cos, f:list("rope_cos_bf16"))
  add_waves(result, "rope_sin_bf16", got.sin, f:list("rope_sin_bf16"))
end

-- the file whose model and inputs gave `out`
local function open_source(f)
  local stem = tostring(f.meta.what):match("STDiT3 of ([%w_%-]+)")
  if not stem then
    base.raise("MR_E_DATA", f.path .. ": 'what' does not say of which file the output is")
  end
  return file.open(("%s%s.safetensors"):format(f.path:match("^(.*/)"), stem))
end

-- a whole model in bf16
local function output(f, source, result)
  local m = build.load(source, {}, nil, "bf16")
  local inputs = build.inputs(source, "in.", "y", "mask")
  local g = G.graph(m.params)
  local set = {x = source:tensor("in.x"), y = inputs.y, fps = inputs.fps,
    t = source:tensor("in.timestep"), text_len = inputs.len, x_mask = source:find("in.x_mask")}
  local io = {height = inputs.height, width = inputs.width}
  for name, tensor in pairs(set) do
    io[name] = g:input(name, tensor.dtype, tensor.shape)
  end
  g:output("out", nn.cast(m.net:forward(g, io), "f32"))
  g:finish()
  local prog = m.run:compile(g)
  for name, tensor in pairs(set) do
    prog:set(name, tensor)
  end
  prog:run()
  result:l2("out", prog:get("out"), f:tensor("out"), MODEL)
end

local function each_rounded(list)
  local out = {}
  for i, v in ipairs(list) do
    out[i] = nn.round_bf16(v)
  end
  return out
end

local function bf16(f, result)
  local source <close> = open_source(f)
  for _, name in ipairs(f.names) do
    if name:find("^pos%.%d+$") then
      add_positions(f, name, source.meta.input_sq_size or stdit3.defaults.input_sq_size, result)
    end
  end
  if f.has["timestep.fp32"] then
    result:relative("timestep.bf16", each_rounded(f:list("timestep.fp32")),
      f:list("timestep.bf16"), 0)
  end
  for _, name in ipairs{"inv_freq_bf16", "rope_freqs_bf16"} do
    if f.has[name] then
      local want = f:list(name)
      result:relative(name, positions.frequencies(#want, true), want, 0)
    end
  end
  if f.has["rope_cos_bf16"] then
    add_rotation(f, result)
  end
  if f.has["out"] then
    output(f, source, result)
  end
end

return {{"^bf16", bf16}}
