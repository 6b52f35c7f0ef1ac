--- Sizes of an encoder with repeated blocks, from config.json and from the tensors, and whether
-- both agree. If config.json lacks a field, or is missing, the tensors decide. A family declares
-- the fields and the shapes of its tensors.
-- @module moonreel.models.sizes
local base = require "moonreel.core.base"
local listing = require "moonreel.text.listing"
local read_config = require "moonreel.text.config"

local sizes = {}

--- Refuses weights whose sizes differ from the fields; a tensor that a file lacks is not compared.
---@param rows table[]  {field, parameter, axis (from 1), value of the field}
---@param where string  source of the fields: "the recipe", a config.json
---@param shape_of fun(parameter: string): integer[]|nil  in the file
---@param path string   of the weights
function sizes.compare(rows, where, shape_of, path)
  for _, row in ipairs(rows) do
    local field, parameter, axis, said = table.unpack(row)
    local shape = shape_of(parameter)
    if shape and shape[axis] ~= said then
      base.raise("MR_E_CKPT", ("%s: %s is %d in %s, but '%s' is %s: its axis %d has %s; try: "
        .. "%s = %s"):format(path, field, said, where, parameter, listing.shape(shape), axis - 1,
        tostring(shape[axis]), field, tostring(shape[axis])))
    end
  end
end

---@class mr.Sizes
---@field what string         "a T5 v1.1"
---@field integers string[]   fields of config.json that are sizes
---@field needed string[]     fields that a config.json must have before there are tensors
---@field assumed table       values of fields that a config.json may leave out
---@field silent table        values of fields that neither a tensor nor config.json has
---@field outside table       shapes of tensors outside of blocks: {name = {field, ...}}
---@field block table         of those of a block
---@field blocks string       the field that counts blocks
---@field form string         name of a block's tensor: "encoder.block.%d.%s"
---@field counted string[]    patterns that find the number of a block in names of files
---@field words string        the tensor that is read row by row
---@field spelled table       names of computed fields, for people
---@field record fun(config: table): table          the part of config.json about this encoder
---@field other fun(config: table, said: table, refuse: function)  fields that are not sizes
---@field complete fun(s: table)                     computes fields from others
---@field reported fun(axis: function): table            fields known from tensors; axis(name, at)
local Sizes = {}
Sizes.__index = Sizes

--- Declares the sizes of a family.
---@param declared table  fields of mr.Sizes
---@return mr.Sizes
function sizes.new(declared) return setmetatable(declared, Sizes) end

--- Fills in the fields that have no source.
---@param s table
---@return table  s
function Sizes:completed(s)
  for field, value in pairs(self.silent) do
    if s[field] == nil then
      s[field] = value
    end
  end
  s.words = self.words
  self.complete(s)
  return s
end

-- adds the name and shape of each tensor in a list, in order of the names
local function add_all(rows, s, shapes, name_of)
  local names = {}
  for name in pairs(shapes) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local shape, fields = {}, shapes[name]
    for axis, field in ipairs(fields) do
      shape[axis] = s[field]
    end
    rows[#rows + 1] = { name = name_of(name), shape = shape, fields = fields }
  end
end

--- Names of all tensors and their shapes: those outside of blocks, then block by block.
---@return table[]  {name, shape, fields}
function Sizes:tensors(s)
  local rows = {}
  add_all(rows, s, self.outside, function(name) return name end)
  for i = 0, s[self.blocks] - 1 do
    add_all(rows, s, self.block, function(name) return self.form:format(i, name) end)
  end
  return rows
end

--- The names of tensors in an encoder with the number of blocks of a file.
---@param names string[]  in the file
---@param path string
---@return table[]        {name}
---@return integer        blocks in the file
function Sizes:names(names, path)
  local blocks = 0
  for _, name in ipairs(names) do
    for _, pattern in ipairs(self.counted) do
      local at = name:match(pattern)
      blocks = math.max(blocks, at and math.tointeger(at) + 1 or 0)
    end
  end
  -- a file with a wrong depth must not cost memory
  if blocks > #names then
    base.raise("MR_E_CKPT", ("%s: a tensor of block %d among %d tensors"):format(path, blocks - 1,
      #names))
  end
  local any = setmetatable({ [self.blocks] = blocks }, { __index = function() return 0 end })
  local rows = {}
  for i, row in ipairs(self:tensors(any)) do
    rows[i] = { name = row.name }
  end
  return rows, blocks
end

--- The number of elements of the encoder without its words, which are read row by row.
---@return integer
function Sizes:elements(s)
  local n = 0
  for _, row in ipairs(self:tensors(s)) do
    local count = row.name == self.words and 0 or 1
    for _, length in ipairs(row.shape) do
      count = count * length
    end
    n = n + count
  end
  return n
end

--- The fields of config.json, with their kinds checked.
---@param path string
---@return table  fields; empty if there is no such file
function Sizes:of_config(path)
  if not base.exists(path) then
    return {}
  end
  local config, said = self.record(read_config(path)), {}
  local function refuse(field, expected)
    base.raise("MR_E_CKPT", ("%s: %s is %s; expected %s"):format(path, field,
      tostring(config[field]), expected))
  end
  for _, field in ipairs(self.integers) do
    local n = math.tointeger(config[field])
    if config[field] ~= nil and not (n and n >= 1 and n <= 1 << 24) then
      refuse(field, "a size")
    end
    said[field] = n
  end
  self.other(config, said, refuse)
  return said
end

--- Sizes of the encoder in a folder from its config.json alone.
---@param path string
---@return table|nil  nil: there is no such file
function Sizes:of_folder(path)
  local file = path .. "/config.json"
  if not base.exists(file) then
    return nil
  end
  local said = self:of_config(file)
  for field, value in pairs(self.assumed) do
    said[field] = said[field] or value
  end
  for _, field in ipairs(self.needed) do
    if not said[field] then
      base.raise("MR_E_CKPT", ("%s: there is no %s in it; expected the config.json of %s"):format(
        file, field,
        self.what))
    end
  end
  return self:completed(said)
end

--- Sizes of the encoder in a file or folder. Raises an error if config.json and tensors contradict
-- each other, with field, tensor and both values, and if a tensor is missing.
---@param path string   the opened path, with config.json in it
---@param shape_of fun(name: string): integer[]|nil  shape of a tensor by its released name
---@param blocks integer  number of blocks in the file
---@return table
function Sizes:read(path, shape_of, blocks)
  local file = path .. "/config.json"
  local said = self:of_config(file)
  local function shape(name)
    return shape_of(name) or base.raise("MR_E_CKPT", ("%s: there is no tensor '%s'; expected the "
      .. "encoder of %s"):format(path, name, self.what))
  end
  local s = self.reported(function(name, at) return shape(name)[at] end)
  s[self.blocks] = blocks
  for field, value in pairs(said) do
    s[field] = value
  end
  self:completed(s)
  if s[self.blocks] ~= blocks then
    base.raise("MR_E_CKPT", ("%s: %s is %d, but '%s' has the tensors of %d"):format(file,
      self.blocks, s[self.blocks], path, blocks))
  end
  for _, row in ipairs(self:tensors(s)) do
    local has = shape(row.name)
    for at, want in ipairs(row.shape) do
      if has[at] ~= want or #has ~= #row.shape then
        base.raise("MR_E_CKPT", ("%s: %s is %d, but '%s' is %s: its axis %d has %s"):format(
          next(said) and file or path, self.spelled[row.fields[at]] or row.fields[at], want,
          row.name, listing.shape(has), at - 1, tostring(has[at])))
      end
    end
  end
  return s
end

return sizes
