--- Records where tables of recipes were written: file and line of every key. A place is {file,
-- line} and, for a table that a helper built, `built = {file, line}`.
-- @module moonreel.recipe.place
local place = {}

-- table -> {file, line, lines = {key -> line}, values = {key -> value}}. The last two are absent if
-- everything is on one line. An entry lives as long as the table of its recipe.
local known = setmetatable({}, { __mode = "k" })

--- Records a constructor's table.
---@param t table
---@param file string  as shown in messages
---@param line integer
---@param lines table|nil  key -> line; nil if all keys are on the constructor's line
function place.remember(t, file, line, lines)
  local values = lines and {}
  for key in next, lines or {} do
    values[key] = t[key]
  end
  known[t] = { file = file, line = line, lines = lines, values = values }
end

--- A copy without some keys; the other keys keep their places.
---@param t table
---@param left_out table  key -> true
---@return table
function place.without(t, left_out)
  local copy = {}
  for key, value in next, t do
    if not left_out[key] then
      copy[key] = value
    end
  end
  known[copy] = known[t]
  return copy
end

--- Where the table itself was written; nil for a table that no constructor made.
---@param t table
---@return table|nil
function place.of_table(t)
  local entry = known[t]
  return entry and { file = entry.file, line = entry.line }
end

--- Where `t[key]` was written: its own line, or the constructor's line if code has set it.
---@param t table
---@param key any
---@param outer table place of t itself: a table that was built in another file has both places
---@return table place
function place.of_key(t, key, outer)
  local entry = known[t]
  if not entry then
    return outer
  end
  local line = entry.line
  if entry.lines then
    local written = entry.values[key]
    -- a key that code has set later has the constructor's line (a NaN is not even equal to itself)
    if rawequal(written, t[key]) or written ~= written then
      line = entry.lines[key] or line
    end
  end
  if outer.file ~= entry.file then
    return { file = outer.file, line = outer.line, built = { file = entry.file, line = line } }
  end
  return { file = entry.file, line = line }
end

--- The text `file:line` or `file:line (built at file:line)`, or the argument or variable.
---@param p table
---@return string
function place.text(p)
  if p.argument then
    return p.argument
  end
  local text = ("%s:%d"):format(p.file, p.line)
  if p.built then
    text = ("%s (built at %s:%d)"):format(text, p.built.file, p.built.line)
  end
  return text
end

return place
