--- Decides whether a field is read, given the values of other fields: the `when` of a row. See
-- README.md.
-- @module moonreel.recipe.when
local kinds = require "moonreel.recipe.kinds"
local marker = require "moonreel.recipe.marker"
local registry = require "moonreel.recipe.registry"

local when = {}

-- the path of a condition; one with a leading point is a field of the same record
local function full(path, field) return (path:gsub("^%.", field:match "^(.*%.)" or "")) end

local function holds(condition, value)
  if condition.set then
    return value ~= marker.none and value ~= false and value ~= 0
  elseif condition.unset then
    return value == marker.none
  elseif condition.autoencoder ~= nil then
    return condition.autoencoder == (registry.get().root.fields.vae.types[value] ~= nil)
  end
  for i = 2, #condition do
    if condition[i] == value then
      return true
    end
  end
  return false
end

-- a condition in words
local function text(condition, path)
  if condition.set then
    return path .. " is set"
  elseif condition.unset then
    return path .. " is none"
  elseif condition.autoencoder ~= nil then
    return path .. (condition.autoencoder and " is an autoencoder" or " is a diffusion model")
  end
  return ("%s is %s"):format(path, kinds.show(condition[2]))
end

--- The conditions of a row, one of which must hold: {{path, ...}, ...}.
---@param row table
---@return table[]
function when.conditions(row) return row.when.any or { row.when } end

--- The text that says when a row is read.
---@param row table    with `when`
---@param field string the path of the row
---@return string
function when.text(row, field)
  local texts = {}
  for i, condition in ipairs(when.conditions(row)) do
    texts[i] = text(condition, full(condition[1], field))
  end
  return table.concat(texts, " or ")
end

--- The reason why nothing reads a field; nil if it is read.
---@param row table
---@param field string
---@param value_at fun(path: string): any  none comes as recipe.none
---@return string|nil
function when.unread(row, field, value_at)
  local value
  for _, condition in ipairs(row.when and when.conditions(row) or {}) do
    value = value_at(full(condition[1], field))
    if holds(condition, value) then
      return nil
    end
  end
  return row.when and ("%s is read only when %s%s"):format(field, when.text(row, field),
    row.when.any and "" or ", and it is " .. kinds.show(value)) or nil
end

return when
