--- Reference files about tokens that ranks share: blocks of attention merged, tokens cut, rows of a
-- picture filled up.
-- @module spec.golden.runner.ranks
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local build = require "spec.golden.runner.build"
local file = require "spec.golden.runner.file"
local ops = require "moonreel.core.op"
local sequence = require "moonreel.nn.sequence"

local VALUES = 1e-5

-- attention to all keys, and by the rank whose partial results the file holds, block by block
local function merged(f, result)
  local g, world = G.graph(), f:need("world")
  local shape, x = f.has.q.shape, {}
  local B, S, H, D = table.unpack(shape)
  for _, name in ipairs{"q", "k", "v"} do
    x[name] = g:input(name, "f32", shape):reshape{B, 1, S, H, D}
  end
  g:output("full.out", (ops.attention(x.q, x.k, x.v)))
  g:output("full.lse", (select(2, ops.attention(x.q, x.k, x.v))))
  local rank
  for _, name in ipairs(f.names) do
    rank = rank or tonumber(name:match("^rank(%d+)%."))
  end
  local function block(value, at) return value:slice(2, sequence.part(S, world, at)) end
  local o, lse
  for step = 0, world - 1 do
    local at = (rank - step) % world
    local part, part_lse = ops.attention(block(x.q, rank), block(x.k, at), block(x.v, at))
    if o then
      o, lse = ops.attention_merge(o, lse, part, part_lse)
    else
      o, lse = part, part_lse
    end
    g:output(("rank%d.after_block%d.out"):format(rank, step), o)
    g:output(("rank%d.after_block%d.lse"):format(rank, step), lse)
  end
  g:finish()
  local run <close> = E.new(build.device(), nil, {})
  local prog = run:compile(g)
  for _, name in ipairs{"q", "k", "v"} do
    prog:set(name, f:tensor(name))
  end
  prog:run()
  for _, name in ipairs(f.names) do
    if name:find("%.out$") or name:find("%.lse$") then
      result:l2(name, prog:get(name), f:tensor(name), VALUES)
    end
  end
end

-- How text before an image is cut. The reference computes everything everywhere where a rank would
-- have no image; ours lets it have none.
local function cuts(f, result)
  for key, split in pairs(f.meta) do
    if key:find("^split%d+$") then
      local without, off = false, 0
      for rank = 0, split.sp - 1 do
        local text, image = sequence.new{heads = split.sp, rank = rank}:joint(split.txt, split.img)
        off = off + math.abs(text - split.txt_splits[rank + 1])
          + math.abs(image - split.img_splits[rank + 1])
        without = without or image == 0
      end
      result:exact(key, off)
      result:exact(key .. ".sp_disabled", without == split.sp_disabled and 0 or 1)
    end
  end
end

local function parallel(f, result)
  merged(f, result)
  cuts(f, result)
end

-- the model over the inputs of another file, with rows of tokens filled up for this many ranks
local function padded(f, result)
  local other = f:need("what"):match("inputs of ([%w_]+)")
  if not other then
    base.raise("MR_E_DATA", f.path .. ": it does not say whose inputs it is of")
  end
  local from <close> = file.open(f.path:match("^(.*/)") .. other .. ".safetensors")
  local m, inputs = build.load(from, {}), build.inputs(from, "in.", "y", "mask")
  local set = {x = from:tensor("in.x"), y = inputs.y, fps = inputs.fps,
    t = from:tensor("in.timestep"), text_len = inputs.len, x_mask = from:find("in.x_mask")}
  for _, name in ipairs(f.names) do
    local ranks = math.tointeger(tonumber(name:match("^out%.sp(%d+)$")))
    if ranks then
      local g, io = G.graph(m.params), {height = inputs.height, width = inputs.width, rows = ranks}
      for key, tensor in pairs(set) do
        io[key] = g:input(key, tensor.dtype, tensor.shape)
      end
      g:output("out", m.net:forward(g, io))
      g:finish()
      local prog = m.run:compile(g)
      for key, tensor in pairs(set) do
        prog:set(key, tensor)
      end
      prog:run()
      result:l2(name, prog:get("out"), f:tensor(name), VALUES)
    end
  end
end

return {{"^stdit3_sp_pad", padded}, {"^sequence_parallel", parallel}}
