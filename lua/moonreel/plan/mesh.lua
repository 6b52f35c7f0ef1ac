--- The mesh of a plan: the number of GPUs, their machine, and how they share a step. Ref: reference
-- parallelism 1 and 4.
-- @module moonreel.plan.mesh
local clips = require "moonreel.comm.clips"
local fault = require "moonreel.recipe.fault"
local layout = require "moonreel.comm.mesh"
local machine = require "moonreel.plan.machine"
local pipeline = require "moonreel.models.pipeline"
local ranks = require "moonreel.optim.ranks"

local mesh = {}

---@class moonreel.plan.Mesh
---@field machine table   from moonreel.plan.machine
---@field gpus integer    of one node
---@field nodes integer
---@field ranks integer   gpus x nodes
---@field zero integer    what is sharded over ranks: 0 nothing, 1 master weights, moments and
---   averages, 2 also gradients, 3 also weights
---@field sequence integer  ranks that share the tokens of a batch
---@field clips string|nil  how these share clips if an autoencoder trains: rows or channels
---@field data integer    batches in one step: ranks / sequence
local Mesh = {}
Mesh.__index = Mesh

--- Parses a text into a machine and numbers of GPUs.
---@param text string        "24x8xH100", "8xH100", "H100", "192", "4x8"; X is allowed for x
---@param name string|nil    name of the machine, if the text has none; default H100
---@return moonreel.plan.Mesh  with zero 0, sequence 1. Raises MR_E_USAGE for other texts, and if
---   both arguments name a machine
function mesh.parse(text, name)
  local rest, counts = text, {}
  while rest:match("^%d+[xX]") do
    counts[#counts + 1] = tonumber(rest:match("^%d+"))
    rest = rest:gsub("^%d+[xX]", "", 1)
  end
  if rest:match("^%d+$") then
    counts[#counts + 1], rest = tonumber(rest), ""
  end
  for _, n in ipairs(counts) do
    if n < 1 or n > 1e6 then
      fault.usage("--gpus %s: expected counts from 1 to a million; try: 24x8xH100", text)
    end
  end
  local broken = rest:find("^[xX]") or tonumber(rest) or rest == "" and not text:find("%d$")
  if #counts > 2 or broken then
    fault.usage("--gpus '%s': expected NODESxGPUSxMACHINE, GPUSxMACHINE or a number; try: "
      .. "24x8xH100", text)
  elseif rest ~= "" and name then
    fault.usage("--gpus %s and --machine %s both name a machine; try: --gpus %s, or --gpus %s "
      .. "--machine %s", text, name, text, #counts > 0 and table.concat(counts, "x") or 1, name)
  end
  local m = machine.open(rest ~= "" and rest or name or "H100")
  local nodes, gpus = 1, counts[1] or 1
  if m.cpu then
    if gpus > 1 or (counts[2] or 1) > 1 then
      fault.usage("--gpus %s: %s is a single processor without known links to others; try: --gpus "
        .. "1", text, m.name)
    end
  elseif #counts == 2 then
    nodes, gpus = counts[1], counts[2]
  elseif gpus > m.node.gpus then
    if gpus % m.node.gpus ~= 0 then
      local below = gpus // m.node.gpus * m.node.gpus
      fault.usage("--gpus %s: a node of %s has %d GPUs, so %d GPUs do not fill whole nodes; try: "
        .. "%d or %d", text, m.name, m.node.gpus, gpus, below, below + m.node.gpus)
    end
    nodes, gpus = gpus // m.node.gpus, m.node.gpus
  end
  return mesh.new(m, gpus, nodes)
end

--- A mesh of one or more ranks of a machine.
---@param m table  machine
---@param gpus integer|nil
---@param nodes integer|nil
---@return moonreel.plan.Mesh
function mesh.new(m, gpus, nodes)
  gpus, nodes = gpus or 1, nodes or 1
  return setmetatable({ machine = m, gpus = gpus, nodes = nodes, ranks = gpus * nodes, zero = 0,
    sequence = 1, layers = 1, data = gpus * nodes }, Mesh)
end

--- The same GPUs with the sharding of a recipe.
---@param settings table
---@return moonreel.plan.Mesh
---@return string[] notes  assumptions
function Mesh:of(settings)
  local stage, notes = ranks.stage(settings), {}
  if self.ranks > 1 and not settings.plugin_config.zero_stage and not settings.plugin then
    notes[1] = ("the recipe does not set plugin_config.zero_stage: ZeRO %d is assumed"):format(
      stage)
  end
  local how = pipeline.reconstructs(settings) and clips.of(settings) or nil
  return self:with { zero = self.ranks > 1 and stage or 0, clips = how and how.by,
    sequence = self.ranks > 1 and (how and how.ranks or layout.shared(settings)) or 1,
    layers = self.ranks > 1 and layout.layers(settings) or 1 }, notes
end

--- The same GPUs with other sharing.
---@param given table  zero, sequence, layers, clips
---@return moonreel.plan.Mesh
function Mesh:with(given)
  local copy = mesh.new(given.machine or self.machine, self.gpus, self.nodes)
  copy.zero, copy.sequence = given.zero or self.zero, given.sequence or self.sequence
  copy.layers, copy.clips = given.layers or self.layers, given.clips or self.clips
  copy.data = self.ranks // (copy.sequence * copy.layers)
  return copy
end

--- Micro-batches of a step, over all ranks.
---@param settings table
---@return integer
function Mesh:micros(settings)
  return (settings.virtual_ranks > 1 and settings.virtual_ranks or self.data) * settings.accumulate
end

--- Micro-steps of the busiest rank in a step.
---@param settings table
---@return integer
function Mesh:rounds(settings)
  return -(-self:micros(settings) // self.data)
end

--- Are gradients added up over a step and reduced once, whatever the ZeRO stage?
---@param settings table
---@return boolean
function Mesh:keeps_gradients(settings)
  return not settings.plugin_config.reduce_each and self:micros(settings) > self.data
end

--- Are gradients reduced by every micro-step?
---@param settings table
---@return boolean
function Mesh:reduces_each(settings)
  return self.zero >= 2 and not self:keeps_gradients(settings)
end

--- `times` as many GPUs, used in the same way; nodes are filled first.
---@param times integer
---@return moonreel.plan.Mesh
function Mesh:larger(times)
  local node, gpus, nodes = self.machine.node.gpus, self.gpus * times, self.nodes
  if gpus > node then
    gpus, nodes = node, -(-self.ranks * times // node)
  end
  local copy = mesh.new(self.machine, gpus, nodes)
  return copy:with { zero = self.ranks > 1 and self.zero or 1, sequence = self.sequence,
    layers = self.layers }
end

--- A mesh of one of its ranks.
---@return moonreel.plan.Mesh
function Mesh:alone()
  return mesh.new(self.machine)
end

--- Refuses a mesh that does not divide: heads among ranks that share tokens, ranks into groups.
---@param settings table  for the places in errors
---@param heads integer|nil
function Mesh:check(settings, heads)
  if self.clips then
    clips.check(settings, self.ranks)
  else
    layout.shape(settings, self.ranks, heads, self.gpus, self.sequence, self.layers)
  end
end

--- Bytes that a rank sends in one attention over shared tokens, forward and backward.
---@param settings table  with the way of sharing
---@param heads integer
---@param tokens integer  of all samples and ranks
---@param width integer
---@return number near, number far  inside and between nodes, by moonreel.comm.mesh
function Mesh:exchange(settings, heads, tokens, width)
  return layout.bytes(layout.shape(settings, self.ranks, heads, self.gpus, self.sequence,
    self.layers), tokens, width // self.layers)
end

--- The share of the parameters that one rank updates.
---@return number
function Mesh:share()
  return 1 / (self.zero >= 1 and self.ranks or self.layers)
end

--- The text of a mesh: 24 x 8 H100.
function Mesh:text()
  if self.machine.here then
    return "this machine"
  end
  return (self.nodes > 1 and ("%d x %d %s"):format(self.nodes, self.gpus, self.machine.name)
    or ("%d %s"):format(self.gpus, self.machine.name))
end

return mesh
