--- Runs or plans the calls of an encoder. An encoder has parts with their own weights, and a list
-- of calls; each call is a program of a part, with inputs and results. The result of a call is
-- passed to later calls on the device, without waiting, if there is space for it. models/README.md
-- describes what a family provides.
-- @module moonreel.encoder
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local compiled = require "moonreel.nn.compiled"
local nn = require "moonreel.nn"
local schedule = require "moonreel.encoder.schedule"

local encoder = {}

--- The most compiled programs of a part that are kept; a clip needs up to four, and a run has
-- clips of many sizes.
encoder.KEPT = 16

local Encoder = {}
Encoder.__index = Encoder

-- ---- parts

-- makes a part of declared parameters
local function part_of(params, exec, layers, row)
  return { params = params, exec = exec, layers = layers, row = row,
    compiled = compiled.new(params, exec, row.kept or encoder.KEPT) }
end

-- declares a part; if `device` is a table of options of E.plan, there are no weights and nothing
-- runs
local function declared(row, device, dtype)
  local params = G.params(dtype)
  local layers = row.declare(params)
  params:seal()
  local exec = type(device) == "table" and E.plan(params, device) or E.new(device, params, {})
  return part_of(params, exec, layers, row)
end

--- Creates an encoder with separate weights.
---@param enc table      encoder of a family: parts(way), calls(job, shape, way)
---@param given table    device, or options of E.plan to run nothing; dtype; way: "all" or "stream";
---   load(part, i): fills a part (i = nil), or its i-th repetition
---@return mr.Encoder    the caller closes it
function encoder.new(enc, given)
  local self = setmetatable({ enc = enc, way = given.way or "all", parts = {}, list = {},
    load = given.load, own = true }, Encoder)
  local good, problem = pcall(function()
    for i, row in ipairs(enc:parts(self.way)) do
      local part = declared(row, given.device, given.dtype)
      self.list[i], self.parts[row.name] = part, part
      if given.load and not row.repeats then
        given.load(part)
      end
    end
  end)
  if not good then
    self:close()
    error(problem, 0)
  end
  return self
end

--- Creates an encoder whose parameters are declared and filled.
---@param enc table
---@param params mr.Params
---@param exec mr.Exec      contains the parameters; the caller closes it
---@return mr.Encoder
function encoder.over(enc, params, exec)
  local row = enc:parts("all")[1]
  local part = part_of(params, exec, enc, row)
  return setmetatable({ enc = enc, way = "all", parts = { [row.name] = part }, list = { part } },
    Encoder)
end

--- The bytes of weights that are in memory at once.
---@return integer
function Encoder:weight_bytes()
  local bytes = 0
  for _, part in ipairs(self.list) do
    for _, row in ipairs(part.exec:regions()) do
      bytes = bytes + row.bytes
    end
  end
  return bytes
end

--- Frees programs, and weights if they are separate. It may be called twice.
function Encoder:close()
  for _, part in ipairs(self.list) do
    part.compiled.programs = {}
    if self.own then
      part.exec:close()
    end
  end
end
Encoder.__close = Encoder.close

-- ---- programs

-- refuses a call whose nodes lack an output that it gives
local function check_outputs(call, outputs)
  for _, name in ipairs(schedule.sorted(call.gives)) do
    local value = name == "out" and type(outputs) == "userdata" and outputs
      or type(outputs) == "table" and outputs[name]
    if type(value) ~= "userdata" then
      base.raise("MR_E_USAGE", ("call '%s' of an encoder gives '%s', but its nodes return %s for "
        .. "it; expected a value of the graph"):format(call.key, name, type(value or nil)))
    end
  end
  return outputs
end

-- the program of a call, and its key
local function program(self, call)
  local part = self.parts[call.part]
  return part.compiled:get(call.key, function(g)
    local inputs = {}
    for _, name in ipairs(schedule.sorted(call.takes)) do
      inputs[name] = g:input(name, call.takes[name].dtype, call.takes[name].shape)
    end
    return check_outputs(call, call.nodes(g, part.layers, inputs))
  end)
end

-- the name of a call's program, unique among all parts
local function name_of(call) return call.part .. " " .. call.key end

-- frees old programs, but keeps those that a list of calls needs
local function make_place(self, calls)
  local seen, count = {}, {}
  for _, call in ipairs(calls) do
    local name = name_of(call)
    count[call.part] = (count[call.part] or 0) + (seen[name] and 0 or 1)
    seen[name] = true
  end
  for name, part in pairs(self.parts) do
    part.compiled.most = math.max(part.row.kept or encoder.KEPT, count[name] or 0)
  end
end

--- Lists the programs of a job, each once with the number of its runs.
---@param job string
---@param shape table     arguments of the encoder's calls
---@return table[] rows   {prog, runs, part: its name}; kept: the most bytes of host memory for
---   values between programs
function Encoder:plan(job, shape)
  local calls, rows, at = self.enc:calls(job, shape, self.way), {}, {}
  schedule.check(calls, self.parts)
  rows.kept = schedule.held(calls, name_of)
  make_place(self, calls)
  for _, call in ipairs(calls) do
    local name = name_of(call)
    if not at[name] then
      at[name] = { prog = program(self, call), runs = 0, part = call.part }
      rows[#rows + 1] = at[name]
    end
    at[name].runs = at[name].runs + 1
  end
  return rows
end

--- The working memory of planned programs in bytes. A part has one arena, of the size of its
-- largest program; inputs and results belong to each program.
---@param rows table[]  result of Encoder:plan
---@return integer
function encoder.working_bytes(rows)
  local arena, bytes = {}, 0
  for _, row in ipairs(rows) do
    local m = row.prog:memory()
    arena[row.part] = math.max(arena[row.part] or 0, m.arena)
    bytes = bytes + m.inputs + m.results + m.consts
  end
  for _, one in pairs(arena) do
    bytes = bytes + one
  end
  return bytes
end

-- ---- a run of calls

local Run = {}
Run.__index = Run

-- the number of elements in a row of an input
local function row_size(call, input)
  local shape = call.takes[input].shape
  return T.count(shape) // shape[1]
end

-- the host copy of an input for which no program has space yet
local function held(self, piece)
  local key = piece.to .. " " .. piece.input
  local take = self.calls[piece.to].takes[piece.input]
  self.held[key] = self.held[key] or T.new(take.dtype, { take.shape[1],
    row_size(self.calls[piece.to], piece.input) })
  return self.held[key]
end

-- copies a piece to the host
local function fetch(self, piece)
  local size = row_size(self.calls[piece.to], piece.input)
  local all <close> = self.programs[piece.from]:get(piece.output)
  local rows = T.count(all.shape) // size
  held(self, piece):slice(0, piece.at, piece.at + piece.n):copy_from(
    all:reshape { rows, size }:slice(0, piece.first, piece.first + piece.n))
end

-- passes a piece to the program of its call, which is the next call of this program
local function pass(self, piece)
  local call = self.calls[piece.to]
  if self.held[piece.to .. " " .. piece.input] then
    fetch(self, piece)
    return
  end
  local size = row_size(call, piece.input)
  self.programs[piece.from]:pass(piece.output, piece.first * size, piece.n * size,
    program(self.encoder, call), piece.input, piece.at * size)
end

-- is a call the next one of its program?
local function is_next(self, i)
  local queue = self.queues[name_of(self.calls[i])]
  return queue[queue.at] == i
end

-- passes on the pieces for which there is space now, and keeps the rest
local function settle(self)
  local rest = {}
  for _, piece in ipairs(self.pending) do
    if is_next(self, piece.to) then
      pass(self, piece)
    else
      rest[#rest + 1] = piece
    end
  end
  self.pending = rest
end

-- copies pieces that are still in a program to the host, before the program runs again
local function clear(self, name)
  local rest = {}
  for _, piece in ipairs(self.pending) do
    if name_of(self.calls[piece.from]) == name then
      fetch(self, piece)
    else
      rest[#rest + 1] = piece
    end
  end
  self.pending = rest
end

-- sets the inputs that do not come from a program
local function set_inputs(self, i, prog)
  local call = self.calls[i]
  for _, input in ipairs(self.brought[i]) do
    local name, first = table.unpack(call.takes[input], 1, 2)
    local shape = call.takes[input].shape
    local value = self.values[name]
    if not value then
      base.raise("MR_E_USAGE", ("call %d of an encoder: input '%s' takes '%s', which no call "
        .. "before it gives; values without a call: %s"):format(i, input, name,
        table.concat(schedule.sorted(self.values), ", ")))
    end
    local rows = value:slice(0, first, first + shape[1])
    prog:set(input, #value.shape == #shape and rows or rows:reshape(shape))
  end
  for _, input in ipairs(schedule.sorted(call.takes)) do
    local key = i .. " " .. input
    if self.held[key] then
      prog:set(input, self.held[key]:reshape(call.takes[input].shape))
      self.held[key] = nil
    end
  end
end

-- loads the weights of a repetition
local function load_weights(self, call)
  local part = self.encoder.parts[call.part]
  if part.row.repeats and part.loaded ~= call.index then
    part.exec:sync()
    self.encoder.load(part, call.index)
    part.loaded = call.index
  end
end

local function run_call(self, i, take)
  local call = self.calls[i]
  local name = name_of(call)
  clear(self, name)
  local prog = program(self.encoder, call)
  self.programs[i] = prog
  set_inputs(self, i, prog)
  load_weights(self, call)
  prog:run()
  local queue = self.queues[name]
  queue.at = queue.at + 1
  table.move(self.leaves[i], 1, #self.leaves[i], #self.pending + 1, self.pending)
  settle(self)
  for _, output in ipairs(schedule.sorted(call.gives)) do
    local value, first, n = table.unpack(call.gives[output])
    if self.wanted[value] then
      take(prog, output, first, n, value)
    end
  end
end

-- refuses calls none of which gives a value that the caller wants
local function check_wanted(calls, wanted)
  local given = {}
  for _, call in ipairs(calls) do
    for _, gives in pairs(call.gives) do
      given[gives[1]] = true
    end
  end
  for _, value in ipairs(schedule.sorted(wanted)) do
    if not given[value] then
      base.raise("MR_E_USAGE", ("no call of an encoder gives '%s'; values that calls give: %s")
        :format(value, table.concat(schedule.sorted(given), ", ")))
    end
  end
end

--- Runs calls in order.
---@param calls table[]   calls of the encoder; values: tensors by name that the calls provide
---   themselves
---@param values table    tensors by name that no call computes; rows are their first axis
---@param wanted table    names of values: {z = true}
---@param take fun(prog: mr.Program, output: string, first: integer, n: integer, value: string)
---   called before a program writes rows of a wanted value to an output
function Encoder:run(calls, values, wanted, take)
  schedule.check(calls, self.parts)
  check_wanted(calls, wanted)
  local leaves, brought = schedule.of(calls)
  local run = setmetatable({ encoder = self, calls = calls, wanted = wanted, leaves = leaves,
    values = nn.merged(calls.values or {}, values), brought = brought,
    queues = schedule.queues(calls, name_of), programs = {}, pending = {}, held = {} }, Run)
  make_place(self, calls)
  for i in ipairs(calls) do
    run_call(run, i, take)
  end
end

return encoder
