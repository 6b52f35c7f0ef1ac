--- What one rank of a mesh keeps and sends of a run's state: a table of parameters that is cut for
-- these ranks as a run cuts it, and the story of a micro-step over it. Nothing is run.
-- Ref: reference parallelism 1.
-- @module moonreel.plan.shares
local E = require "moonreel.core.exec"
local layout = require "moonreel.comm.mesh"
local pipeline = require "moonreel.models.pipeline"
local program = require "moonreel.trainer.program"
local ranks = require "moonreel.optim.ranks"
local regions = require "moonreel.optim.regions"
local sequence = require "moonreel.nn.sequence"
local state = require "moonreel.trainer.state"

local shares = {}

-- a communicator of so many ranks, of which this is the first: it knows its size and never speaks
local function silent(size)
  local comm = {}
  function comm.rank() return 0 end
  function comm.size() return size end
  function comm.rows() return 0 end
  function comm.split() return comm end
  return comm
end

--- The ranks that share tokens, as a graph takes them.
---@param settings table
---@param mesh moonreel.plan.Mesh
---@param heads integer|nil
---@return mr.Sequence|nil  nil: no tokens are shared
function shares.sequence(settings, mesh, heads)
  return mesh.sequence > 1 and sequence.new(layout.shape(settings, mesh.ranks, heads, mesh.gpus,
    mesh.sequence)) or nil
end

-- bytes of the first value that goes into a step
local function bytes_of(row)
  local dims, dtype = row.shapes:match "^%[(.-)%] (%w+)"
  local bytes = dtype == "bf16" and 2 or 4
  for n in dims:gmatch "%d+" do
    bytes = bytes * math.tointeger(n)
  end
  return bytes
end

-- by which ranks exchange tokens
local EXCHANGES = { all_to_all = true, shift = true, gather_shares = true }

--- What a rank computes in a micro-step, beside what it sends to those that share its tokens.
---@param rows table[]   of mr.Program times(), of a graph over the sequence
---@return table[]
function shares.computed(rows)
  local list = {}
  for _, row in ipairs(rows) do
    list[#list + 1] = not EXCHANGES[row.op] and row or nil
  end
  return list
end

--- Bytes that a rank sends in a micro-step to those that share its tokens.
---@param rows table[]   of mr.Program times(), of a graph over the sequence
---@param seq mr.Sequence
---@return number
function shares.sent(rows, seq)
  local sent, levels, gathers = 0, {}, 0
  for _, name in ipairs { "heads", "inner", "outer" } do
    levels[#levels + 1] = seq[name].ranks > 1 and seq[name].ranks or nil
  end
  for _, row in ipairs(rows) do
    if row.op == "all_to_all" then
      sent = sent + bytes_of(row) * (seq.heads.ranks - 1) / seq.heads.ranks
    elseif row.op == "shift" then
      sent = sent + bytes_of(row)
    elseif row.op == "gather_shares" then
      -- one behind the other: ranks that exchange heads first, circles last
      sent, gathers = sent + bytes_of(row) * (levels[gathers % #levels + 1] - 1), gathers + 1
    end
  end
  return sent
end

--- The first rank of a mesh of several.
---@param settings table
---@param mesh moonreel.plan.Mesh
---@param models table     of moonreel.plan.compiled
---@param facts table      of the device, as E.plan takes them
---@param shape fun(pipe: mr.Pipeline): table|nil  a micro-step's; nil where there is none
---@return table bytes     of mr.Ranks bytes(); regions: rows of all that it keeps; saved: of them,
---   what it writes of a checkpoint
function shares.of(settings, mesh, models, facts, shape)
  local pipe = pipeline.of(settings, models.dtype, ranks.cut(settings, mesh.ranks))
  local team = ranks.new(pipe.params, silent(mesh.ranks), { local_ranks = mesh.gpus,
    stage = mesh.zero, whole = mesh:keeps_gradients(settings) })
  local exec <close> = E.plan(pipe.params, { facts = facts,
    regions = regions.of(settings, team, models.dtype) })
  local story, one = "", (team.gradients or team.weights) and shape(pipe)
  if one then
    local heads = not pipe.reconstructs and pipe.model.config.num_heads or nil
    local graph <close> = program.graph(pipe, one, program.config(settings, team,
      shares.sequence(settings, mesh, heads)))
    story = graph:story()
  end
  local bytes = team:bytes(exec:regions(), story, mesh:rounds(settings))
  bytes.regions = exec:regions()
  bytes.saved = state.saved_bytes(exec, state.share(pipe.params, team:owned(), 0, mesh.ranks))
  return bytes
end

return shares
