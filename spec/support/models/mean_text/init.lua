--- A toy text encoder: rows of a table by the letters of alphabet.txt, their mean as one vector.
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local features = require "moonreel.models.features"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local weights = require "moonreel.models.mean_text.weights"

local mean = { apart = true, files = { "alphabet.txt" } }

local WIDTH, ROWS = 16, 32

local Text = features.class()

local function make(path, given)
  local self = { apart = true, vector = true, width = WIDTH, max_length = 1, padding = "skip",
    residency = "all", maps = { weights }, path = path }
  for name, value in pairs(given) do
    self[name] = value
  end
  return setmetatable(self, Text)
end

function mean.new(_, fields, run)
  return make(fields.from_pretrained, { dtype = run.dtype, max_tokens = fields.bytes })
end

function mean.of_file(path, o) return make(path, { dtype = o.dtype }) end

function Text.tensors() return { { name = "bytes.weight" } } end

function Text.read(_, shape_of, path)
  if not shape_of "bytes.weight" then
    base.raise("MR_E_CKPT", path .. ": no tensor 'bytes.weight'")
  end
end

function Text.elements() return WIDTH * ROWS end
function Text.about() return "a toy" end

-- letters by their place in alphabet.txt, from 1
function Text.tokenizer(_, path, o)
  local letters = base.read_file(path .. "/alphabet.txt")
  return { pad_id = 0, ids = function(_, caption)
    local ids = {}
    for letter in caption:sub(1, o.max_length):gmatch "." do
      ids[#ids + 1] = letters:find(letter, 1, true) or 0
    end
    return #ids > 0 and ids or { 0 }
  end }
end

function Text.parts()
  return { { name = "all", declare = function(params)
    return nn.Embedding(nn.scope(params, "", { frozen = true }), "bytes", ROWS, WIDTH, 1)
  end } }
end

function Text.calls(_, _, s)
  return { { part = "all", key = ("%dx%d"):format(s.n, s.L), gives = { out = { "y", 0, s.n } },
    takes = { ids = { "ids", 0, dtype = "i32", shape = { s.n, s.L, 1 } },
      share = { "share", 0, dtype = "f32", shape = { s.n, 1, 1 } } },
    nodes = function(g, rows, io)
      local sum = ops.sum(nn.cast(rows(g, io.ids), "f32"), { axes = { 1 }, keep = true })
      return nn.cast(ops.copy(sum * io.share:expand { s.n, 1, WIDTH }), s.dtype)
    end } }
end

function Text.values(_, _, group)
  local ids, share = {}, {}
  for b, list in ipairs(group.lists) do
    for i = 1, group.L do
      ids[#ids + 1] = list[i] or -1
    end
    share[b] = 1 / group.counts[b]
  end
  local n = #group.lists
  return { ids = T.from({ n, group.L, 1 }, ids, "i32"), share = T.from({ n, 1, 1 }, share) }
end

return mean
