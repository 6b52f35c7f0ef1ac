--- quarantine.jsonl: samples that failed, one line per event. Ref: dataplane 5.
-- @module moonreel.data.quarantine
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"

local quarantine = {}

--- The file of a run, or the file itself.
---@param where string  RUN or FILE.jsonl
---@return string path
function quarantine.path(where)
  local inside = where:gsub("/+$", "") .. "/quarantine.jsonl"
  if base.exists(inside) then
    return inside
  elseif base.exists(where .. "/.") then
    base.raise("MR_E_DATA", ("%s: has no quarantine.jsonl, because no sample failed in it"):format(
      where))
  elseif not base.exists(where) then
    base.raise("MR_E_DATA", ("%s: there is no such run or file"):format(where))
  end
  return where
end

-- the events of a text, each with its line; a line that is not an event is kept unchanged
local function events_of(text)
  local events = {}
  for line in text:gmatch("[^\n]+") do
    local ok, event = pcall(json.decode, line)
    local good = ok and type(event) == "table" and type(event.key) == "string"
      and type(event.class) == "string"
    events[#events + 1] = { line = line, event = good and event or nil }
  end
  return events
end

--- Samples of a list, in the order of their first event: {key, row, path, events, class (of the
-- last one), detail, epochs (first to last), left_out (two permanent failures), fp_order}.
---@param path string
---@return table[]
function quarantine.samples(path)
  local samples, by = {}, {}
  for _, entry in ipairs(events_of(base.read_file(path))) do
    local e = entry.event
    if e then
      local name = e.key .. " " .. tostring(e.fp_order)
      local s = by[name]
      if not s then
        s = { key = e.key, path = e.path, row = e.row and e.row + 1, fp_order = e.fp_order,
          events = 0, permanent = 0, first_epoch = e.epoch }
        by[name], samples[#samples + 1] = s, s
      end
      s.events, s.class, s.detail, s.last_epoch = s.events + 1, e.class, e.detail, e.epoch
      s.permanent = s.permanent + (e.class ~= "io" and 1 or 0)
      s.left_out = s.permanent >= 2
    end
  end
  return samples
end

--- Rewrites a list without some events.
---@param path string
---@param goes fun(event: table): boolean  true: remove this event
---@return integer gone    removed events
---@return integer stay    kept events
function quarantine.remove(path, goes)
  local kept, gone, stay = {}, 0, 0
  for _, entry in ipairs(events_of(base.read_file(path))) do
    if entry.event and goes(entry.event) then
      gone = gone + 1
    else
      kept[#kept + 1] = entry.line .. "\n"
      stay = stay + (entry.event and 1 or 0)
    end
  end
  if gone > 0 then
    base.replace_file(path, table.concat(kept))
  end
  return gone, stay
end

return quarantine
