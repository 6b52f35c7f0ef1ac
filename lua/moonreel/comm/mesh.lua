--- The arrangement of a run's ranks. The fastest varying index is among the ranks that share each
-- layer, then among those that share the tokens of a batch, then among those with batches of their
-- own (reference parallelism, section 4). Gradients are summed over all ranks with the same
-- weights, since each rank that shares tokens has a part of them. They are divided by the weights
-- of the batches, which one rank of each group counts.
-- @module moonreel.comm.mesh
local blame = require "moonreel.settings.blame"
local families = require "moonreel.recipe.families"
local nn_split = require "moonreel.nn.split"
local sequence = require "moonreel.nn.sequence"

local mesh = {}

---@class mr.Mesh
---@field data integer           groups of ranks with their own batches
---@field at integer             the number of this rank's group, from 0
---@field leads boolean          the first of its group, which counts and decodes for it
---@field sequence mr.Sequence|nil  ranks that share tokens with this one, including it; nil: none
---   do
---@field group mr.Comm|nil      ranks that share its batch, by tokens or by layers; nil: none do
---@field tokens mr.Comm|nil     ranks that share its batch by tokens; nil: none do
---@field split mr.Split         ranks that share layers with this one
---@field alike mr.Comm|nil      ranks with the same slices of layers; nil: a single rank
---@field crosses string|nil     a note about groups that should be within a host and are not

-- the divisors of `whole` nearest to `wanted`, below and above it
local function nearest_divisors(whole, wanted)
  local below, above
  for n = 1, whole do
    if whole % n == 0 then
      below = n <= wanted and n or below
      above = above or n >= wanted and n or nil
    end
  end
  return below, above
end

local function legal(whole, wanted)
  local below, above = nearest_divisors(whole, wanted)
  return below and above and below ~= above and ("%d or %d"):format(below, above)
    or tostring(below or above)
end

-- the greatest common divisor
local function common(a, b)
  while b > 0 do
    a, b = b, a % b
  end
  return a
end

-- refuses a number that does not divide, with the place that set it: the command line, or a recipe
local function refuse(settings, path, form, ...)
  local chain = settings:chain(path)
  local last = chain[#chain]
  blame.raise(settings, path, last and last.command_line and "MR_E_USAGE" or "MR_E_RECIPE", form,
    ...)
end

--- How many ranks share the tokens of a batch, by the settings of a run.
---@param settings table
---@return integer
function mesh.shared(settings)
  local config = settings.plugin_config
  return config.enable_sequence_parallelism ~= false and config.sp_size or 1
end

--- How many ranks share each layer, by the settings of a run.
---@param settings table
---@return integer
function mesh.layers(settings) return settings.plugin_config.tp_size or 1 end

-- types of models whose layers ranks can share
local function that_share()
  local list = {}
  for _, family in ipairs(families.all()) do
    if family:has "init" and family:open "init".shares then
      for type in pairs(family.fields.types) do
        list[#list + 1] = type
      end
    end
  end
  table.sort(list)
  return table.concat(list, ", ")
end

--- The ranks that share layers with one; they are not connected yet. Raises an error if the model
-- of a run cannot be divided in this way.
---@param settings table
---@param rank integer   rank in the run
---@param n integer|nil  number of ranks that share each layer; nil: by the settings
---@param renders boolean|nil  no update is made
---@return mr.Split
function mesh.split(settings, rank, n, renders)
  local model = settings.model
  n = n or mesh.layers(settings)
  if n == 1 then
    return nn_split.none
  end
  local shares = families.of("model", model.type):open "init".shares
  if not shares then
    refuse(settings, "plugin_config.tp_size", "tp_size = %d: ranks cannot share layers of "
      .. "model.type = %s, only those of %s; try: tp_size = 1, with plugin_config.zero_stage = 3",
      n, model.type, that_share())
  elseif settings.optim.type == "muon" and not renders then
    refuse(settings, "plugin_config.tp_size", "tp_size = %d: optim.type = muon updates whole "
      .. "matrices, of which ranks would have slices; try: tp_size = 1 with "
      .. "plugin_config.zero_stage = 3, or optim.type = adamw", n)
  end
  local all = 0
  for _, row in ipairs(shares(settings:plain "model")) do
    all = common(row[2], all)
  end
  for _, row in ipairs(shares(settings:plain "model")) do
    if row[2] % n ~= 0 then
      refuse(settings, "plugin_config.tp_size", "tp_size = %d: %d ranks cannot share %d %s of "
        .. "model.type = %s; try: tp_size = %s", n, n, row[2], row[1], model.type, legal(all, n))
    end
  end
  return nn_split.new { ranks = n, at = rank % n }
end

local function refuse_depth(settings)
  local n = settings.plugin_config.pp_size or 1
  if n > 1 then
    refuse(settings, "plugin_config.pp_size", "pp_size = %d: no ranks share the depth; they share "
      .. "layers (tp_size), tokens (sp_size) and state (zero_stage); try: pp_size = 1, with "
      .. "plugin_config.zero_stage = 3, or plugin_config.tp_size within a host", n)
  end
end

--- How these ranks compute attention together. Raises an error for numbers that do not divide, with
-- numbers that do, and for unknown modes.
---@param settings table
---@param ranks integer     number of ranks in the run
---@param heads integer|nil attention heads; nil: not known here
---@param here integer|nil  ranks of a host; nil: all
---@param shared integer|nil  ranks that share tokens; nil: by the settings
---@param layers integer|nil  ranks that share each layer; nil: by the settings
---@return table  heads, inner, outer for sequence.new
function mesh.shape(settings, ranks, heads, here, shared, layers)
  local config = settings.plugin_config
  shared, layers = shared or mesh.shared(settings), layers or mesh.layers(settings)
  local path, mode = "plugin_config.sp_size", config.sequence_parallelism_mode
  local ring = mode == "ring_attn"
  refuse_depth(settings)
  if ranks % layers ~= 0 then
    refuse(settings, "plugin_config.tp_size", "%d ranks cannot be divided into groups of tp_size = "
      .. "%d that share their layers; try: tp_size = %s", ranks, layers, legal(ranks, layers))
  end
  -- the rest is about ranks with the same slices
  ranks, heads, here = ranks // layers, heads and heads // layers, here and here // layers
  if shared > 1 and mode and not ring and mode ~= "all_to_all" then
    refuse(settings, "plugin_config.sequence_parallelism_mode", "sequence_parallelism_mode = %q: "
      .. "expected all_to_all or ring_attn", mode)
  elseif ranks % shared ~= 0 then
    local whole = ring and ranks or common(ranks, heads or ranks)
    refuse(settings, path, "%d ranks%s cannot be divided into groups of %d that share their "
      .. "tokens; try: sp_size = %s", ranks, layers > 1 and " for each of tp_size = " .. layers
      or "", shared, legal(whole, shared))
  end
  local exchange = shared > 1 and config.ulysses_size or ring and 1 or shared
  if shared % exchange ~= 0 then
    refuse(settings, "plugin_config.ulysses_size", "%d ranks that share tokens cannot be divided "
      .. "into groups of %d that exchange heads; try: ulysses_size = %s", shared, exchange,
      legal(shared, exchange))
  elseif heads and heads % exchange ~= 0 then
    local field = config.ulysses_size and "ulysses_size" or "sp_size"
    refuse(settings, "plugin_config." .. field, "%d ranks cannot share %d attention heads; try: "
      .. "%s = %s, or sequence_parallelism_mode = \"ring_attn\"", exchange, heads, field,
      legal(common(field == "sp_size" and ranks or shared, heads), exchange))
  end
  local circle = shared // exchange
  -- a circle is within one host if its ranks fit there
  local inner = common(circle, math.max((here or ranks) // exchange, 1))
  return { heads = exchange, inner = inner, outer = circle // inner }
end

-- a note about heads that are exchanged between hosts, with a setting that avoids it
local function crossing(shape, shared, here)
  local heads = shape.heads
  if heads == 1 or not here or here % heads == 0 then
    return nil
  end
  return ("%d ranks exchange heads, and a host has %d: tokens cross the network in every "
    .. "attention; try: plugin_config.ulysses_size = %d, so that the %d ranks pass keys between "
    .. "hosts in a ring")
    :format(heads, here, common(heads, here), shared)
end

--- Bytes that one rank sends in one attention over shared tokens, forward and backward, in bf16: q,
-- k, v and the result for heads; k and v around circles, once in each pass, and their gradients in
-- f32, which return to their owner. Ref: reference parallelism 5 and 6.
---@param shape table     heads, inner, outer
---@param tokens integer  of all samples and ranks
---@param width integer   of a token
---@return number near    between ranks that exchange heads, and inside circles
---@return number far     between circles
function mesh.bytes(shape, tokens, width)
  local heads, inner, outer = shape.heads, shape.inner, shape.outer
  local here = tokens * width / (heads * inner * outer)
  local function circle(ranks, turns)
    return ranks > 1 and turns * (2 * (ranks - 1) * 4 + ranks * 8) * here or 0
  end
  return 2 * 8 * here * (heads - 1) / heads + circle(inner, outer), circle(outer, 1)
end

-- a note about ranks that share layers but are on several hosts
local function torn(layers, here)
  return layers > 1 and here and here % layers ~= 0
    and ("%d ranks share each layer, but a host has only %d, so every layer waits for the "
    .. "network; try: plugin_config.tp_size = %d"):format(layers, here, common(here, layers)) or nil
end

--- Arranges the ranks of a team by the settings. Collective.
---@param settings table
---@param team mr.Team
---@param heads integer|nil  attention heads
---@param here integer|nil   ranks of a host
---@param overlaps boolean|nil  the device exchanges while it computes: heads in two groups
---@param split mr.Split|nil  ranks that share layers, from mesh.split; this call connects them
---@param shared integer|nil  ranks that share tokens; nil: by the settings
---@return mr.Mesh
function mesh.new(settings, team, heads, here, overlaps, split, shared)
  local layers = split and split.ranks or mesh.layers(settings)
  shared = shared or mesh.shared(settings)
  local shape = mesh.shape(settings, team.size, heads, here, shared, layers)
  local batch, rank, world = shared * layers, team.rank, team.world
  local self = { data = team.size // batch, at = rank // batch, leads = rank % batch == 0,
    split = split or nn_split.none, alike = world, crosses = torn(layers, here)
    or crossing(shape, shared, here and here // layers) }
  if batch > 1 then
    self.group = world:split(self.at, { key = rank })
  end
  if layers > 1 then
    self.alike = world:split(rank % layers, { key = rank })
    self.split:connect(world:split(rank // layers, { key = rank }))
  end
  if shared > 1 then
    shape.rank, shape.groups = rank // layers % shared, overlaps and 2 or 1
    shape.comm = layers == 1 and self.group
      or world:split(self.at * layers + rank % layers, { key = rank })
    self.tokens, self.sequence = shape.comm, sequence.new(shape)
  end
  return self
end

return mesh
