--- Programs of layers by the key of their sizes, compiled on first use; beyond the limit the least
-- recently used one is closed.
-- @module moonreel.nn.compiled
local G = require "moonreel.core.graph"

local compiled = {}

local Compiled = {}
Compiled.__index = Compiled

--- Makes an empty cache.
---@param params mr.Params
---@param exec mr.Exec   has the parameters; borrowed, like params
---@param most integer   largest number of kept programs
---@return mr.Compiled   with programs: those kept, by key
function compiled.new(params, exec, most)
  return setmetatable({ params = params, exec = exec, most = most, programs = {}, clock = 0 },
    Compiled)
end

-- closes the least recently used programs until one more can be kept
local function make_room(self)
  local keys = {}
  for key in pairs(self.programs) do
    keys[#keys + 1] = key
  end
  table.sort(keys, function(a, b) return self.programs[a].used < self.programs[b].used end)
  for i = 1, #keys + 1 - self.most do
    local one = self.programs[keys[i]]
    self.programs[keys[i]] = nil
    one.prog:close()
    one.graph:close()
  end
end

-- one result is called "out"; several have names
local function add_outputs(g, results)
  if type(results) ~= "table" then
    g:output("out", results)
    return
  end
  local names = {}
  for name in pairs(results) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    g:output(name, results[name])
  end
end

--- The program of a key, kept until `most` others were used. A single result is its output "out",
-- several results are a table. Errors of `build` and of the compiler pass through; then no program
-- is kept.
---@param key string
---@param build fun(g: mr.Graph): mr.Value|table<string, mr.Value>  adds the nodes
---@return mr.Program
function Compiled:get(key, build)
  local one = self.programs[key]
  if not one then
    local g = G.graph(self.params, { edges = self.exec:edges() })
    add_outputs(g, build(g))
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
