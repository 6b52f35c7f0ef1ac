--- A checkpoint as large as the released model of Open-Sora 2.0: its names and shapes in a sparse
-- file. Ref: hpcaitech/Open-Sora 7ad6a96, 11,891,390,528 weights.
-- @module moonreel.bench.large
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"

local large = {}

local W = 3072  -- width of a token
local MLP = 4 * W

-- linear layers by name -> {outputs, inputs}, each with a bias
local outside = {
  img_in = {W, 64}, cond_in = {W, 68}, txt_in = {W, 4096}, ["time_in.in_layer"] = {W, 256},
    ["time_in.out_layer"] = {W, W},
  ["vector_in.in_layer"] = {W, 768}, ["vector_in.out_layer"] = {W, W},
  ["final_layer.linear"] = {64, W}, ["final_layer.adaLN_modulation.1"] = {2 * W, W},
}
local double = {["mod.lin"] = {6 * W, W}, ["attn.q_proj"] = {W, W}, ["attn.k_proj"] = {W, W},
  ["attn.v_proj"] = {W, W},
  ["attn.proj"] = {W, W}, ["mlp.0"] = {MLP, W}, ["mlp.2"] = {W, MLP}}
local single = {q_proj = {W, W}, k_proj = {W, W}, v_mlp = {W + MLP, W}, linear2 = {W, W + MLP},
  ["modulation.lin"] = {3 * W, W}}

--- The names and shapes of the model, sorted by name.
---@return table[] tensors  {name, shape, n}
---@return integer weights  number of all weights
function large.tensors()
  local list, total = {}, 0
  local function add(name, ...)
    local n = T.count{...}
    list[#list + 1] = {name = name, shape = {...}, n = n}
    total = total + n
  end
  local function layers(prefix, of)
    for name, shape in pairs(of) do
      add(prefix .. name .. ".weight", shape[1], shape[2])
      add(prefix .. name .. ".bias", shape[1])
    end
  end
  local function norms(prefix)
    for _, part in ipairs{"query_norm", "key_norm"} do
      add(prefix .. part .. ".scale", 128)
    end
  end
  layers("", outside)
  for i = 0, 18 do
    for _, side in ipairs{"img_", "txt_"} do
      layers(("double_blocks.%d.%s"):format(i, side), double)
      norms(("double_blocks.%d.%sattn.norm."):format(i, side))
    end
  end
  for i = 0, 37 do
    layers(("single_blocks.%d."):format(i), single)
    norms(("single_blocks.%d.norm."):format(i))
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list, total
end

--- Writes a safetensors file of bf16: the header, then a hole of the size of the data.
---@param path string
---@param list table[]  {name, shape, n}
function large.hole(path, list)
  local parts, at = {}, 0
  for i, t in ipairs(list) do
    parts[i] = ('"%s":{"dtype":"BF16","shape":[%s],"data_offsets":[%d,%d]}'):format(t.name,
      table.concat(t.shape, ","), at, at + 2 * t.n)
    at = at + 2 * t.n
  end
  local head = "{" .. table.concat(parts, ",") .. "}"
  head = head .. (" "):rep(-#head % 8)
  local file <close> = assert(io.open(path, "wb"))
  file:write(string.pack("<s8", head))
  file:seek("cur", at - 1)
  file:write("\0")
end

--- Writes the model into a folder, as one file and as `shards` files with their index. It takes
-- kilobytes of disk space.
---@param dir string
---@param shards integer
---@return string one, string many, string[] files  the paths that a user opens; all files with data
function large.write(dir, shards)
  local list, map, files = large.tensors(), {}, {dir .. "/one.safetensors"}
  large.hole(files[1], list)
  base.make_dir(dir .. "/sharded")
  for s = 1, shards do
    local file, part = ("model-%05d-of-%05d.safetensors"):format(s, shards), {}
    for i = s, #list, shards do
      part[#part + 1] = list[i]
      map[#map + 1] = ('"%s":"%s"'):format(list[i].name, file)
    end
    files[#files + 1] = dir .. "/sharded/" .. file
    large.hole(files[#files], part)
  end
  files[#files + 1] = dir .. "/sharded/model.safetensors.index.json"
  base.replace_file(files[#files], '{"weight_map":{' .. table.concat(map, ",") .. "}}")
  return files[1], dir .. "/sharded", files
end

return large
