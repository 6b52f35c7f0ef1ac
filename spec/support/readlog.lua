--- The values that a reader takes from settings: readlog.watch(settings) -> substitute, log (path
-- -> value as text). A part that is copied whole (`plain`, `pairs`) counts as read.
local frozen = require "moonreel.settings.frozen"
local kinds = require "moonreel.recipe.kinds"

local readlog = {}

local function note(log, path, value)
  if type(value) == "function" then
    return
  end
  log[path] = kinds.show(value)
end

local stand_in

local function seen(log, path, value)
  local meta = type(value) == "table" and getmetatable(value)
  local part = meta and meta.__name == "mr.Settings"
  note(log, path, part and frozen.copy(value) or value)
  return part and stand_in(log, path, value) or value
end

-- everything below a path, as a reader that copies it gets it
local function note_all(log, path, value)
  if type(value) ~= "table" then
    return note(log, path, value)
  end
  note(log, path, value)
  for key, item in pairs(value) do
    note_all(log, path .. "." .. tostring(key), item)
  end
end

function stand_in(log, path, part)
  local function at(key) return path == "" and tostring(key) or path .. "." .. tostring(key) end
  return setmetatable({}, {
    __name = "mr.Settings",
    __index = function(_, key)
      local value = part[key]
      if type(value) ~= "function" then
        return seen(log, at(key), value)
      end
      return function(_, ...)
        local result = value(part, ...)
        if key == "plain" or key == "get" then
          note_all(log, (...) or "", result)
        end
        return result
      end
    end,
    __pairs = function()
      note_all(log, path, part)
      return pairs(part)
    end,
    __len = function() return #part end,
  })
end

--- Settings that record which values were read.
function readlog.watch(settings)
  local log = {}
  return stand_in(log, "", settings), log
end

--- The fields of a plain table that a module's source reads by name.
function readlog.named(log, path, t, source)
  for key, value in pairs(t) do
    log[path .. "." .. key] = source:find("[.%s]" .. key .. "%f[^%w_]") and kinds.show(value) or nil
  end
end

return readlog
