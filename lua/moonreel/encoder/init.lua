--- Runs the calls of an encoder, or plans them. An encoder has parts with their own weights, and a
-- list of calls, each a program of a part with its inputs and results. The result of a call goes to
-- later calls on the device, without waiting, if there is space for it. models/README.md describes
-- what a family provides.
-- @module moonreel.encoder
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local compiled = require "moonreel.nn.compiled"
local nn = require "moonreel.nn"
local schedule = require "moonreel.encoder.schedule"

local encoder = {}

-- compiled programs of a part: a clip takes four at most, and a run has clips of many sizes
local KEPT = 16

local Encoder = {}
Encoder.__index = Encoder

-- ---- parts

-- a part over parameters that are declared
local function part_of(params, exec, layers, row)
  return { params = params, exec = exec, layers = layers, row = row,
    compiled = compiled.new(params, exec, row.kept or KEPT) }
end

-- declare a part; `device` may be options of E.plan: then there are no weights, and nothing runs
local function declared(row, device, dtype)
  local params = G.params(dtype)
  local layers = row.declare(params)
  params:seal()
  local exec = type(device) == "table" and E.plan(params, device) or E.new(device, params, {})
  return part_of(params, exec, layers, row)
end

--- The calls of an encoder with weights of its own.
---@param enc table      of a family: parts(way), calls(job, shape, way)
---@param given table    device, or options of E.plan: then nothing runs; dtype; way: "all" or
---   "stream"; load(part, i): fills a part that is there once (i = nil), or its i-th repetition
---@return mr.Encoder    close it
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

--- The calls of an encoder whose parameters are declared and filled.
---@param enc table
---@param params mr.Params
---@param exec mr.Exec      holds the parameters; borrowed
---@return mr.Encoder
function encoder.over(enc, params, exec)
  local row = enc:parts("all")[1]
  local part = part_of(params, exec, enc, row)
  return setmetatable({ enc = enc, way = "all", parts = { [row.name] = part }, list = { part } },
    Encoder)
end

--- Bytes of the weights that are in memory at once.
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

--- Give back programs, and weights where they are its own; harmless twice.
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

-- the program of a call and its key
local function program(self, call)
  local part = self.parts[call.part]
  return part.compiled:get(call.key, function(g)
    local inputs = {}
    for _, name in ipairs(schedule.sorted(call.takes)) do
      inputs[name] = g:input(name, call.takes[name].dtype, call.takes[name].shape)
    end
    return call.nodes(g, part.layers, inputs)
  end)
end

-- the name of a call's program among all parts
local function name_of(call) return call.part .. " " .. call.key end

-- programs that a list needs stay while it runs
local function make_place(self, calls)
  local seen, count = {}, {}
  for _, call in ipairs(calls) do
    local name = name_of(call)
    count[call.part] = (count[call.part] or 0) + (seen[name] and 0 or 1)
    seen[name] = true
  end
  for name, part in pairs(self.parts) do
    part.compiled.most = math.max(part.row.kept or KEPT, count[name] or 0)
  end
end

--- What runs for a job: every program once, with how often it runs.
---@param job string
---@param shape table     as calls of the encoder take it
---@return table[] rows   {prog, runs, part: its name}; kept: most bytes of the host's memory for
---   what lies between programs
function Encoder:plan(job, shape)
  local calls, rows, at = self.enc:calls(job, shape, self.way), {}, {}
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

--- Working bytes of planned programs: a part has one arena, that of its largest; inputs and results
-- are each program's own.
---@param rows table[]  of Encoder:plan
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

-- elements of a row of an input
local function row_size(call, input)
  local shape = call.takes[input].shape
  return T.count(shape) // shape[1]
end

-- the host's copy of an input that no program has place for yet
local function held(self, piece)
  local key = piece.to .. " " .. piece.input
  local take = self.calls[piece.to].takes[piece.input]
  self.held[key] = self.held[key] or T.new(take.dtype, { take.shape[1],
    row_size(self.calls[piece.to], piece.input) })
  return self.held[key]
end

-- bring a piece to the host
local function fetch(self, piece)
  local size = row_size(self.calls[piece.to], piece.input)
  local all <close> = self.programs[piece.from]:get(piece.output)
  local rows = T.count(all.shape) // size
  held(self, piece):slice(0, piece.at, piece.at + piece.n):copy_from(
    all:reshape { rows, size }:slice(0, piece.first, piece.first + piece.n))
end

-- give a piece to the program of its call, which is the next to run of that program
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

-- is a call the next of its program?
local function is_next(self, i)
  local queue = self.queues[name_of(self.calls[i])]
  return queue[queue.at] == i
end

-- hand on what has a place now, and keep the rest
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

-- what still lies in a program that is about to run goes to the host
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

-- the inputs that do not come from a program
local function set_inputs(self, i, prog)
  local call = self.calls[i]
  for _, input in ipairs(self.brought[i]) do
    local name, first = table.unpack(call.takes[input], 1, 2)
    local shape = call.takes[input].shape
    local value = self.values[name]
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

-- the weights of a repetition
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

--- Run calls in their order.
---@param calls table[]   of the encoder; values: tensors by name that they bring themselves
---@param values table    tensors by name that no call gives; rows are their first axis
---@param wanted table    names of values: {z = true}
---@param take fun(prog: mr.Program, output: string, first: integer, n: integer, value: string)
---   when rows of a wanted value are about to be an output of a program
function Encoder:run(calls, values, wanted, take)
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
