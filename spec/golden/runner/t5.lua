--- Reference files about T5 encoders: hidden states of every place, with padding masked and with
-- padding attended, masks with holes, buckets of distances.
-- @module spec.golden.runner.t5
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local build = require "spec.golden.runner.build"
local network = require "moonreel.models.t5.network"
local sizes = require "moonreel.models.t5.sizes"

local VALUES = 1e-5
local HIDDEN = -3e38  -- what a masked key gets on its score

-- tokens in use of a mask that is a prefix; nil: it has holes
local function prefix(mask, L)
  local n = 0
  for i = 1, L do
    n = n + (mask[i] ~= 0 and 1 or 0)
  end
  for i = 1, n do
    if mask[i] == 0 then
      return nil
    end
  end
  return n
end

-- hidden states of one text at all places, and of each block; mask: a list of 0 and 1, nil: all
local function hidden(m, ids, mask)
  local L = #ids
  local g, given = G.graph(m.params), {ids = T.from({1, L, 1}, ids, "i32")}
  local len = mask and prefix(mask, L)
  given.len = len and T.from({1}, {len}, "i32")
  if mask and not len then
    local row = {}
    for i = 1, L do
      row[i] = mask[i] == 0 and HIDDEN or 0
    end
    given.mask = T.from({1, 1, L}, row)
  end
  local inputs = {}
  for name, t in pairs(given) do
    inputs[name] = g:input(name, t.dtype, t.shape)
  end
  local x = m.words(g, inputs.ids):reshape{1, 1, L, m.net.final.width}
  g:output("out", m.net:forward(g, x, inputs.len, {
    mask = inputs.mask and inputs.mask:expand{m.net.bias.heads, L, L},
    tap = function(name, value) g:output(name, value) end}))
  g:finish()
  local prog = m.run:compile(g)
  for name, t in pairs(given) do
    prog:set(name, t)
  end
  prog:run()
  return function(name) return prog:get(name):totable() end
end

-- the values of a batch are compared as one: rows of all texts behind each other
local function compare(f, result, m, ids, mask, wanted)
  local shape, got = ids.shape, {}
  local B, L = shape[1], shape[2]
  local all, used = ids:totable(), mask and mask:totable()
  for b = 1, B do
    local from = (b - 1) * L
    local get = hidden(m, table.move(all, from + 1, from + L, 1, {}),
      used and table.move(used, from + 1, from + L, 1, {}))
    for name in pairs(wanted) do
      got[name] = got[name] or {}
      local row = get(name)
      table.move(row, 1, #row, #got[name] + 1, got[name])
    end
  end
  for name, tensor in pairs(wanted) do
    local want = f:tensor(tensor)
    local values = T.from(want.shape, got[name])
    result:l2(tensor, values, want, VALUES)
    result:scaled(tensor .. " at most", values, want, VALUES)
  end
end

-- cases: a batch of ids and its mask
local function cases(f, result, m)
  for _, name in ipairs(f.names) do
    local case = name:match("^(.*)%.input_ids$")
    if case then
      local wanted = {out = case .. ".last_hidden_state"}
      for _, other in ipairs(f.names) do
        local block = other:match("^" .. case .. "%.inter%.(block%d+)$")
        if block then
          wanted[block] = other
        end
      end
      compare(f, result, m, f:tensor(name), f:tensor(case .. ".attention_mask"), wanted)
    end
  end
end

-- buckets of relative positions
local function buckets(f, result)
  local want, differing = f:list("relbucket.bucket"), 0
  local bucket = network.bucket(f:need("relative_buckets"), f:need("max_distance"))
  for i, rel in ipairs(f:list("relbucket.rel")) do
    differing = differing + (bucket(rel) == want[i] and 0 or 1)
  end
  result:exact("buckets", differing)
end

-- the bucket of each key for each query
local function bucket_table(f, result, m)
  local rows, differing = f:tensor("relative_buckets"):totable(), 0
  local n, bucket = f.has["relative_buckets"].shape[1], network.bucket(
    m.sizes.relative_attention_num_buckets, m.sizes.relative_attention_max_distance)
  for i, want in ipairs(rows) do
    local query, key = (i - 1) // n, (i - 1) % n
    differing = differing + (bucket(key - query) == want and 0 or 1)
  end
  result:exact("buckets", differing)
end

local function encoder(f, result)
  local m = build.text_encoder(f, f.has["weight.shared.weight"] and "weight." or "param.", sizes,
    network)
  cases(f, result, m)
  if f.has["input_ids"] then
    compare(f, result, m, f:tensor("input_ids"), nil, {out = "last_hidden_state"})
  end
  if f.has["relative_buckets"] then
    bucket_table(f, result, m)
  end
  if f.has["relbucket.rel"] then
    buckets(f, result)
  end
  if f.has["in.ids"] then
    compare(f, result, m, f:tensor("in.ids"), f:tensor("in.mask"), {out = "out.masked"})
    compare(f, result, m, f:tensor("in.ids"), nil, {out = "out.unmasked"})
  end
end

return {{"^t5_", encoder}}
