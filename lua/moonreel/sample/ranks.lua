--- Ranks that render together: they share layers (plugin_config.tp_size) and tokens (sp_size) of
-- the diffusion model, and the clips of its autoencoder (plugin_config_ae). Every rank encodes
-- captions; the first rank writes files.
-- @module moonreel.sample.ranks
local base = require "moonreel.core.base"
local clips = require "moonreel.comm.clips"
local mesh = require "moonreel.comm.mesh"

local ranks = {}

--- How many ranks share layers and tokens. A recipe for more ranks uses the existing ones, as in
-- the reference. Raises an error if some ranks would have nothing to do.
---@param settings table   baked; its plugin_config
---@param size integer     ranks
---@return integer layers, integer tokens
function ranks.sizes(settings, size)
  local layers = math.min(mesh.layers(settings), size)
  local tokens = math.min(mesh.shared(settings), size // layers)
  if layers * tokens ~= size then
    base.raise("MR_E_USAGE", ("sample: there are %d ranks; plugin_config.tp_size = %d ranks "
      .. "share layers and plugin_config.sp_size = %d share tokens; expected %d x %d ranks; try: "
      .. "moonreel -n %d sample, or plugin_config.tp_size=%d plugin_config.sp_size=1"):format(size,
      layers, tokens,
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

--- Connects the ranks. Collective.
---@param settings table
---@param team mr.Team
---@param model table       declared over the split
---@param overlaps boolean    the device exchanges while it computes
---@return mr.Sequence|nil  the ranks that share tokens; nil: none do
function ranks.connect(settings, team, model, overlaps)
  if team.size == 1 then
    return nil
  end
  local here = team:even(require("moonreel.comm.place").find())
  local _, tokens = ranks.sizes(settings, team.size)
  return mesh.new(settings, team, model.config.num_heads, here, overlaps, model.split, tokens)
    .sequence
end

--- Shares the clips of the autoencoder. If there are fewer ranks than in its recipe, all of them
-- share. Collective.
---@param settings table      with plugin_config_ae
---@param team mr.Team
---@param auto mr.Autoencoder a separate autoencoder
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
