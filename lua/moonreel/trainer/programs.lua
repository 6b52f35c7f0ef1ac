--- Compiled micro-steps by the key of their shape. A micro-step is compiled when it is first
-- needed. The least recently used ones are closed before all together exceed a number of bytes. A
-- shape that is compiled again computes the same bits.
-- @module moonreel.trainer.programs
local base = require "moonreel.core.base"
local largest = require "moonreel.trainer.largest"
local options = require "moonreel.text.options"
local program = require "moonreel.trainer.program"
local recompute = require "moonreel.trainer.recompute"

local programs = {}

local Programs = {}
Programs.__index = Programs

local read_options = options.declare("programs.new", {
  { "most_bytes", "integer", "limit of all kept micro-steps; the newest is always kept" },
  { "config", "table", "grad_checkpoint, grad_ckpt_settings", default = {} },
  { "room", "function", "bytes that a shape may use, without programs; absent: \"auto\" "
    .. "recomputes nothing" },
  { "choices", "table", "choices of recomputation of the run that is continued" },
  { "ranks", "mr.Ranks", "they communicate in micro-steps, in the same way for all shapes" },
  { "timed", "boolean", "measure every op", default = false },
  { "say", "function", "called with a line when the first one is closed",
    default = function() end },
})

--- Makes an empty cache.
---@param exec mr.Exec
---@param plans mr.Exec  plans programs for the device and regions of exec
---@param pipe mr.Pipeline
---@param given table  most_bytes, config, ranks, timed, say
---@return mr.Programs  with compiled: number of compiled programs, again: how many of these had
---   been closed before, and bytes: of those kept
function programs.new(exec, plans, pipe, given)
  return setmetatable({exec = exec, plans = plans, pipe = pipe, options = read_options(given),
    kept = {}, closed = {}, clock = 0, bytes = 0, shared = 0, compiled = 0, again = 0,
    choices = {}}, Programs)
end

-- the own bytes of a program; arena, regions and staging belong to the executor
local function bytes_of(prog)
  local m = prog:memory()
  return m.inputs + m.staged + m.results + m.consts + m.host - m.staging
end

-- the bytes that all programs of an executor use in turn, as large as the largest needs
local function shared_of(prog)
  local m = prog:memory()
  return m.arena + m.landing
end

-- ---- recomputation ----

-- does the run choose what is recomputed?
local function open_choice(self) return self.options.config.grad_ckpt_settings == "auto" end

-- plans the graph of a shape with a choice, and calls f with the program
local function probe(self, shape, choice, f)
  local graph <close> = program.graph(self.pipe, shape, program.chosen(self.options.config, choice))
  local planned <close> = self.plans:compile(graph)
  return f(planned)
end

local function takes_of(planned) return shared_of(planned) + bytes_of(planned) end

-- bytes, and operations that are recomputed
local function measured(planned)
  return takes_of(planned), recompute.operations(planned:kinds())
end

-- does a shape fit with a choice?
local function fits(self, shape, choice)
  return probe(self, shape, choice, takes_of) <= self.options.room(shape) + self.shared
end

-- the first choice that fits, and its number
local function choose(self, shape)
  local choices = recompute.new(program.blocks(self.pipe, shape, self.options.config),
    function(choice) return probe(self, shape, choice, measured) end)
  return choices:first(function(choice) return fits(self, shape, choice) end)
end

--- What the micro-step of a shape recomputes, if the run chooses that. The choice is made when it
-- is first needed. A resumed run uses its earlier choice while that fits.
---@param shape table
---@return integer[]|boolean|nil choice  of moonreel.trainer.recompute; nil: the recipe decides
function Programs:choice(shape)
  if not open_choice(self) then
    return nil
  end
  local key = self.choices.all == nil and program.key(shape) or "all"
  if self.choices[key] == nil then
    local before = (self.options.choices or {})[key]
    if not self.options.room then
      self.choices[key] = false
    elseif before ~= nil and fits(self, shape, before) then
      self.choices[key] = before
    else
      self.choices[key] = choose(self, shape)
    end
  end
  return self.choices[key]
end

--- The choices by shape, for the record of a run; nil if the recipe decides.
---@return table<string, integer[]|boolean>|nil
function Programs:record()
  local record = {}
  for _, choices in ipairs { self.options.choices or {}, self.choices } do
    for key, choice in pairs(choices) do
      record[key] = choice
    end
  end
  return open_choice(self) and next(record) and record or nil
end

-- is any rank's number different from zero?
local function any(team, number)
  for _, row in ipairs(team:all { number }) do
    number = math.max(number, row[1])
  end
  return number ~= 0
end

--- Makes one choice for all shapes, if ranks run different shapes at a time and have to use weights
-- in the same order: that of the shape and the rank that need most.
---@param shapes table[]  one of them needs most
---@param team mr.Team
function Programs:agree(shapes, team)
  if not open_choice(self) then
    return
  end
  local before, short = (self.options.choices or {}).all, 0
  for _, shape in ipairs(before ~= nil and shapes or {}) do
    short = fits(self, shape, before) and short or 1
  end
  if before ~= nil and not any(team, short) then
    self.choices.all = before
    return
  end
  local most = {0, 0, 0}
  for _, shape in ipairs(shapes) do
    local choice, n = choose(self, shape)
    most = n > most[1] and {n, choice[1], choice[2]} or most
  end
  for _, row in ipairs(team:all(most)) do
    most = row[1] > most[1] and row or most
  end
  self.choices.all = most[1] > 0 and {math.tointeger(most[2]), math.tointeger(most[3])}
end

-- the config of the graphs of a shape
local function config_of(self, shape)
  local choice = self:choice(shape)
  return choice == nil and self.options.config or program.chosen(self.options.config, choice)
end

-- ---- programs that are kept ----

-- the kept micro-step that was not used for the longest time
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
    self.options.say(("program of %s closed: programs need more than %d MiB (programs_bytes); the "
      .. "end of the log says how often that happened"):format(step.key,
      self.options.most_bytes // 2^20))
  end
  self.closed[step.key] = true
  step:close()
end

-- closes micro-steps until one of this graph can be kept, too
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

-- Ranks run micro-steps of different shapes at a time, and a rank without a batch runs none. But
-- all of them must communicate the same, in the same order.
local function listen(self, key, graph)
  local op_log, team = graph:op_log(), self.options.ranks
  if not self.op_log then
    local echo = team:echo(self.pipe.params, graph, self.options.config.reduce ~= nil)
    self.op_log, self.first, self.echo = op_log, key, self.exec:compile(echo)
  elseif op_log ~= self.op_log then
    base.raise("MR_E_RECIPE", ("ranks cannot share weights: %s uses them in another order than %s "
      .. "(%s; %s); try: plugin_config.zero_stage = 2"):format(key, self.first, op_log,
      self.op_log))
  end
end

--- Takes part in the communication of a micro-step, on a rank that has no batch.
function Programs:idle()
  self.echo:run()
end

-- compiles the micro-step of a shape
local function add(self, key, shape)
  self.again = self.again + (self.closed[key] and 1 or 0)
  local config = config_of(self, shape)
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
---@param shape table  from Feed:shape
---@return mr.MicroStep  valid until the next call
function Programs:get(shape)
  local key = program.key(shape)
  local step = self.kept[key] or add(self, key, shape)
  self.clock = self.clock + 1
  step.used = self.clock
  return step
end

--- Plans the memory of the micro-step of a shape. Nothing is compiled for the device.
---@param shape table
---@return table  as mr.Program memory()
function Programs:planned(shape)
  local graph <close> = program.graph(self.pipe, shape, config_of(self, shape))
  local planned <close> = self.plans:compile(graph)
  return planned:memory()
end

--- Bytes that the micro-step of a shape needs without parameters and their state. If the run
-- chooses what is recomputed, these are the fewest bytes. Nothing is compiled for the device.
---@param shape table
---@return integer
function Programs:takes(shape)
  local config = self.options.config
  if open_choice(self) then
    config = program.chosen(config, program.blocks(self.pipe, shape, config))
  end
  local graph <close> = program.graph(self.pipe, shape, config)
  local planned <close> = self.plans:compile(graph)
  return takes_of(planned)
end

--- For a shape that does not fit: bytes that it needs without parameters and their state, bytes
-- that it may use, and the largest batch of the same frames and size that fits these.
---@param shape table
---@param free integer  bytes that are free on the device now
---@return integer takes
---@return integer there
---@return integer batch  0: not even one sample
function Programs:shortage(shape, free)
  local there = free + self.shared
  local function takes(batch)
    return self:takes(setmetatable({batch = batch}, {__index = shape}))
  end
  return takes(shape.batch), there, largest(takes, there, shape.batch // 2, shape.batch - 1)
end

--- All kept micro-steps, in the order of their keys.
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
