--- The files of a text encoder: tensors by their released names, rows of a word table, and the
-- number of bytes read.
-- @module moonreel.embed.source
local T = require "moonreel.core.tensor"
local ckpt = require "moonreel.ckpt"
local cut = require "moonreel.ckpt.cut"
local start = require "moonreel.ckpt.start"

local source = {}

---@class mr.TextSource
---@field path string
---@field bytes_read integer  bytes of tensors read so far
local Source = {}
Source.__index = Source

--- Opens the files of an encoder, which reads its sizes from them. No tensor is read.
---@param path string    a folder with config.json, or a file
---@param enc mr.Text    encoder of a family: tensors(names, path), read(shape_of, path), maps
---@return mr.TextSource
function source.open(path, enc)
  local file = ckpt.open(path)
  local self = setmetatable({ file = file, path = path, bytes_read = 0, at = {}, seen = {} },
    Source)
  local good, problem = pcall(function()
    local plan = start.plan(file, enc:tensors(file:names(), path), enc.maps)
    for name, found in pairs(plan.found) do
      self.at[name] = found.weights
    end
    enc:read(function(name) return self.at[name] and file:info(self.at[name]).shape end, path)
  end)
  if not good then
    file:close()
    error(problem, 0)
  end
  return self
end

--- Reads a tensor.
---@param name string  its released name
---@return mr.Tensor   in the dtype of the file if tensors support it, else f32; the caller closes
---   it. MR_E_NONFINITE, at the first read: it contains values that are not finite
function Source:read(name)
  self.bytes_read = self.bytes_read + self.file:info(self.at[name]).bytes
  local t = start.tensor(self.file, self.at[name])
  -- a streamed block is read again for every batch
  if not self.seen[name] then
    start.refuse_nonfinite(self.file, self.at[name], t)
    self.seen[name] = true
  end
  return t
end

--- Reads a row of a matrix.
---@param name string  its released name
---@param i integer    from 0
---@return mr.Tensor   f32 [columns]
function Source:row(name, i)
  local info = self.file:info(self.at[name])
  local row = T.new("f32", { info.shape[2] })
  self.file.handle:read_f32(self.at[name], row, i * info.shape[2])
  self.bytes_read = self.bytes_read + info.bytes // info.shape[1]
  return row
end

--- Fills a part of the encoder.
---@param part table       part as for moonreel.encoder
---@param i integer|nil    index of its repetition
function Source:load(part, i)
  local name_of = part.row.tensor
  for _, p in ipairs(part.params:list()) do
    local tensor <close> = self:read(name_of and name_of(p.name, i) or p.name)
    local own <close> = p.cut and cut.take(p, tensor) or nil
    part.exec:set_param(p.frozen and "frozen" or "w", p.name,
      own and own:reshape(cut.own_shape(p)) or tensor)
  end
end

function Source:close() self.file:close() end
Source.__close = Source.close

return source
