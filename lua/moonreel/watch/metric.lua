--- Metrics by a user's own function of a rendering: `watch.metric(function(frames, prompt) ...
-- end)` in a Lua file. datasets/demo/metric.lua is an example.
-- @module moonreel.watch.metric
local base = require "moonreel.core.base"

local metric = {}

local function is_name(text)
  return type(text) == "string" and text ~= "" and utf8.len(text) and not text:find "%c"
end

local function is_finite(x) return x == x and x ~= math.huge and x ~= -math.huge end

-- converts a value to {name, number} rows; nil means that there is no number, and is not an error
local function rows_of(name, value)
  if type(value) == "number" then
    return rows_of(name, { [name] = value })
  elseif value == nil then
    return {}
  elseif type(value) ~= "table" then
    error(("watch.metric '%s' returned %s; expected a number, a table of numbers by name, or nil")
      :format(name, type(value)), 0)
  end
  local rows = {}
  for key, x in pairs(value) do
    if not is_name(key) or type(x) ~= "number" then
      error(("watch.metric '%s' returned %s = %s; expected names and numbers"):format(name,
        base.printable(tostring(key)), type(x)), 0)
    elseif not is_finite(x) then
      error(("watch.metric '%s' returned %s = %s; expected a finite number, or nil"):format(name,
        key, x), 0)
    end
    rows[#rows + 1] = { key, x }
  end
  table.sort(rows, function(a, b) return a[1] < b[1] end)
  return rows
end

--- Loads a file of metrics. The file is a program of the user and can use all of Lua; `require`
-- also searches its folder.
---@param path string
---@param load fun(path: string, names: table): function|nil, string|nil  compiles a file
---@return table[] metrics  {name, f}; raises MR_E_USAGE if the file defines no metric or cannot be
---   read
function metric.load(path, load)
  local list = {}
  local watch = {}
  function watch.metric(name, f)
    if f == nil then
      name, f = "metric", name
    end
    if not is_name(name) or type(f) ~= "function" then
      error("watch.metric: expected a function(frames, prompt), with a name before it if there "
        .. "are several", 2)
    end
    list[#list + 1] = { name = name, f = f }
  end
  local chunk, why = load(path, setmetatable({ watch = watch }, { __index = _G }))
  local good, searched = chunk ~= nil, package.path
  if chunk then
    package.path = (path:match "^(.*/)" or "./") .. "?.lua;" .. searched
    good, why = pcall(chunk)
    package.path = searched
  end
  if not good then
    base.raise("MR_E_USAGE", ("watch: --metric %s: %s"):format(path,
      tostring(type(why) == "table" and why.message or why)))
  elseif #list == 0 then
    base.raise("MR_E_USAGE", ("watch: --metric %s: it does not call watch.metric; expected "
      .. "watch.metric(function(frames, prompt) ... return number end)"):format(path))
  end
  return list
end

--- Measures a rendering.
---@param list table[]      metrics of metric.load
---@param frames mr.Tensor  u8 [T, 3, H, W], sRGB
---@param prompt string
---@return table[] rows     {name, number}
---@return string|nil why   the error of the first metric that failed
function metric.measure(list, frames, prompt)
  local all, why = {}, nil
  for _, one in ipairs(list) do
    local good, rows = pcall(function() return rows_of(one.name, one.f(frames, prompt)) end)
    if good then
      table.move(rows, 1, #rows, #all + 1, all)
    else
      why = why or tostring(type(rows) == "table" and rows.message or rows)
    end
  end
  return all, why
end

--- The means of numbers by name.
---@param rows table[]  {name, number} of all renderings
---@return table        name -> mean over the renderings that have this number
function metric.means(rows)
  local counts, means = {}, {}
  for _, row in ipairs(rows) do
    local name, n = row[1], (counts[row[1]] or 0) + 1
    -- this form stays finite where a sum would overflow
    counts[name], means[name] = n, (means[name] or 0) * ((n - 1) / n) + row[2] / n
  end
  return means
end

return metric
