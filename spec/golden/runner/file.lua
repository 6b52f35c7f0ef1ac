--- One file of reference numbers: safetensors with texts as metadata.
-- @module spec.golden.runner.file
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local json = require "moonreel.core.json"

local file = {}

local File = {}
File.__index = File

--- Open a file; its tensors are read when asked for.
---@param path string
---@return mr.GoldenFile
function file.open(path)
  local source = ckpt.open(path)
  local self = setmetatable({path = path, source = source, names = source:names(),
    has = {}, meta = {}}, File)
  for _, name in ipairs(self.names) do
    self.has[name] = source:info(name)
  end
  for key, text in pairs(source.metadata) do
    self.meta[key] = file.value(text)
  end
  return self
end

--- A metadata text as a value: JSON where it parses, Python's True, False and None, else the text.
function file.value(text)
  local words = {True = true, False = false}
  if words[text] ~= nil then
    return words[text]
  end
  local ok, value = pcall(json.decode, text)
  if ok then
    return value
  end
  return text
end

--- Read a tensor; a missing one is an error that names the file.
function File:tensor(name)
  if not self.has[name] then
    base.raise("MR_E_DATA", string.format("%s: no tensor '%s'", self.path, name))
  end
  local row = self.has[name]
  local t = T.new(row.dtype, row.shape)
  self.source:read(name, t:ptr())
  return t
end

--- The tensor or nil.
function File:find(name)
  return self.has[name] and self:tensor(name) or nil
end

--- Values of a small tensor as a flat list.
function File:list(name)
  return self:tensor(name):totable()
end

--- A metadata value that must be there.
function File:need(key)
  local v = self.meta[key]
  if v == nil then
    base.raise("MR_E_DATA", string.format("%s: metadata lacks '%s'", self.path, key))
  end
  return v
end

--- Open the file that metadata names as weights; it lies in the same directory.
function File:weights()
  local name = self:need("weights_file")
  if type(name) ~= "string" or name:find("/", 1, true) then
    base.raise("MR_E_DATA", string.format("%s: weights_file must be a plain file name", self.path))
  end
  return file.open(self.path:match("^(.*/)") .. name)
end

function File:close() self.source:close() end
File.__close = File.close

return file
