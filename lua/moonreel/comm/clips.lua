--- Ranks that share clips in an autoencoder, as plugin_config_ae says: sp_size of them rows, or
-- tp_size channels (nn/shared.lua).
-- @module moonreel.comm.clips
local blame = require "moonreel.settings.blame"
local channels = require "moonreel.nn.channels"
local latents = require "moonreel.models.latents"
local shared = require "moonreel.nn.shared"
local split = require "moonreel.nn.split"

local clips = {}

---@class mr.Clips
---@field by string      what is shared: rows or channels
---@field ranks integer  that share a clip; 1: each has its own
---@field field string   of a recipe that says so

--- How settings share clips.
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

--- Refuse numbers of ranks that do not fall into groups of those that share a clip.
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

--- How settings share clips over all ranks of a run, which fall into groups.
---@param settings table
---@param ranks integer
---@return mr.Clips
function clips.check(settings, ranks)
  local how = clips.of(settings)
  clips.divide(settings, ranks, how)
  return how
end

--- Share the clips of an autoencoder.
---@param settings table       who decided it
---@param auto mr.Autoencoder
---@param how mr.Clips
---@param given table          of shared.new: comm, or ranks and rank; trains
function clips.share(settings, auto, how, given)
  given.by, given.field = how.by, how.field
  blame.field(settings, how.field, latents.share, auto, shared.new(given))
end

--- How ranks are laid out where an autoencoder trains: those that share clips, then those that have
-- clips of their own. Collective.
---@param settings table
---@param team mr.Team
---@param auto mr.Autoencoder  that trains
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

--- How ranks share what encodes the clips of a batch that they share. Raises where others do.
---@param settings table
---@param ranks integer  that share a batch
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

--- Share what encodes the clips of a batch that ranks share.
---@param settings table
---@param mesh mr.Mesh         of a run
---@param auto mr.Autoencoder  that lies apart
function clips.join(settings, mesh, auto)
  local how = clips.of_batch(settings, mesh.group and mesh.group:size() or 1)
  if how.ranks > 1 then
    clips.share(settings, auto, how, { comm = mesh.group })
  end
end

return clips
