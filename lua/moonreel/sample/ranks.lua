--- Ranks that render together: they share layers (plugin_config.tp_size) and tokens (sp_size) of
-- the model that denoises, and the clips of its autoencoder (plugin_config_ae). Every rank encodes
-- captions, the first one writes.
-- @module moonreel.sample.ranks
local base = require "moonreel.core.base"
local clips = require "moonreel.comm.clips"
local mesh = require "moonreel.comm.mesh"

local ranks = {}

--- How many share what. A recipe for more ranks than there are uses those there are, as the
-- reference has it. Raises where some would have nothing to do.
---@param settings table   baked; its plugin_config
---@param size integer     ranks
---@return integer layers, integer tokens
function ranks.sizes(settings, size)
  local layers = math.min(mesh.layers(settings), size)
  local tokens = math.min(mesh.shared(settings), size // layers)
  if layers * tokens ~= size then
    base.raise("MR_E_USAGE", ("sample: %d ranks, of which plugin_config.tp_size = %d share layers "
      .. "and plugin_config.sp_size = %d tokens: expected %d x %d ranks; try: moonreel -n %d "
      .. "sample, or plugin_config.tp_size=%d plugin_config.sp_size=1"):format(size, layers, tokens,
      layers, tokens, layers * tokens, size))
  end
  return layers, tokens
end

--- The ranks that share layers with this one, before the model is declared.
---@param settings table   with plugin_config and the model
---@param team mr.Team
---@return mr.Split
function ranks.split(settings, team)
  return mesh.split(settings, team.rank, (ranks.sizes(settings, team.size)), true)
end

--- Connect them. Collective.
---@param settings table
---@param team mr.Team
---@param model table       declared over the split
---@param beside boolean    the device exchanges while it computes
---@return mr.Sequence|nil  that share tokens; nil: none
function ranks.connect(settings, team, model, beside)
  if team.size == 1 then
    return nil
  end
  local here = team:even(require("moonreel.comm.place").find())
  local _, tokens = ranks.sizes(settings, team.size)
  return mesh.new(settings, team, model.config.num_heads, here, beside, model.split, tokens)
    .sequence
end

--- Share the clips of the autoencoder. Fewer ranks than its recipe has share them all. Collective.
---@param settings table      with plugin_config_ae
---@param team mr.Team
---@param auto mr.Autoencoder that lies apart
function ranks.clips(settings, team, auto)
  local how = clips.of(settings)
  how.ranks = math.min(how.ranks, team.size)
  if how.ranks > 1 then
    clips.divide(settings, team.size, how)
    clips.share(settings, auto, how, { comm = team.world:split(team.rank // how.ranks,
      { key = team.rank }) })
  end
end

return ranks
