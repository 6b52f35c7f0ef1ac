--- The figures of the machine that decide the seconds of a step, and their origin.
-- @module moonreel.plan.figures
local machine = require "moonreel.plan.machine"
local simulate = require "moonreel.plan.simulate"

local figures = {}

-- figures that are not fields of a machine
local OTHERS = {
  slowest = { "differences between GPUs", (
    "assumed: %.3g %%, fitted to four published scalings"):format(
    100 * simulate.SIGMA) },
  ["host.read"] = { "host.read", "assumed: weights out of files in the host's memory" },
}

-- spreads `seconds` over figures in the proportions of `by`
local function spread(into, by, seconds)
  local sum = 0
  for _, part in pairs(by) do
    sum = sum + part
  end
  for figure, part in pairs(sum > 0 and by or {}) do
    into[figure] = (into[figure] or 0) + seconds * part / sum
  end
end

--- The figures that decide the seconds of a bucket's optimizer step.
---@param mesh moonreel.plan.Mesh
---@param n integer      number of micro-steps of a rank in it
---@param step table     from moonreel.plan.compiled, with by and encode_by
---@param update table   of its models, with by
---@param seconds table  of the step, as plan rows have them
---@return table[] list  {figure, seconds, share: of the step, value: of the machine, origin},
---   longest first; the seconds add up to the step's
function figures.of(mesh, n, step, update, seconds)
  local by, m = {}, mesh.machine
  local far = mesh.nodes > 1 and "network.card" or "node.link"
  local read = math.min(step.parts.read, seconds.encode)
  spread(by, step.by, n * (seconds.forward + seconds.recompute + seconds.backward))
  spread(by, step.encode_by, n * (seconds.encode - read))
  spread(by, step.decode_by or {}, seconds.decode or 0)
  spread(by, update.by, seconds.update)
  by.encode_rate, by.decode_rate = seconds.files, seconds.waits
  by["host.read"], by.slowest = n * read, seconds.slowest
  by["node.link"] = mesh.sequence <= mesh.gpus and n * seconds.exchange or nil
  by[far] = (by[far] or 0) + seconds.exposed
    + (mesh.sequence <= mesh.gpus and 0 or n * seconds.exchange)
  local list = {}
  for figure, s in pairs(by) do
    if s > 0 then
      local other = OTHERS[figure]
      local group, key = figure:match "^(%w+)%.(%w+)$"
      local value = group and m[group] and m[group][key] or tonumber(m[figure])
      list[#list + 1] = { figure = other and other[1] or figure, seconds = s,
        share = s / seconds.step, value = value,
        origin = machine.origin(m, figure) or other and other[2] or "its file does not say" }
    end
  end
  table.sort(list, function(a, b)
    return a.seconds > b.seconds or a.seconds == b.seconds and a.figure < b.figure
  end)
  return list
end

-- fields of a machine that decide other parts of a run than its steps
local APART = {
  { "node.link", "links inside a node" }, { "node.link_step_s", "links inside a node" },
  { "network.card", "links between nodes" }, { "network.step_s", "links between nodes" },
  { "communication_share", "links: what a GPU gives to them" },
  { "host.disk", "saves: a node writes" }, { "host.store", "saves: the store takes of all nodes" },
  { "mtbf_gpu_hours", "failures: GPU hours between two failures" },
  { "restart_s", "failures: from one to the next step" },
  { "decode_rate", "decode cores" },
}

--- The figures that decide the time of a run besides its steps: links, jitter, saves, failures,
-- restarts.
---@param mesh moonreel.plan.Mesh
---@return table[] list  {figure, what, value, origin}; figures about several ranks only if there
---   are several
function figures.others(mesh)
  local list, m = {}, mesh.machine
  for _, row in ipairs(APART) do
    local field, what = table.unpack(row)
    local group, key = field:match "^(%w+)%.([%w_]+)$"
    local value = group and (m[group] or {})[key] or m[field]
    if value then
      list[#list + 1] = { figure = field, what = what, value = value,
        origin = machine.origin(m, field) or "its file does not say" }
    end
  end
  if mesh.ranks > 1 then
    local name, origin = table.unpack(OTHERS.slowest)
    list[#list + 1] = { figure = name, what = "jitter", value = simulate.SIGMA, origin = origin }
  end
  return list
end

--- The assumed figures as text: neither measured nor published.
---@param list table[]  from figures.of
---@return string|nil   nil if no figure is assumed
function figures.assumed(list)
  local words, share = {}, 0
  for _, one in ipairs(list) do
    if one.origin:find("assumed", 1, true) == 1 and one.share >= 0.005 then
      share = share + one.share
      words[#words + 1] = ("%s %.0f %%"):format(one.figure, 100 * one.share)
    end
  end
  return #words > 0 and ("%.0f %% of the longest step depend on assumed figures (%s)"):format(
    100 * share, table.concat(words, ", ")) or nil
end

return figures
