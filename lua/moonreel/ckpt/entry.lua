--- One tensor of a checkpoint, read on first use; then it behaves like any tensor.
-- @module moonreel.ckpt.entry
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local clean = require "moonreel.text.clean"
local listing = require "moonreel.text.listing"

---@class moonreel.Entry
---@field name string
---@field dtype string
---@field shape integer[]
---@field bytes integer
local Entry = { __name = "moonreel.Entry" }
local own = {}

local direct = { f64 = true, f32 = true, bf16 = true, i64 = true, i32 = true,
  u8 = true, bool = true }

--- The tensor, read now; storage-only dtypes (f16, f8, ...) become f32.
---@return mr.Tensor
function own:tensor()
  local t = rawget(self, "kept")
  if t then
    return t
  end
  if direct[self.dtype] then
    t = T.new(self.dtype, self.shape)
    if T.count(self.shape) > 0 then
      self.ckpt:read(self.name, t:ptr())
    end
  else
    t = T.new("f32", self.shape)
    self.ckpt.handle:read_f32(self.name, t)
  end
  rawset(self, "kept", t)
  return t
end

--- Statistics of the tensor, read piece by piece.
function own:stats() return self.ckpt:stats(self.name) end

--- Counts of the finite values in equal bins, read piece by piece.
---@param bins integer|nil  32
function own:hist(bins)
  local at, n, piece = 0, T.count(self.shape), 1 << 20
  return require("moonreel.look.tensor").histogram(function()
    if at >= n then
      return nil
    end
    local t = T.new("f32", { math.min(piece, n - at) })
    self.ckpt.handle:read_f32(self.name, t, at)
    at = at + piece
    return t
  end, self:stats(), bins or 32)
end

--- Writes it to a file; see save of a tensor.
---@param path string
function own:save(path) return self:tensor():save(path) end

-- plots and pictures call this
function Entry:__tensor() return self:tensor() end

-- arithmetic, length and indexing are those of the tensor
local function tensor_of(x)
  return getmetatable(x) == Entry and x:tensor() or x
end
function Entry.__add(a, b) return tensor_of(a) + tensor_of(b) end
function Entry.__sub(a, b) return tensor_of(a) - tensor_of(b) end
function Entry.__mul(a, b) return tensor_of(a) * tensor_of(b) end
function Entry.__div(a, b) return tensor_of(a) / tensor_of(b) end
function Entry.__unm(a) return -tensor_of(a) end
function Entry:__len() return #tensor_of(self) end

-- its names for completion: its own, its fields, and the methods of tensors
function Entry.__methods()
  local all = { name = true, dtype = true, shape = true, bytes = true }
  for key in pairs(own) do
    all[key] = true
  end
  return setmetatable(all, { __methods = T.methods })
end

-- indexing, and everything else that a tensor can do
function Entry.__index(self, key)
  if own[key] then
    return own[key]
  end
  if math.type(key) == "integer" or type(key) == "string" and key:find("^%s*[%d:-]") then
    return self:tensor()[key]
  end
  local method = T.methods[key]
  return function(_, ...) return method(self:tensor(), ...) end
end

function Entry.__tostring(self)
  return ("%s  %s %s  %s"):format(clean(self.name), listing.shape(self.shape),
    self.dtype, listing.size(self.bytes))
end

--- A tensor by name, not read yet; nil if the checkpoint has no such tensor. Raises an error if it
-- has one that cannot be read.
---@param ckpt mr.Checkpoint
---@param name string
---@return moonreel.Entry|nil
return function(ckpt, name)
  local info = ckpt:info(name)
  if info then
    info.ckpt = ckpt
    return setmetatable(info, Entry)
  end
  for _, one in ipairs(ckpt:refused()) do
    if one.name == name then
      base.raise("MR_E_UNSUPPORTED", ("%s: tensor '%s' cannot be read: %s"):format(ckpt.path, name,
        one.why))
    end
  end
  return nil
end
