--- Compiled micro-steps by the key of their shape: compiled when first asked for, the least
-- recently used closed before they pass a bound in bytes. What a shape that comes back computes is
-- the same.
-- @module moonreel.trainer.programs
local base = require "moonreel.core.base"
local largest = require "moonreel.trainer.largest"
local options = require "moonreel.text.options"
local program = require "moonreel.trainer.program"

local programs = {}

local Programs = {}
Programs.__index = Programs

local read_options = options.declare("programs.new", {
  { "most_bytes", "integer", "of all kept micro-steps; the newest is kept in any case" },
  { "config", "table", "grad_checkpoint, grad_ckpt_settings", default = {} },
  { "ranks", "mr.Ranks", "what they tell each other in micro-steps is the same in all" },
  { "timed", "boolean", "measure every op", default = false },
  { "say", "function", "takes a line when the first one is closed",
    default = function() end },
})

--- An empty cache.
---@param exec mr.Exec
---@param plans mr.Exec  plans for the device and regions of exec
---@param pipe mr.Pipeline
---@param given table  most_bytes, config, ranks, timed, say
---@return mr.Programs  with compiled: how many were, again: how many of these had been closed, and
---   bytes: of those kept
function programs.new(exec, plans, pipe, given)
  return setmetatable({exec = exec, plans = plans, pipe = pipe, options = read_options(given),
    kept = {}, closed = {}, clock = 0, bytes = 0, shared = 0, compiled = 0, again = 0}, Programs)
end

-- what a program takes for itself; arena, regions and staging belong to the executor
local function bytes_of(prog)
  local m = prog:memory()
  return m.inputs + m.staged + m.results + m.consts + m.host - m.staging
end

-- what all programs of an executor use one after the other, as large as the largest needs
local function shared_of(prog)
  local m = prog:memory()
  return m.arena + m.landing
end

-- the kept micro-step whose last use is longest ago
local function oldest(self)
  local found
  for _, step in pairs(self.kept) do
    if not found or step.used < found.used then
      found = step
    end
  end
  return found
end

function Programs:drop(step)
  self.kept[step.key], self.bytes = nil, self.bytes - step.bytes
  if not next(self.closed) then
    self.options.say(("program of %s closed: programs take more than %d MiB (programs_bytes); the "
      .. "end says how often that was"):format(step.key, self.options.most_bytes // 2^20))
  end
  self.closed[step.key] = true
  step:close()
end

-- close as many as it takes to keep one of this graph, too
local function make_room(self, graph)
  if not next(self.kept) then
    return
  end
  local planned <close> = self.plans:compile(graph)
  local bytes = bytes_of(planned)
  while next(self.kept) and self.bytes + bytes > self.options.most_bytes do
    self:drop(oldest(self))
  end
end

-- Ranks run micro-steps of different shapes at a time, and one that has no batch none: all of them
-- tell each other the same, in the same order.
local function listen(self, key, graph)
  local story, team = graph:story(), self.options.ranks
  if not self.story then
    local echo = team:echo(self.pipe.params, graph, self.options.config.reduce ~= nil)
    self.story, self.first, self.echo = story, key, self.exec:compile(echo)
  elseif story ~= self.story then
    base.raise("MR_E_RECIPE", ("ranks cannot share weights: %s uses them in another order than %s "
      .. "(%s; %s); try: plugin_config.zero_stage = 2"):format(key, self.first, story, self.story))
  end
end

--- Run what a rank runs that has no batch while others have one.
function Programs:idle()
  self.echo:run()
end

-- compile for a shape
local function add(self, key, shape)
  self.again = self.again + (self.closed[key] and 1 or 0)
  local config = self.options.config
  local graph = program.graph(self.pipe, shape, config)
  if self.options.ranks then
    listen(self, key, graph)
  end
  make_room(self, graph)
  local step = program.new(self.exec, self.pipe, shape, config, graph)
  if self.options.timed then
    step.prog:time(true)
  end
  step.bytes, self.compiled = bytes_of(step.prog), self.compiled + 1
  self.shared = math.max(self.shared, shared_of(step.prog))
  self.bytes, self.kept[key] = self.bytes + step.bytes, step
  return step
end

--- The micro-step of a shape.
---@param shape table  of Feed:shape
---@return mr.MicroStep  valid until the next call
function Programs:get(shape)
  local key = program.key(shape)
  local step = self.kept[key] or add(self, key, shape)
  self.clock = self.clock + 1
  step.used = self.clock
  return step
end

--- Memory of the micro-step of a shape. Nothing is compiled for the device.
---@param shape table
---@return table  as mr.Program memory()
function Programs:planned(shape)
  local graph <close> = program.graph(self.pipe, shape, self.options.config)
  local planned <close> = self.plans:compile(graph)
  return planned:memory()
end

--- Bytes that the micro-step of a shape takes beside parameters and their state. Nothing is
-- compiled for the device.
---@param shape table
---@return integer
function Programs:takes(shape)
  local planned <close> = self.plans:compile(program.graph(self.pipe, shape, self.options.config))
  return shared_of(planned) + bytes_of(planned)
end

--- Of a shape that does not fit: bytes that it takes beside parameters and their state, bytes that
-- there are for it, and the largest batch of the same frames and size that takes no more.
---@param shape table
---@param free integer  bytes that are free on the device now
---@return integer takes
---@return integer there
---@return integer batch  0: not even one
function Programs:shortage(shape, free)
  local there = free + self.shared
  local function takes(batch)
    return self:takes(setmetatable({batch = batch}, {__index = shape}))
  end
  return takes(shape.batch), there, largest(takes, there, shape.batch // 2, shape.batch - 1)
end

--- All that are kept, in the order of their keys.
---@return mr.MicroStep[]
function Programs:list()
  local list = {}
  for _, step in pairs(self.kept) do
    list[#list + 1] = step
  end
  table.sort(list, function(a, b) return a.key < b.key end)
  return list
end

return programs
