--- Ranks that share clips in an autoencoder, by plugin_config_ae: sp_size ranks share rows, or
-- tp_size ranks share channels (nn/shared.lua).
-- @module moonreel.comm.clips
local blame = require "moonreel.settings.blame"
local channels = require "moonreel.nn.channels"
local latents = require "moonreel.models.latents"
local shared = require "moonreel.nn.shared"
local split = require "moonreel.nn.split"

local clips = {}

---@class mr.Clips
---@field by string      what is shared: rows or channels
---@field ranks integer  number of ranks that share a clip; 1: each has its own
---@field field string   the field of the recipe that sets it

--- How the settings share clips.
---@param settings table
---@return mr.Clips
function clips.of(settings)
  local config = settings.plugin_config_ae
  local rows = config.enable_sequence_parallelism ~= false and config.sp_size or 1
  local parts = config.tp_size or 1
  if rows > 1 and parts > 1 then
    blame.raise(settings, "plugin_config_ae.tp_size", "MR_E_RECIPE", "tp_size = %d with sp_size = "
      .. "%d: ranks share either channels (tp_size) or rows of clips (sp_size), not both; try: "
      .. "tp_size = 1", parts, rows)
  end
  local by = parts > 1 and "channels" or "rows"
  return { by = by, ranks = math.max(rows, parts),
    field = by == "rows" and "plugin_config_ae.sp_size" or "plugin_config_ae.tp_size" }
end

--- Refuses a number of ranks that cannot be divided into groups that share a clip.
---@param settings table
---@param ranks integer
---@param how mr.Clips
function clips.divide(settings, ranks, how)
  if ranks % how.ranks ~= 0 then
    blame.raise(settings, how.field, "MR_E_USAGE", "%d ranks cannot be divided into groups of %d "
      .. "that share their clips; try: %s = %s", ranks, how.ranks, how.field,
      channels.nearest(ranks, how.ranks))
  end
end

--- How the settings share clips over all ranks of a run, which are divided into groups.
---@param settings table
---@param ranks integer
---@return mr.Clips
function clips.check(settings, ranks)
  local how = clips.of(settings)
  clips.divide(settings, ranks, how)
  return how
end

--- Shares the clips of an autoencoder.
---@param settings table       for the places in errors
---@param auto mr.Autoencoder
---@param how mr.Clips
---@param given table          for shared.new: comm, or ranks and rank; trains
function clips.share(settings, auto, how, given)
  given.by, given.field = how.by, how.field
  blame.field(settings, how.field, latents.share, auto, shared.new(given))
end

--- The mesh of ranks if an autoencoder trains: the ranks that share clips, then those with their
-- own clips. Collective.
---@param settings table
---@param team mr.Team
---@param auto mr.Autoencoder  the one that trains
---@return mr.Mesh
function clips.mesh(settings, team, auto)
  local how = clips.check(settings, team.size)
  local n = how.ranks
  local self = { data = team.size // n, at = team.rank // n, leads = team.rank % n == 0,
    split = split.none, alike = team.world }
  if n > 1 then
    self.group = team.world:split(self.at, { key = team.rank })
    clips.share(settings, auto, how, { comm = self.group, trains = true })
  end
  return self
end

--- How ranks that share a batch share the encoder of its clips. Raises an error if another number
-- of ranks shares clips.
---@param settings table
---@param ranks integer  ranks that share a batch
---@return mr.Clips
function clips.of_batch(settings, ranks)
  local how = clips.of(settings)
  if how.ranks > 1 and how.ranks ~= ranks then
    blame.raise(settings, how.field, "MR_E_RECIPE", "%s = %d: the ranks that share a batch also "
      .. "share its clips, and %d ranks share a batch here; try: %s = %d", how.field, how.ranks,
      ranks, how.field,
      ranks)
  end
  return how
end

--- Shares the encoder of clips among the ranks that share a batch.
---@param settings table
---@param mesh mr.Mesh         mesh of a run
---@param auto mr.Autoencoder  a separate autoencoder
function clips.join(settings, mesh, auto)
  local how = clips.of_batch(settings, mesh.group and mesh.group:size() or 1)
  if how.ranks > 1 then
    clips.share(settings, auto, how, { comm = mesh.group })
  end
end

return clips
