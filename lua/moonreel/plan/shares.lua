--- State that one rank of a mesh keeps and sends: a parameter table divided for these ranks as in a
-- run, and the graphs of a run over it. Nothing runs. Ref: reference parallelism 1.
-- @module moonreel.plan.shares
local E = require "moonreel.core.exec"
local clips = require "moonreel.comm.clips"
local layout = require "moonreel.comm.mesh"
local optim = require "moonreel.optim"
local pipeline = require "moonreel.models.pipeline"
local ranks = require "moonreel.optim.ranks"
local regions = require "moonreel.optim.regions"
local sequence = require "moonreel.nn.sequence"
local state = require "moonreel.trainer.state"

local shares = {}

-- a communicator of `size` ranks of which this is the first; it knows its size and sends nothing
local function silent(size)
  local comm = {}
  function comm.rank() return 0 end
  function comm.size() return size end
  function comm.op_group() return 0 end
  function comm.split() return comm end
  return comm
end

--- The ranks that share tokens, in the form that a graph takes.
---@param settings table
---@param mesh moonreel.plan.Mesh
---@param heads integer|nil
---@return mr.Sequence|nil  nil if no tokens are shared
function shares.sequence(settings, mesh, heads)
  if mesh.sequence == 1 or mesh.clips then
    return nil
  end
  local shape = layout.shape(settings, mesh.ranks, heads, mesh.gpus, mesh.sequence, mesh.layers)
  -- a GPU exchanges heads while it computes, as in moonreel.comm.mesh
  shape.groups = mesh.machine.cpu and 1 or 2
  return sequence.new(shape)
end

--- Shares the clips of an autoencoder that trains, as one of the ranks with neighbours on both
-- sides, if there is one.
---@param settings table
---@param mesh moonreel.plan.Mesh
---@param auto mr.Autoencoder
function shares.clips(settings, mesh, auto)
  if mesh.clips and mesh.sequence > 1 then
    clips.share(settings, auto, clips.of(settings), { ranks = mesh.sequence,
      rank = mesh.sequence > 2 and 1 or 0, trains = true })
  end
end

--- Can ranks share the layers of a run's model?
---@param settings table
---@param layers integer  ranks that share each of them
---@return boolean
function shares.layers(settings, layers)
  return layers == 1 or (pcall(function()
    local split = layout.split(settings, 0, layers)
    state.check_scales(settings, pipeline.of(settings, "bf16", nil, split).params, layers)
  end))
end

--- Bytes of the first input of a step.
---@param row table  from mr.Program times()
---@return integer
function shares.bytes_of(row)
  local dims, dtype = row.shapes:match "^%[(.-)%] (%w+)"
  local bytes = dtype == "bf16" and 2 or 4
  for n in dims:gmatch "%d+" do
    bytes = bytes * math.tointeger(n)
  end
  return bytes
end

-- ops by which ranks exchange tokens, gradients and weights
local EXCHANGES = { all_to_all = true, shift = true, gather_shares = true, reduce_scatter = true,
  gather = true }

--- Do ranks communicate in a step?
---@param row table  from mr.Program times()
function shares.exchanges(row) return EXCHANGES[row.op] == true end

--- The rows that a rank computes in a micro-step, without those that send to others.
---@param rows table[]   from mr.Program times() or kinds(), of a rank's own graph
---@return table[]
function shares.computed(rows)
  local list = {}
  for _, row in ipairs(rows) do
    list[#list + 1] = not EXCHANGES[row.op] and row or nil
  end
  return list
end

--- Bytes that a rank sends in a micro-step to the ranks that share its tokens or its layers.
---@param rows table[]   from mr.Program times() or kinds(), of its own graph
---@return number
function shares.sent(rows)
  local sent = 0
  for _, row in ipairs(rows) do
    local count = row.count or 1
    if row.op == "all_to_all" then
      sent = sent + count * shares.bytes_of(row) * (row.ranks - 1) / row.ranks
    elseif row.op == "shift" then
      sent = sent + count * shares.bytes_of(row)
    elseif row.op == "gather_shares" then
      sent = sent + count * shares.bytes_of(row) * (row.ranks - 1)
    end
  end
  return sent
end

--- The number of communications of a rank in a step, or in a program of an encoder.
---@param rows table[]   from mr.Program times() or kinds(), of its own graph
---@return integer
function shares.calls(rows)
  local calls = 0
  for _, row in ipairs(rows) do
    calls = calls + (EXCHANGES[row.op] and (row.count or 1) or 0)
  end
  return calls
end

local Rank = {}
Rank.__index = Rank

--- The first rank of a mesh with several.
---@param settings table
---@param mesh moonreel.plan.Mesh
---@param models table     from moonreel.plan.compiled
---@param given table      facts of the device, rates: for E.plan
---@return moonreel.plan.Rank  pipe, team, exec: for compiling its graphs; reduces: every micro-step
---   ends with the reduction; update: memory of its optimizer's step; saved: bytes of a checkpoint
---   that it writes
function shares.rank(settings, mesh, models, given)
  local pipe = pipeline.of(settings, models.dtype, ranks.cut(settings, mesh.ranks, mesh.layers),
    layout.split(settings, 0, mesh.layers))
  state.check_scales(settings, pipe.params, mesh.layers)
  local team = ranks.new(pipe.params, silent(mesh.ranks // mesh.layers), {
    local_ranks = mesh.gpus // mesh.layers, stage = mesh.zero, all = silent(mesh.ranks),
    whole = mesh:keeps_gradients(settings) })
  local exec = E.plan(pipe.params, { facts = given.facts, rates = given.rates,
    regions = regions.of(settings, team, models.dtype, nil, pipe.params) })
  local self = setmetatable({ pipe = pipe, team = team, exec = exec }, Rank)
  self.reduces = team.gradients or mesh:micros(settings) <= mesh.data
  local update = optim.new(exec, pipe.params, team, self.reduces,
    { rule = optim.rule(settings) })
  self.update = update.prog:memory()
  update.prog:close()
  update.graph:close()
  self.saved = state.saved_bytes(exec, pipe.params,
    state.share(pipe.params, team))
  return self
end

--- The state that it keeps and sends.
---@param op_log string     communication of a micro-step
---@param rounds integer   micro-steps of a rank in a step
---@return table bytes     from mr.Ranks bytes()
function Rank:bytes(op_log, rounds)
  return self.team:bytes(self.exec:regions(), op_log, rounds)
end

--- The bytes at the peak of a micro-step that are copies of other ranks' state.
---@param live table[]     from mr.Program live()
---@return integer windows of gathered weights
---@return integer buckets of gradients before they are reduced
function Rank:shared(live)
  local bytes = { gather = 0, zeros = 0 }
  for _, row in ipairs(live) do
    bytes[row.op] = bytes[row.op] and bytes[row.op] + row.bytes
  end
  return self.team.weights and bytes.gather or 0, self.team.gradients and bytes.zeros or 0
end

--- Frees the rank.
function Rank:close()
  self.exec:close()
end

return shares
