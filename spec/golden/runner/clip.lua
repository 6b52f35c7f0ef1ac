--- Reference files about CLIP's text half: states of all places and the vector of each text.
-- @module spec.golden.runner.clip
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local build = require "spec.golden.runner.build"
local clip = require "moonreel.models.clip"
local network = require "moonreel.models.clip.network"
local sizes = require "moonreel.models.clip.sizes"

local VALUES = 1e-5

-- states of all places and vectors of texts
local function outputs(m, ids)
  local B, L = ids.shape[1], ids.shape[2]
  local rows, at = ids:totable(), {}
  for b = 1, B do
    at[b] = (b - 1) * L + clip.end_of(table.move(rows, (b - 1) * L + 1, b * L, 1, {})) - 1
  end
  local g = G.graph(m.params)
  local x = m.words(g, g:input("ids", "i32", {B, L, 1})):reshape{B, 1, L, m.net.width}
  local states = m.net:forward(g, x)
  g:output("states", states)
  g:output("vector", m.net:pooled(states, g:input("at", "i32", {B, 1})))
  g:finish()
  local prog = m.run:compile(g)
  prog:set("ids", T.from({B, L, 1}, rows, "i32"))
  prog:set("at", T.from({B, 1}, at, "i32"))
  prog:run()
  return prog:get "states", prog:get "vector"
end

local function encoder(f, result)
  local oracle = f.has["in.ids"] ~= nil
  local m = build.text_encoder(f, oracle and "weight." or "param.", sizes, network,
    {num_attention_heads = oracle and f:need("config").heads or f:need "heads"})
  local states, vector = outputs(m, f:tensor(oracle and "in.ids" or "input_ids"))
  for name, got in pairs{[oracle and "out.hidden" or "last_hidden_state"] = states,
      [oracle and "out.pooled" or "pooler_output"] = vector} do
    local want = f:tensor(name)
    result:l2(name, got, want, VALUES)
    result:scaled(name .. " at most", got, want, VALUES)
  end
end

return {{"^clip_", encoder}}
