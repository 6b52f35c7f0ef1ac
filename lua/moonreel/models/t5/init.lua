--- Text encoder "t5": its facts without weights, its parts, and its calls for captions. It declares
-- no parameters in the run's table; moonreel.embed computes its features, which are an input of the
-- step. Ref: opensora-1.2.md 6.
-- @module moonreel.models.t5
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local features = require "moonreel.models.features"
local network = require "moonreel.models.t5.network"
local nn = require "moonreel.nn"
local sizes = require "moonreel.models.t5.sizes"
local weights = require "moonreel.models.t5.weights"

local t5 = {}

--- Its weights are in separate files and are not part of checkpoints; `files` also decide its
-- features.
t5.apart, t5.files = true, { "spiece.model" }

local KEPT = 8  -- compiled shapes of a part

local Text = features.class(sizes)

--- The encoder of a recipe. A released one is known by its name even if its files are not there.
---@param _ mr.Params
---@param config table  from_pretrained, model_max_length, residency; padding (nil: "skip"); cleans
---   (nil: true)
---@param run table     dtype, compat
---@return mr.Text      apart; sizes; width and max_length of its features; tokens() after
---   moonreel.embed has loaded it; cleans: prompts are cleaned first
function t5.new(_, config, run)
  local path = config.from_pretrained
  if not path then
    base.raise("MR_E_RECIPE", "text_encoder.from_pretrained is not set; expected the folder of "
      .. "T5 v1.1: config.json, weights and spiece.model")
  end
  local s = sizes:of_folder(path) or sizes.of_name(path)
  if not s then
    base.raise("MR_E_RECIPE", ("text_encoder.from_pretrained: no config.json in '%s', and nothing "
      .. "is downloaded; try: a folder with config.json, weights and spiece.model of T5 v1.1")
      :format(path))
  end
  return setmetatable({ apart = true, cleans = config.cleans ~= false, streams = true,
    padding = config.padding or "skip", path = path, sizes = s, width = s.d_model,
    maps = { weights }, dtype = run.dtype, max_length = config.model_max_length,
    residency = config.residency, compat = run.compat }, Text)
end

--- The encoder of an open folder; its sizes come from the tensors.
---@param path string
---@param o table     dtype
---@return mr.Text
function t5.of_file(path, o)
  return setmetatable({ apart = true, streams = true, path = path, maps = { weights },
    dtype = o.dtype }, Text)
end

-- ---- files

--- Reads its sizes from tensors and config.json.
---@param shape_of fun(name: string): integer[]|nil
---@param path string
function Text:read(shape_of, path)
  self.sizes = sizes:read(path, shape_of, self.blocks)
  self.width = self.sizes.d_model
end

--- Its sizes as text.
function Text:about() return ("%d blocks of %d"):format(self.sizes.num_layers, self.width) end

-- ---- calls

--- The quantities that ranks which share its layers must divide: {name, count}.
---@return table[]
function Text:shares()
  return { { "attention heads (num_heads)", self.sizes.num_heads },
    { "channels of the MLP (d_ff)", self.sizes.d_ff } }
end

--- Its parts with weights: the whole encoder; or the layers before the blocks, one block, and the
-- layers after them.
---@param way string  "all" or "stream"
function Text:parts(way)
  local s, group = self.sizes, { split = self.split }
  local function in_encoder(name, layer)
    return { name = name, kept = KEPT, declare = function(params)
      return layer(nn.scope(params, "encoder", group), s)
    end }
  end
  if way == "all" then
    return { { name = "whole", kept = KEPT,
      declare = function(params) return network.new(params, s, self.split) end } }
  end
  return { in_encoder("bias", network.bias), { name = "block", kept = KEPT, repeats = s.num_layers,
    declare = function(params) return network.block(nn.scope(params, "block", group), s) end,
    tensor = function(name, i) return (name:gsub("^block", "encoder.block." .. i)) end },
    in_encoder("final", network.final) }
end

--- The calls for texts of one length: from x, their words, and len to y.
---@param _ string    job "encode"
---@param s table     n texts of L places in dtype; lengths: whether padding is skipped
---@param way string  as in parts
function Text:calls(_, s, way)
  local of, split, list = self.sizes, self.split, {}
  local heads, own = split:share(of.num_heads), (split:tokens(s.L))
  local x = { "x", 0, dtype = s.dtype, shape = { s.n, 1, s.L, of.d_model } }
  local len = s.lengths and { "len", 0, dtype = "i32", shape = { s.n } } or nil
  local key = ("%dx%d%s"):format(s.n, s.L, len and " len" or "")
  local function add(part, takes, gives, nodes)
    list[#list + 1] = { part = part, key = key, takes = takes, gives = { out = gives },
      nodes = nodes }
    return list[#list]
  end
  if way == "all" then
    add("whole", { x = x, len = len }, { "y", 0, s.n },
      function(g, net, io) return net:forward(g, io.x, io.len) end)
    return list
  end
  add("bias", {}, { "bias", 0, heads }, function(g, bias) return bias:forward(g, s.L) end).key
    = tostring(s.L)
  local bias = { "bias", 0, dtype = s.dtype, shape = { heads, s.L, s.L } }
  -- each rank that shares layers has some of the tokens between blocks
  local mine = { "own", 0, dtype = s.dtype, shape = { s.n, 1, own, of.d_model } }
  for i = 0, of.num_layers - 1 do
    local first = i == 0 and own < s.L
    local call = add("block", { x = i == 0 and x or mine, bias = bias, len = len },
      { "own", 0, s.n }, function(g, block, io)
        return block:forward(g, first and split:begin(g, io.x) or io.x, io.bias, io.len)
      end)
    call.index, call.key = i, first and key .. " first" or key
  end
  add("final", { x = mine }, { "y", 0, s.n }, function(g, final, io)
    return split:finish(g, final(g, io.x), s.L)
  end)
  return list
end

--- The inputs of calls for a group of texts.
---@param source mr.TextSource
---@param group table   lists of ids; L: places of each; places after its ids stay zero; counts of
---   ids
---@param dtype string
---@param rows table    rows that the batch has read so far, by id; new rows are added
---@return table        x [B, 1, L, d_model], len i32 [B]
function Text:values(source, group, dtype, rows)
  return { x = self:words(source, group, dtype, rows),
    len = T.from({ #group.counts }, group.counts, "i32") }
end

return t5
