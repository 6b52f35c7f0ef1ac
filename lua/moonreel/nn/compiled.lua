--- Programs of layers by the key of their sizes: compiled when first asked for; of more than the
-- kept number, the one whose last use is longest ago is closed.
-- @module moonreel.nn.compiled
local G = require "moonreel.core.graph"

local compiled = {}

local Compiled = {}
Compiled.__index = Compiled

--- None so far.
---@param params mr.Params
---@param exec mr.Exec   holds the parameters; borrowed, like params
---@param most integer   programs that are kept
---@return mr.Compiled   with programs: those kept, by key
function compiled.new(params, exec, most)
  return setmetatable({ params = params, exec = exec, most = most, programs = {}, clock = 0 },
    Compiled)
end

local function make_room(self)
  local oldest, count = nil, 0
  for key, one in pairs(self.programs) do
    count = count + 1
    if not oldest or one.used < self.programs[oldest].used then
      oldest = key
    end
  end
  if count >= self.most then
    local one = self.programs[oldest]
    self.programs[oldest] = nil
    one.prog:close()
    one.graph:close()
  end
end

--- The program of a key, kept until `most` others were asked for; its result is its output "out".
-- Errors of `build` and of the compiler pass through, and nothing is kept then.
---@param key string
---@param build fun(g: mr.Graph): mr.Value  adds the nodes
---@return mr.Program
function Compiled:get(key, build)
  local one = self.programs[key]
  if not one then
    local g = G.graph(self.params)
    g:output("out", build(g))
    g:finish()
    make_room(self)
    one = { graph = g, prog = self.exec:compile(g) }
    self.programs[key] = one
  end
  self.clock = self.clock + 1
  one.used = self.clock
  return one.prog
end

return compiled
