--- Inspects a checkpoint: lists, trees, a tensor by its name, lineage. Data is read only when it is
-- used. These are methods of mr.Checkpoint; results are lists of rows that print as tables.
-- @module moonreel.ckpt.look
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local clean = require "moonreel.text.clean"
local listing = require "moonreel.text.listing"
local compare = require "moonreel.ckpt.compare"
local entry = require "moonreel.ckpt.entry"
local names = require "moonreel.ckpt.names"
local nearest = require "moonreel.text.nearest"
local numbers = require "moonreel.ckpt.numbers"

local look = {}
local methods = { find = numbers.find, ema_gap = numbers.ema_gap, moments = numbers.moments,
  fits = compare.fits }
look.methods = methods

-- ---- lists

local columns = { { key = "name" }, { key = "shape", format = listing.shape }, { key = "dtype" },
  { key = "bytes", title = "size", right = true, format = listing.size } }

--- Tensors that match a pattern, in natural order.
---@param pattern string|nil  `*` matches any text, including dots
function methods:ls(pattern)
  local rows, total = {}, 0
  for _, name in ipairs(names.matching(names.sort(self:names()), pattern)) do
    rows[#rows + 1] = entry(self, name)
    total = total + rows[#rows].bytes
  end
  return listing.new(rows, columns, ("%d tensors, %s"):format(#rows, listing.size(total)))
end

--- The number of tensors, elements and bytes, by kind (weights, EMA, moments).
---@param pattern string|nil
function methods:count(pattern)
  local sums, rows = {}, {}
  for _, name in ipairs(names.matching(self:names(), pattern)) do
    local kind, info = names.kind(name), self:info(name)
    if not sums[kind] then
      sums[kind] = { kind = kind, tensors = 0, elements = 0, bytes = 0 }
      rows[#rows + 1] = sums[kind]
    end
    local s = sums[kind]
    s.tensors, s.elements, s.bytes = s.tensors + 1, s.elements + T.count(info.shape),
      s.bytes + info.bytes
  end
  return listing.new(rows, { { key = "kind" }, { key = "tensors", right = true },
    { key = "elements", right = true },
    { key = "bytes", title = "size", right = true, format = listing.size } })
end

--- The names as a tree, summed below `depth` levels.
---@param depth integer|nil  2
function methods:tree(depth)
  local rows, by_path = {}, {}
  for _, name in ipairs(names.sort(self:names())) do
    local info, path, level = self:info(name), "", 0
    for part in name:gmatch("[^.]+") do
      level = level + 1
      if level > (depth or 2) then
        break
      end
      path = path == "" and part or path .. "." .. part
      local row = by_path[path]
      if not row then
        row = { path = path, shown = ("  "):rep(level - 1) .. part, tensors = 0,
          elements = 0, bytes = 0 }
        by_path[path] = row
        rows[#rows + 1] = row
      end
      row.tensors, row.elements, row.bytes = row.tensors + 1, row.elements + T.count(info.shape),
        row.bytes + info.bytes
    end
  end
  return listing.new(rows, { { key = "shown", title = "name" }, { key = "tensors", right = true },
    { key = "elements", right = true },
    { key = "bytes", title = "size", right = true, format = listing.size } })
end

-- ---- lineage

local function run_dir(ckpt) return ckpt.manifest and ckpt.path:match("^(.*)/ckpt/[^/]+$") end

local fields = {}

-- the settings of its run
function fields.settings(ckpt)
  local run = run_dir(ckpt)
  local path = run and run .. "/settings.json"
  if path and base.exists(path) then
    return require("moonreel.settings").load(path)
  end
  return nil
end

-- its origin: rows of key and value from the manifest
function fields.lineage(ckpt)
  local rows = {}
  if not ckpt.manifest then
    rows[1] = { key = "file", value = ckpt.path }
    for key, value in pairs(ckpt.metadata or {}) do
      rows[#rows + 1] = { key = clean(key), value = clean(value) }
    end
    return listing.new(rows, { { key = "key" }, { key = "value" } },
      "plain weights, not verified: no hashes")
  end
  for _, key in ipairs { "step", "run", "fence", "written", "recipe_hash",
      "dataset_fingerprint", "seed", "parent", "code", "machine" } do
    local value = ckpt.manifest[key]
    if value ~= nil then
      rows[#rows + 1] = { key = key,
        value = clean(type(value) == "table" and json.encode(value) or value) }
    end
  end
  return listing.new(rows, { { key = "key" }, { key = "value" } }, ckpt.verified and "verified"
    or "not verified: ckpt:verify() compares all hashes")
end

--- A field of a checkpoint that is computed on first use: settings, lineage, or a tensor by its
-- name. Raises MR_E_USAGE, with the nearest name, for other names.
function look.field(ckpt, key)
  if fields[key] then
    return fields[key](ckpt)
  end
  local found = entry(ckpt, key)
  if found then
    return found
  end
  local known = ckpt:names()
  for _, more in ipairs { methods, fields } do
    for name in pairs(more) do
      known[#known + 1] = name
    end
  end
  local near = nearest(key, known)
  base.raise("MR_E_USAGE", ("%s: there is no tensor, field or method '%s'%s"):format(ckpt.path,
    clean(key),
    near and (", did you mean '%s'?"):format(near) or "; try: ckpt:ls()"))
end

--- One line about a checkpoint.
function look.text(ckpt)
  local n, elems = 0, 0
  for _, name in ipairs(ckpt:names()) do
    if names.kind(name) == "weights" then
      elems = elems + T.count(ckpt:info(name).shape)
    end
    n = n + 1
  end
  return ("checkpoint %s: %s%d tensors, %.4g weights, %s, %s"):format(clean(ckpt.path),
    ckpt.step and ("step %d, "):format(ckpt.step) or "", n, elems, listing.size(ckpt.bytes),
    ckpt.verified and "verified" or "not verified")
end

return look
