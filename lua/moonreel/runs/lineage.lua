--- The lineage of runs: which run started from a checkpoint of which other run, and the launches,
-- stages and rollbacks within each.
-- @module moonreel.runs.lineage
local find = require "moonreel.runs.find"
local process = require "moonreel.core.process"
local tail = require "moonreel.runs.tail"

local lineage = {}

--- Parses the path of a checkpoint: RUN/ckpt/step-N or RUN/stages/NAME/ckpt/step-N.
---@param path string
---@return table  dir: of the run, or the path itself outside of runs; stage; step; part: the folder
---   with the journal of the run that made it, nil for other paths
function lineage.source(path)
  local dir, step = path:match("^(.*)/ckpt/step%-(%d+)/?$")
  if not dir then
    return { dir = path }
  end
  local outer, stage = dir:match("^(.*)/stages/([^/]+)$")
  return { dir = outer or dir, stage = stage, step = math.tointeger(tonumber(step)), part = dir }
end

--- Are two paths the same folder?
---@param a string
---@param b string
---@return boolean
function lineage.same(a, b)
  return a == b or (process.real_path(a) or a) == (process.real_path(b) or b)
end

-- how a launch that did not start from scratch used its checkpoint
local function how_of(start, weights)
  if weights then
    return "--ckpt-path"
  elseif start.step == 0 and start.updates ~= 0 then
    return "--load --start-from-scratch"
  end
  return "--load"
end

-- is this the line of a step, of which there are many?
local function is_step(line) return line:find('"kind":"step"', 1, true) ~= nil end

--- The lineage in the journal of a run, or of a stage of it.
---@param dir string
---@return table[] events  in the order of time: {kind = "launch", number, step, wall, how, source =
---   {dir, stage, step}, back = discarded steps} and {kind = "rollback", step, from, why, wall};
---   how and source: for a launch that started from a checkpoint
function lineage.events(dir)
  local list, weights, number, highest, newest = {}, nil, 0, 0, nil
  for line in tail.open(dir .. "/journal.jsonl"):lines() do
    if is_step(line) then
      newest = line
    else
      local entry = tail.decode(line) or {}
      -- of many lines of steps only the number of the last one is needed
      highest = newest and math.tointeger(tonumber(newest:match('"step":(%d+)'))) or highest
      newest = nil
      local step = math.type(entry.step) == "integer" and entry.step
      if entry.kind == "weights" and type(entry.path) == "string" then
        weights = entry.path
      elseif entry.kind == "skip" and step then
        highest = step
      elseif entry.kind == "start" and step then
        number = number + 1
        local path = type(entry.parent) == "string" and entry.parent or weights
        list[#list + 1] = { kind = "launch", number = number, step = step, wall = entry.wall,
          how = path and how_of(entry, weights) or nil,
          source = path and lineage.source(path) or nil,
          back = math.max(0, highest - step) }
        weights, highest = nil, step
      elseif entry.kind == "rollback" and step then
        list[#list + 1] = { kind = "rollback", step = step, from = entry.from, why = entry.why,
          wall = entry.wall }
        highest = step
      end
    end
  end
  return list
end

-- the run with this directory; runs that were moved are found by their names
local function known(runs, dir)
  for _, one in ipairs(runs) do
    if lineage.same(one.dir, dir) then
      return one
    end
  end
  for _, one in ipairs(runs) do
    if one.name == find.name(dir) and not process.real_path(dir) then
      return one
    end
  end
end

-- the entries below a run that are not other runs
local function inner_of(part, events)
  local list = {}
  for _, event in ipairs(events) do
    local own = event.source and event.source.part and lineage.same(event.source.part, part.dir)
    if event.kind == "rollback" or event.kind == "launch" and own then
      list[#list + 1] = event
    end
  end
  return list
end

--- The lineage of several runs.
---@param runs table[]  {name, dir} from find.all
---@return table[] roots  {run, how, source, children, parts = {{stage, how, source, inner =
---   events}}}: runs that started from no other run of the list; a root with a source started from
---   a checkpoint outside the list
function lineage.of(runs)
  local nodes, roots, node_of = {}, {}, {}
  for i, one in ipairs(runs) do
    local node = { run = one, children = {}, parts = {} }
    for _, part in ipairs(find.parts(one.dir)) do
      local events = lineage.events(part.dir)
      local first = events[1] or {}
      node.parts[#node.parts + 1] = { stage = part.stage, how = first.how, source = first.source,
        inner = inner_of(part, events) }
    end
    nodes[i], node_of[one] = node, node
  end
  for _, node in ipairs(nodes) do
    local first = node.parts[1] or {}
    local parent = first.source and known(runs, first.source.dir)
    node.how, node.source = first.how, first.source
    -- a run is younger than its source: only damaged journals have a circle
    local above, circle = parent and node_of[parent], false
    local at = above
    while at do
      circle, at = circle or at == node, at.parent
    end
    if above and not circle then
      node.parent = above
      table.insert(above.children, node)
    else
      roots[#roots + 1] = node
    end
  end
  return roots
end

return lineage
