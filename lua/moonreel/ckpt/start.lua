--- Weights to start from: which tensor of a file becomes which parameter of a model, under any of
-- its names, and how other tensors are treated. A tensor is read only when it is used.
--
-- A family of models may have a map (models/FAMILY/weights.lua):
--   layouts  list of {name, is = function(has) -> boolean, rename = {{Lua pattern, text}, ...},
--            or function(has) -> such rules, dropped = {name = why}, fresh = {{Lua pattern, why,
--            names as people read them}, ...}}: files of other programs, `has` is the set of
--            their names
--   made     function(parameter, has, said) -> {from = names, make = function(tensors) -> tensor,
--            how = text} or nil: a parameter of tensors that the file has in another form; names
--            are what the layout makes of the file's, `has` is the set of them, and `said` are the
--            model's fields as the file itself has them (start.said)
--   fit      {parameter = function(tensor, shape) -> tensor, text; nil: it cannot}: shapes that
--            may differ
--   sizes    rows {field of config.json, parameter, axis from 1}
--   counts   rows {field of config.json, pattern that counts blocks from 0}
--   fields   the model's fields; absent: files may have other sizes than it
--   kinds    list of {name, is, facts = {{name, tensor, axis from 1}, {name, pattern that counts
--            from 0}}}: what files hold, for people
-- @module moonreel.ckpt.start
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local listing = require "moonreel.text.listing"
local look = require "moonreel.core.look"
local names = require "moonreel.ckpt.names"
local json = require "moonreel.core.json"
local read_config = require "moonreel.text.config"

local start = {}

-- in a plain file that was made from a checkpoint: the fields of its model
start.METADATA = "moonreel.model"

-- prefixes of names that do not belong to the model; true: these are averages of weights
local words = { state_dict = false, state_dict_ema = true, model = false, module = false,
  vae = false, ema = true, master = false, transformer = false, diffusion_model = false,
  ema_model = true }

-- words that wrappers of modules insert anywhere in a name
local wrappers = { "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module",
  "_forward_module" }

-- the ways to read a name: unchanged, and without prefixes
local function readings(name)
  local list, at, averaged = { { name = name, prefix = "", averaged = false } }, 1, false
  for _, word in ipairs(wrappers) do
    name = name:gsub("%f[%w_]" .. word .. "%.", "")
  end
  list[2] = name ~= list[1].name and { name = name, prefix = "", averaged = false } or nil
  while true do
    local word, stop = name:match("^([%w_]+)%.()", at)
    if words[word] == nil then
      return list
    end
    averaged, at = averaged or words[word], stop
    list[#list + 1] = { name = name:sub(at), prefix = name:sub(1, at - 1), averaged = averaged }
  end
end

local function last(list) return list[#list] end

--- Names of tensors without prefixes.
---@param source mr.Checkpoint
---@return table<string, string>  the name in the file, by the name without prefixes
function start.bare(source)
  local bare = {}
  for _, name in ipairs(source:names()) do
    local reading = last(readings(name))
    -- averages and masters are stored in addition to the weights, or instead of them
    local instead = reading.averaged or reading.prefix:find "%f[%w]master%."
    if not instead or not bare[reading.name] then
      bare[reading.name] = name
    end
  end
  return bare
end

--- Fields of the model in the file itself: of a checkpoint in its manifest, of a file from `ckpt
-- convert` in its metadata. Other files have none.
---@param source mr.Checkpoint
---@return table
function start.said(source)
  local run = source.manifest and source.manifest.settings
  local text = run or source.metadata and source.metadata[start.METADATA]
  local said = text and json.decode(text, source.path) or {}
  return run and said.settings and said.settings.model or not run and said or {}
end

-- the kind of tensor that a name means: "weights", "averages" or "masters"
local function kind_of(reading)
  return reading.averaged and "averages" or reading.prefix:find "%f[%w]master%." and "masters"
    or "weights"
end

-- the layout of another program that matches the names, or an empty one
local function layout_of(has, maps)
  for _, map in ipairs(maps) do
    for _, layout in ipairs(map.layouts or {}) do
      if layout.is(has) then
        local rules = layout.rename
        return setmetatable({ rename = type(rules) == "function" and rules(has) or rules },
          { __index = layout })
      end
    end
  end
  return { rename = {}, dropped = {}, fresh = {} }
end

local function renamed(layout, name)
  for _, rule in ipairs(layout.rename) do
    name = name:gsub(rule[1], rule[2])
  end
  return name
end

-- the layout that matches the names of a file; the file's names by those in the layout; the same
-- for each kind
local function named(source, maps)
  local bare, own = start.bare(source), {}
  local layout, kinds = layout_of(bare, maps), { weights = {}, averages = {}, masters = {} }
  for name, file in pairs(bare) do
    own[renamed(layout, name)] = file
  end
  for _, file in ipairs(source:names()) do
    local reading = last(readings(file))
    kinds[kind_of(reading)][renamed(layout, reading.name)] = file
  end
  return layout, own, kinds
end

local function why_fresh(layout, name)
  for _, rule in ipairs(layout.fresh) do
    if name:find(rule[1]) then
      return rule[2], rule[3]
    end
  end
end

-- the file's names for these, or nil if one is missing
local function files_of(own, names_of)
  local files = {}
  for i, name in ipairs(names_of) do
    files[i] = own[name]
  end
  return #files == #names_of and files or nil
end

-- how a parameter is made, if a map says so and the file has the tensors for it: {of = {kind ->
-- names in the file}, make, how}
local function made_of(maps, parameter, own, kinds, said)
  for _, map in ipairs(maps) do
    local row = map.made and map.made(parameter, own, said)
    if row then
      local of = {}
      for kind, names_of in pairs(kinds) do
        of[kind] = files_of(names_of, row.from)
      end
      of.weights = of.weights or not next(of) and files_of(own, row.from) or nil
      return next(of) and { of = of, make = row.make, how = row.how } or nil
    end
  end
end

local function same_shape(a, b) return table.concat(a, ",") == table.concat(b, ",") end

-- The similarity of two names: the number of equal parts at the end, and the number of equal
-- letters of the part before them.
local function likeness(a, b)
  local i, j = #a, #b
  while i > 0 and j > 0 and a:byte(i) == b:byte(j) do
    i, j = i - 1, j - 1
  end
  return #a - i
end

--- Similar names in a file and a model, for a file of which no tensor fits: each of the model's
-- names once, the longest common ends first.
---@param source mr.Checkpoint
---@param params table[]  list of a parameter table
---@return string         "'a' of the file is near 'b' of the model", at most three of them
function start.nearest(source, params)
  local rows, texts, used, seen = {}, {}, {}, {}
  for _, name in ipairs(source:names()) do
    local best
    for _, p in ipairs(params) do
      local alike = likeness(name, p.name)
      if not best or alike > best.alike then
        best = { alike = alike, file = name, model = p.name }
      end
    end
    rows[#rows + 1] = best
  end
  table.sort(rows, function(a, b)
    if a.alike ~= b.alike then
      return a.alike > b.alike
    end
    return a.file < b.file
  end)
  for _, row in ipairs(rows) do
    -- blocks of one kind count as one example
    local kind = row.model:gsub("%d+", "*")
    if #texts < 3 and not used[row.model] and not seen[kind] then
      used[row.model], seen[kind] = true, true
      texts[#texts + 1] = ("'%s' of the file is nearest to '%s' of the model"):format(row.file,
        row.model)
    end
  end
  return table.concat(texts, "\n  ")
end

--- Finds the tensor of a file for each parameter.
---@param source mr.Checkpoint
---@param params table[]     list of a parameter table
---@param maps table[]|nil   of the families of models
---@return table plan        found[parameter] = {weights, averages, masters: names of tensors; or
---   made: {of: lists of names by these kinds, make, how}}; layout, dropped, unexpected
function start.plan(source, params, maps)
  local known, plan, used = {}, { found = {}, dropped = {}, unexpected = {} }, {}
  local layout, own_names, kinds = named(source, maps or {})
  local said = start.said(source)
  for _, p in ipairs(params) do
    local made = made_of(maps or {}, p.name, own_names, kinds, said)
    known[p.name], plan.found[p.name] = not made, { made = made }
    for _, files in pairs(made and made.of or {}) do
      for _, name in ipairs(files) do
        used[name] = true
      end
    end
  end
  plan.layout, plan.why_fresh = layout.name, function(name) return why_fresh(layout, name) end
  for _, name in ipairs(source:names()) do
    local taken
    local kind, parameter = names.kind(name)
    for _, reading in ipairs(readings(name)) do
      local own = renamed(layout, reading.name)
      if known[own] and not taken then
        taken = kind_of(reading)
        local found = plan.found[own]
        if found[taken] then
          plan.dropped[#plan.dropped + 1] = { name = name,
            why = found[taken] .. " is the same parameter" }
        end
        found[taken] = found[taken] or name
      end
    end
    local why = layout.dropped[last(readings(name)).name]
      or parameter:find("^discriminator%.") and "trained along with the model" or nil
    if why and not taken then
      plan.dropped[#plan.dropped + 1] = { name = name, why = why }
    elseif not taken and not used[name]
        and not (kind ~= "weights" and (known[parameter] or used[parameter])) then
      plan.unexpected[#plan.unexpected + 1] = name
    end
  end
  return plan
end

-- dtypes of tensors; others are converted to f32
local direct = { f64 = true, f32 = true, bf16 = true, i64 = true, i32 = true, u8 = true,
  bool = true }

--- A tensor of a file, in its own dtype if tensors support it, else in f32.
---@param source mr.Checkpoint
---@param name string
---@return mr.Tensor
function start.tensor(source, name)
  local info = source:info(name)
  local t = T.new(direct[info.dtype] and info.dtype or "f32", info.shape)
  if direct[info.dtype] then
    source:read(name, t:ptr())
  else
    source.handle:read_f32(name, t)
  end
  return t
end

-- the order of preference if a file has several tensors for a parameter
local function order_of(p, how)
  local order = {}
  order[1] = how.average and not p.frozen and "averages" or nil
  order[#order + 1] = how.exact and not p.frozen and "masters" or nil
  return table.move({ "weights", "masters", "averages" }, 1, 3, #order + 1, order)
end

-- a tensor converted to the parameter's shape; nil: it cannot be
local function fitted(maps, name, t, shape)
  if same_shape(t.shape, shape) then
    return t
  end
  for _, map in ipairs(maps) do
    local fit = map.fit and map.fit[name]
    if fit then
      return fit(t, shape)
    end
  end
end

-- a parameter made from tensors in another form; nil: its shape differs
local function made_tensor(source, made, files, shape)
  local tensors = {}
  for i, name in ipairs(files) do
    tensors[i] = start.tensor(source, name)
  end
  local t = made.make(tensors)
  return t and same_shape(t.shape, shape) and t or nil
end

--- Refuses a tensor with non-finite values, which would make every loss and every picture invalid:
-- MR_E_NONFINITE.
---@param source mr.Checkpoint
---@param name string  name of the tensor
---@param t mr.Tensor
function start.refuse_nonfinite(source, name, t)
  local bad = look.summary(t).nonfinite
  if bad > 0 then
    base.raise("MR_E_NONFINITE", ("%s: tensor '%s' %s: %d of %d numbers are not finite; try: "
      .. "ckpt:find{nonfinite = true} at the prompt, which lists them all, or other weights")
      :format(source.path, name, listing.shape(t.shape), bad, T.count(t.shape)))
  end
end

--- Reads start weights one by one.
---@param source mr.Checkpoint
---@param params table[]   list of a parameter table
---@param how table        maps; average, exact: take averages or f32 masters if the file has them
---   in addition to the weights; finite: raise MR_E_NONFINITE for a tensor with other values
---@param take fun(p: table, t: mr.Tensor)  called with every parameter that was found
---@return table report    loaded, missing, unexpected: lists of names; fresh, dropped: {name, why};
---   resized: {name, file, model, how}; made: {name, why}; differ: {name, file, model}, also among
---   the missing; layout
function start.read(source, params, how, take)
  local maps = how.maps or {}
  local plan = start.plan(source, params, maps)
  local report = { loaded = {}, missing = {}, fresh = {}, resized = {}, differ = {}, made = {},
    unexpected = plan.unexpected, dropped = plan.dropped, layout = plan.layout }
  for _, p in ipairs(params) do
    local from, made = nil, plan.found[p.name].made
    for _, kind in ipairs(order_of(p, how)) do
      from = from or (made and made.of or plan.found[p.name])[kind]
    end
    local t, changed
    if made then
      t, from = made_tensor(source, made, from, p.shape), from[1]
      report.made[#report.made + 1] = t and { name = p.name, why = made.how } or nil
    elseif from then
      t, changed = fitted(maps, p.name, start.tensor(source, from), p.shape)
    end
    local row = { name = p.name, file = from and source:info(from).shape, model = p.shape,
      how = changed }
    row.why, row.shown = plan.why_fresh(p.name)
    if t then
      if how.finite then
        start.refuse_nonfinite(source, from, t)
      end
      take(p, t)
      report.loaded[#report.loaded + 1] = p.name
    end
    if t and changed then
      report.resized[#report.resized + 1] = row
    elseif from and not t then
      report.differ[#report.differ + 1] = row
    elseif row.why and not from then
      report.fresh[#report.fresh + 1] = row
    end
    if not t and (from or not row.why) then
      report.missing[#report.missing + 1] = p.name
    end
  end
  return report
end

-- ---- tables

-- rows of one kind whose names differ only in numbers become one line
local function grouped(out, fate, rows)
  local seen = {}
  for _, row in ipairs(rows) do
    local shown = row.shown or row.name:gsub("%f[%w]%d+%f[%W]", "*")
    local key = shown .. "\0" .. row.why
    local line = seen[key]
    if not line then
      line = { fate = fate, name = row.name, count = 0, why = row.why }
      seen[key], out[#out + 1] = line, line
    end
    line.count = line.count + 1
    line.name = line.count > 1 and shown or row.name
  end
end

local function reasons(list, why)
  local rows, shaped = {}, {}
  for _, row in ipairs(why) do
    shaped[row.name] = ("%s in the file, %s in the model"):format(listing.shape(row.file),
      listing.shape(row.model))
  end
  for i, name in ipairs(list) do
    rows[i] = { name = name, why = shaped[name] or "not in the file" }
  end
  return rows
end

--- The number of tensors in the report, as one line.
---@param report table  from start.read
---@return string
function start.summary(report)
  return ("%d tensors loaded, %d missing, %d unexpected%s"):format(#report.loaded, #report.missing,
    #report.unexpected, report.layout and ", names of " .. report.layout or "")
end

--- A table of all tensors that were not loaded unchanged.
---@param report table  from start.read
---@return table rows   {fate, name, count, why}
function start.table(report)
  local rows, resized, unexpected = {}, {}, {}
  for i, row in ipairs(report.resized) do
    resized[i] = { name = row.name, why = ("%s to %s: %s"):format(listing.shape(row.file),
      listing.shape(row.model), row.how) }
  end
  for i, name in ipairs(report.unexpected) do
    unexpected[i] = { name = name, why = "no parameter of this name" }
  end
  grouped(rows, "converted", report.made)
  grouped(rows, "resized", resized)
  grouped(rows, "dropped", report.dropped)
  grouped(rows, "left fresh", report.fresh)
  grouped(rows, "missing", reasons(report.missing, report.differ))
  grouped(rows, "unexpected", unexpected)
  return listing.new(rows, { { key = "fate", title = "" }, { key = "name", title = "tensor" },
    { key = "count", title = "tensors", right = true }, { key = "why" } }, start.summary(report))
end

local function names_of(rows)
  local list = {}
  for i, row in ipairs(rows) do
    list[i] = row.name
  end
  return list
end

--- Refuses weights that lack a parameter or have unknown tensors.
---@param path string
---@param report table  from start.read
function start.refuse(path, report)
  local function report_names(what, list, why)
    if #list > 0 then
      base.raise("MR_E_CKPT", ("%s: %d tensors are %s, the first is '%s'%s; try: leave --strict "
        .. "out")
        :format(path, #list, what, list[1], why or ""))
    end
  end
  local first = report.differ[1]
  if first then
    report_names("of another shape", names_of(report.differ),
      (", %s in the file, %s in the model"):format(listing.shape(first.file),
        listing.shape(first.model)))
  end
  report_names("missing", report.missing)
  report_names("unexpected", report.unexpected)
end

-- ---- config.json

-- the number of blocks that names count, and the file's first name of the last one; 0: there are
-- none
local function counted(own, pattern)
  local count, name = 0, nil
  for parameter, file in pairs(own) do
    local n = math.tointeger(parameter:match(pattern))
    if n and (n >= count or n == count - 1 and file < name) then
      count, name = n + 1, file
    end
  end
  return count, name
end

-- calls f(field, text about it, value in the file) for every size that differs from `said`; `own`:
-- the file's names by those of the model
local function each_other_size(source, own, map, said, f)
  for _, row in ipairs(map.sizes or {}) do
    local field, parameter, axis = table.unpack(row, 1, 3)
    local want, name = math.tointeger(said[field]), own[parameter]
    local shape = name and source:info(name).shape
    if want and shape and shape[axis] ~= want then
      f(field, ("%s is %d, but '%s' is %s: its axis %d has %s"):format(field, want, name,
        listing.shape(shape), axis - 1, tostring(shape[axis])), shape[axis])
    end
  end
  for _, row in ipairs(map.counts or {}) do
    local want, count, name = math.tointeger(said[row[1]]), counted(own, row[2])
    if want and count > 0 and want ~= count then
      f(row[1], ("%s is %d, but counting blocks like that of '%s' gives %d"):format(row[1],
        want, name, count), count)
    end
  end
end

--- Compares released weights with config.json next to them, and with the fields of models that have
-- a fixed size; raises an error if they contradict each other.
---@param source mr.Checkpoint
---@param maps table[]
function start.check_sizes(source, maps)
  local path = source.path .. "/config.json"
  local config = base.exists(path) and read_config(path) or {}
  local _, own = named(source, maps)
  for _, map in ipairs(maps) do
    each_other_size(source, own, map, config, function(_, text)
      base.raise("MR_E_CKPT", path .. ": " .. text)
    end)
    each_other_size(source, own, map, map.fields or {}, function(field, text, value)
      base.raise("MR_E_CKPT", ("%s: model.%s; try: model.%s = %s"):format(source.path, text, field,
        tostring(value)))
    end)
  end
end

return start
