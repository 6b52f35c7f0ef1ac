--- Looking into a checkpoint: lists, trees, numbers by layer, differences. Nothing is read before it is asked for.
-- Methods of mr.Checkpoint and functions over one or two of them; results are lists of rows that print as tables.
-- @module moonreel.ckpt.look
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local clean = require "moonreel.text.clean"
local listing = require "moonreel.text.listing"
local names = require "moonreel.ckpt.names"

local look = {}
local methods = {}
look.methods = methods

local function elements(shape)
  local n = 1
  for _, d in ipairs(shape) do n = n * d end
  return n
end

local function same(a, b) return table.concat(a, ",") == table.concat(b, ",") end

-- ---- one tensor -----------------------------------------------------------------------------------------

---@class moonreel.Entry
---@field name string
---@field dtype string
---@field shape integer[]
---@field bytes integer
local Entry = { __name = "moonreel.Entry" }
local own = {}

local direct = { f64 = true, f32 = true, bf16 = true, i64 = true, i32 = true, u8 = true, bool = true }

--- The tensor, read now; dtypes that nothing computes with (f16, f8, ...) become f32.
---@return mr.Tensor
function own:tensor()
  if self.kept then return self.kept end
  local t
  if direct[self.dtype] then
    t = T.new(self.dtype, self.shape)
    if elements(self.shape) > 0 then self.ckpt:read(self.name, t:ptr()) end
  else
    t = T.new("f32", self.shape)
    self.ckpt.handle:read_f32(self.name, t)
  end
  rawset(self, "kept", t)
  return t
end

--- Numbers of the tensor, read piece by piece.
function own:stats() return self.ckpt:stats(self.name) end

--- Counts of the finite values in equal bins, read piece by piece.
---@param bins integer|nil  32
function own:hist(bins)
  local at, n, piece = 0, elements(self.shape), 1 << 20
  return require("moonreel.look.tensor").histogram(function()
    if at >= n then return nil end
    local t = T.new("f32", { math.min(piece, n - at) })
    self.ckpt.handle:read_f32(self.name, t, at)
    at = at + piece
    return t
  end, self:stats(), bins or 32)
end

--- Write it to a file; see save of a tensor.
---@param path string
function own:save(path) return require("moonreel.look.tensor").save(self:tensor(), path) end

-- positions and whatever else a tensor can do
function Entry.__index(self, key)
  if own[key] then return own[key] end
  if math.type(key) == "integer" or type(key) == "string" and key:find("^%s*[%d:-]") then return self:tensor()[key] end
  local method = T.methods[key]
  return method and function(_, ...) return method(self:tensor(), ...) end
end

function Entry.__tostring(self)
  return ("%s  %s %s  %s"):format(clean(self.name), listing.shape(self.shape), self.dtype, listing.size(self.bytes))
end

--- A tensor by name, not read yet; nil when there is none.
---@return moonreel.Entry|nil
function look.entry(ckpt, name)
  local info = ckpt:info(name)
  if not info then return nil end
  info.ckpt = ckpt
  return setmetatable(info, Entry)
end

-- ---- lists -------------------------------------------------------------------------------------------------

local columns = { { key = "name" }, { key = "shape", format = listing.shape }, { key = "dtype" },
  { key = "bytes", title = "size", right = true, format = listing.size } }

--- Tensors that a pattern matches, in natural order.
---@param pattern string|nil  `*` stands for anything, dots too
function methods:ls(pattern)
  local rows, total = {}, 0
  for _, name in ipairs(names.matching(names.sort(self:names()), pattern)) do
    rows[#rows + 1] = look.entry(self, name)
    total = total + rows[#rows].bytes
  end
  return listing.new(rows, columns, ("%d tensors, %s"):format(#rows, listing.size(total)))
end

--- How many tensors, elements and bytes, by kind (weights, EMA, moments).
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
    s.tensors, s.elements, s.bytes = s.tensors + 1, s.elements + elements(info.shape), s.bytes + info.bytes
  end
  return listing.new(rows, { { key = "kind" }, { key = "tensors", right = true }, { key = "elements", right = true },
    { key = "bytes", title = "size", right = true, format = listing.size } })
end

--- Names as a tree, summed below `depth` levels.
---@param depth integer|nil  2
function methods:tree(depth)
  local rows, by_path = {}, {}
  for _, name in ipairs(names.sort(self:names())) do
    local info, path, level = self:info(name), "", 0
    for part in name:gmatch("[^.]+") do
      level = level + 1
      if level > (depth or 2) then break end
      path = path == "" and part or path .. "." .. part
      local row = by_path[path]
      if not row then
        row = { path = path, shown = ("  "):rep(level - 1) .. part, tensors = 0, elements = 0, bytes = 0 }
        by_path[path] = row
        rows[#rows + 1] = row
      end
      row.tensors, row.elements, row.bytes = row.tensors + 1, row.elements + elements(info.shape), row.bytes + info.bytes
    end
  end
  return listing.new(rows, { { key = "shown", title = "name" }, { key = "tensors", right = true }, { key = "elements", right = true },
    { key = "bytes", title = "size", right = true, format = listing.size } })
end

--- Tensors with something in them: {nonfinite = true}, {zeros = true} (all zero), {above = x} (|value| > x). Reads all.
---@param want table  with pattern = "..." only those
function methods:find(want)
  local known, rows = { nonfinite = true, zeros = true, above = true, pattern = true }, {}
  for key in pairs(want) do
    if not known[key] then
      base.raise("MR_E_USAGE", ("find: no test '%s'; expected nonfinite, zeros, above or pattern"):format(tostring(key)))
    end
  end
  local list = names.matching(names.sort(self:names()), want.pattern)
  for _, name in ipairs(list) do
    local s = self:stats(name)
    local largest = math.max(math.abs(s.min), math.abs(s.max))
    if want.nonfinite and s.nonfinite > 0 or want.zeros and s.zeros == s.n or want.above and largest > want.above then
      rows[#rows + 1] = { name = name, n = s.n, nonfinite = s.nonfinite, zeros = s.zeros, largest = largest }
    end
  end
  return listing.new(rows, { { key = "name" }, { key = "n", right = true }, { key = "nonfinite", right = true },
    { key = "zeros", right = true }, { key = "largest", right = true } }, ("%d of %d tensors"):format(#rows, #list))
end

--- Does the model of a recipe find its weights here? Rows: missing, unexpected, and shapes that differ.
---@param recipe string|table  a recipe's name, or settings
function methods:fits(recipe)
  local settings = type(recipe) == "string" and require("moonreel.settings").bake(recipe) or recipe
  local parts = require("moonreel.models.pipeline").new({ model = settings:plain("model"), vae = settings:plain("vae"),
    text_encoder = settings:plain("text_encoder"), compat = settings.compat ~= nil }, "bf16")
  local rows, known = {}, {}
  for _, p in ipairs(parts.params:list()) do
    known[p.name] = true
    local info = self:info(p.name)
    -- what a checkpoint does not store is made anew from the recipe
    if not info and not p.buffer then
      rows[#rows + 1] = { name = p.name, problem = "missing", model = p.shape }
    elseif info and not same(info.shape, p.shape) then
      rows[#rows + 1] = { name = p.name, problem = "shape", model = p.shape, file = info.shape }
    end
  end
  for _, name in ipairs(names.sort(self:names())) do
    local _, parameter = names.kind(name)
    if not known[parameter] then rows[#rows + 1] = { name = name, problem = "unexpected", file = self:info(name).shape } end
  end
  local note = #rows == 0 and ("fits: %d parameters"):format(#parts.params:list())
    or ("%d problems; the model has %d parameters"):format(#rows, #parts.params:list())
  return listing.new(rows, { { key = "name" }, { key = "problem" }, { key = "model", format = listing.shape },
    { key = "file", format = listing.shape } }, note)
end

-- ---- numbers --------------------------------------------------------------------------------------------------

local function norm_of(s) return s.rms * math.sqrt(s.n - s.nonfinite) end

--- Norms by layer: of weights, of the EMA and its distance, of the optimizer's moments, where they are there. Reads all.
---@param ckpt mr.Checkpoint
---@param pattern string|nil  of parameter names
function look.norms(ckpt, pattern)
  local by_layer, rows, used = {}, {}, {}
  for _, name in ipairs(names.sort(ckpt:names())) do
    local kind, parameter = names.kind(name)
    if #names.matching({ parameter }, pattern) == 1 then
      local layer = names.layer(parameter)
      local row = by_layer[layer]
      if not row then
        row = { layer = layer, parameters = 0, squares = {}, elements = 0 }
        by_layer[layer] = row
        rows[#rows + 1] = row
      end
      local s = ckpt:stats(name)
      used[kind] = true
      row.squares[kind] = (row.squares[kind] or 0) + norm_of(s) ^ 2
      if kind == "weights" then row.parameters, row.elements = row.parameters + 1, row.elements + s.n end
    end
  end
  local shown = { { key = "layer" }, { key = "parameters", right = true }, { key = "elements", right = true } }
  for _, kind in ipairs { "weights", "master", "ema", "adam_m", "adam_v" } do
    if used[kind] then shown[#shown + 1] = { key = kind, right = true } end
  end
  for _, row in ipairs(rows) do
    for kind, sum in pairs(row.squares) do row[kind] = math.sqrt(sum) end
    row.squares = nil
  end
  return listing.new(rows, shown)
end

-- tensors of two names as one f32 stream of pieces
local function distance(ckpt, a, b)
  local n, piece, sum, at = elements(ckpt:info(a).shape), 1 << 18, 0, 0
  while at < n do
    local x, y = T.new("f32", { math.min(piece, n - at) }), T.new("f32", { math.min(piece, n - at) })
    ckpt.handle:read_f32(a, x, at)
    ckpt.handle:read_f32(b, y, at)
    local s = require("moonreel.core.look").summary(x - y)
    sum, at = sum + norm_of(s) ^ 2, at + piece
  end
  return math.sqrt(sum)
end

--- How far the averaged weights are from the trained ones, by parameter: |ema - w| and relative to |w|. Reads both.
---@param pattern string|nil
function methods:ema_gap(pattern)
  local rows = {}
  for _, name in ipairs(names.sort(self:names())) do
    local kind, parameter = names.kind(name)
    if kind == "ema" and #names.matching({ parameter }, pattern) == 1 then
      local weight = self:info("master." .. parameter) and "master." .. parameter or parameter
      if self:info(weight) then
        local gap, size = distance(self, name, weight), norm_of(self:stats(weight))
        rows[#rows + 1] = { name = parameter, gap = gap, relative = size > 0 and gap / size or 0 }
      end
    end
  end
  return listing.new(rows, { { key = "name" }, { key = "gap", right = true }, { key = "relative", right = true } },
    #rows == 0 and "no averaged weights in it" or nil)
end

--- The optimizer's moments by parameter: rms of m, of v, and the size of a step m / sqrt(v).
---@param pattern string|nil
function methods:moments(pattern)
  local rows = {}
  for _, name in ipairs(names.sort(self:names())) do
    local kind, parameter = names.kind(name)
    if kind == "adam_m" and self:info("adam_v." .. parameter) and #names.matching({ parameter }, pattern) == 1 then
      local m, v = self:stats(name), self:stats("adam_v." .. parameter)
      rows[#rows + 1] = { name = parameter, m = m.rms, v = v.mean, step = v.mean > 0 and m.rms / math.sqrt(v.mean) or 0 }
    end
  end
  return listing.new(rows, { { key = "name" }, { key = "m", title = "rms m", right = true }, { key = "v", title = "mean v", right = true },
    { key = "step", title = "rms m / sqrt(mean v)", right = true } }, #rows == 0 and "no moments in it" or nil)
end

--- What differs between two checkpoints. Reads both.
---@param options table|nil  map = function(name) or {pattern = replacement} over the names of b; pattern
---@return table rows         {name, problem; only = "a" or "b"; a, b: shape and dtype; differing, of, first, max_abs}
---@return integer compared   tensors
function look.diff(a, b, options)
  local map = options and options.map
  local renamed, list, seen, rows = {}, {}, {}, {}
  for _, name in ipairs(b:names()) do
    local as = name
    if type(map) == "function" then
      as = map(name) or name
    elseif map then
      for pattern, replacement in pairs(map) do as = as:gsub(pattern, replacement) end
    end
    renamed[as] = name
  end
  local function add(name)
    if not seen[name] then list[#list + 1] = name end
    seen[name] = true
  end
  for _, name in ipairs(a:names()) do add(name) end
  for name in pairs(renamed) do add(name) end
  list = names.matching(names.sort(list), options and options.pattern)
  for _, name in ipairs(list) do
    local x, y = a:info(name), renamed[name] and b:info(renamed[name])
    if not (x and y) then
      local only = x and "a" or "b"
      rows[#rows + 1] = { name = name, problem = "only in " .. only, only = only }
    elseif x.dtype ~= y.dtype or not same(x.shape, y.shape) then
      local is, other = listing.shape(x.shape) .. " " .. x.dtype, listing.shape(y.shape) .. " " .. y.dtype
      rows[#rows + 1] = { name = name, problem = is .. " / " .. other, a = is, b = other }
    else
      local d = a:compare(b, name, renamed[name])
      if d.differing > 0 then
        rows[#rows + 1] = { name = name, problem = "differs", differing = d.differing, of = d.n, max_abs = d.max_abs, first = d.first }
      end
    end
  end
  return listing.new(rows, { { key = "name" }, { key = "problem" }, { key = "differing", right = true }, { key = "of", right = true },
    { key = "max_abs", title = "largest", right = true } }, #rows == 0
      and ("equal: %d tensors, bit for bit"):format(#list) or ("%d of %d tensors differ"):format(#rows, #list)), #list
end

local quantities = { norm = norm_of }
for _, key in ipairs { "min", "max", "mean", "rms", "nonfinite", "zeros" } do quantities[key] = function(s) return s[key] end end

--- A number of tensors over the checkpoints of a run, oldest first.
---@param run string      run directory
---@param what string     "norm", "min", "max", "mean", "rms", "nonfinite" or "zeros"
---@param pattern string  names; several tensors count as one (norm, rms: together; the rest: the mean)
function look.trend(run, what, pattern)
  local ckpt = require "moonreel.ckpt"
  if not quantities[what] then base.raise("MR_E_USAGE",
    ("trend: no number '%s'; expected norm, min, max, mean, rms, nonfinite or zeros"):format(tostring(what))) end
  local steps, rows = ckpt.steps(type(run) == "table" and run.path or run), {}
  for i = #steps, 1, -1 do
    local c <close> = ckpt.open(ckpt.dir(type(run) == "table" and run.path or run, steps[i]))
    local list, sum, n = names.matching(c:names(), pattern), 0, 0
    local joined = what == "norm" or what == "rms"
    for _, name in ipairs(list) do
      local s = c:stats(name)
      sum = sum + (joined and norm_of(s) ^ 2 or quantities[what](s))
      n = n + (joined and s.n or 1)
    end
    if #list > 0 then
      rows[#rows + 1] = { step = steps[i], value = what == "norm" and math.sqrt(sum) or what == "rms"
        and math.sqrt(sum / n) or sum / n, tensors = #list }
    end
  end
  if #rows == 0 then base.raise("MR_E_USAGE", ("trend: no checkpoint with a tensor '%s'"):format(tostring(pattern))) end
  return listing.new(rows, { { key = "step", right = true }, { key = "value", title = what, right = true },
    { key = "tensors", right = true } })
end

-- ---- where it comes from ------------------------------------------------------------------------------------------

local function run_dir(ckpt) return ckpt.manifest and ckpt.path:match("^(.*)/ckpt/[^/]+$") end

local fields = {}

-- the settings of its run
function fields.settings(ckpt)
  local run = run_dir(ckpt)
  local path = run and run .. "/settings.json"
  if path and base.exists(path) then return require("moonreel.settings").load(path) end
  return nil
end

-- who wrote it: rows of key and value from the manifest
function fields.lineage(ckpt)
  local rows = {}
  if not ckpt.manifest then
    rows[1] = { key = "file", value = ckpt.path }
    for key, value in pairs(ckpt.metadata or {}) do rows[#rows + 1] = { key = clean(key), value = clean(value) } end
    return listing.new(rows, { { key = "key" }, { key = "value" } }, "plain weights, not verified: no hashes")
  end
  for _, key in ipairs { "step", "run", "fence", "written", "recipe_hash", "dataset_fingerprint", "seed", "parent", "code", "machine" } do
    local value = ckpt.manifest[key]
    if value ~= nil then rows[#rows + 1] = { key = key, value = clean(type(value) == "table" and json.encode(value) or value) } end
  end
  return listing.new(rows, { { key = "key" }, { key = "value" } }, "not verified: ckpt:verify() compares all hashes")
end

--- A field of a checkpoint that is found when asked for: settings, lineage, or a tensor by its name.
function look.field(ckpt, key)
  if fields[key] then return fields[key](ckpt) end
  return type(key) == "string" and look.entry(ckpt, key) or nil
end

--- One line about a checkpoint.
function look.text(ckpt)
  local n, elems = 0, 0
  for _, name in ipairs(ckpt:names()) do
    if names.kind(name) == "weights" then elems = elems + elements(ckpt:info(name).shape) end
    n = n + 1
  end
  return ("checkpoint %s: %s%d tensors, %.4g weights, %s, not verified"):format(clean(ckpt.path), ckpt.step
    and ("step %d, "):format(ckpt.step) or "",
    n, elems, listing.size(ckpt.bytes))
end

return look
