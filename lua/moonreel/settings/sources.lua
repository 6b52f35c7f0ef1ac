--- The sources of a run's samples, from its settings: one index, or several indexes that are drawn
-- by weights. Phases change the weights. Ref: dataplane 4.10.
-- @module moonreel.settings.sources
local blame = require "moonreel.settings.blame"
local nearest = require "moonreel.text.nearest"

local sources = {}

local BLEND_SHARE, BLEND_STEPS = 0.05, 200
local UNITS <const> = 2 ^ 32 -- units of a share of 1 in the order
local TRIM_TOP = 0.0001 -- removing this share of the largest values has stopped a divergence

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return keys
end

-- ---- phases ----

-- largest number of samples in a step, for any number of ranks
local function step_samples(settings)
  local most = 1
  for _, lengths in pairs(settings:plain("bucket_config") or {}) do
    for _, entry in pairs(lengths) do
      most = math.max(most, math.tointeger(entry[2]) or 1)
    end
  end
  return most * settings.virtual_ranks * settings.accumulate
end

-- refuses a weight that rounds to a share of 0, because its source would never be drawn
local function check_share(settings, phase, i, name, weight, sum)
  if weight == 0 or weight / sum * UNITS >= 1 then
    return
  end
  local source = ("dataset.sources.%s."):format(name)
  local own = phase.weights and phase.weights[name]
  local field = own and ("dataset.phases.%d.weights.%s"):format(i, name) or source .. "weight"
  local set = own or settings:plain("dataset.sources")[name].weight
  blame.raise(settings, set and field or source .. "data_path", "MR_E_RECIPE", "%s is %g, but the "
    .. "other weights sum to %g, so no sample of it is ever drawn; expected 0, or %.3g and more",
    field, weight,
    sum - weight, 1.01 * (sum - weight) / UNITS)
end

-- the weights of the sources in a phase as shares of 1; raises an error for unknown names, or if
-- all are 0
local function shares_of(settings, list, phase, i)
  local weights, sum, names = {}, 0, {}
  for _, s in ipairs(list) do
    names[#names + 1] = s.name
    weights[s.name] = phase.weights and phase.weights[s.name] or s.weight
    sum = sum + weights[s.name]
  end
  for _, name in ipairs(sorted_keys(phase.weights or {})) do
    if not weights[name] then
      local near = nearest(name, names)
      blame.raise(settings, ("dataset.phases.%d.weights.%s"):format(i, name), "MR_E_RECIPE",
        "dataset.phases.%d.weights: there is no source '%s'%s; expected one of %s", i, name,
        near and (", did you mean '%s'?"):format(near) or "", table.concat(names, ", "))
    end
  end
  if sum <= 0 then
    local field = phase.weights and next(phase.weights)
      and ("dataset.phases.%d.weights.%s"):format(i, sorted_keys(phase.weights)[1])
      or "dataset.sources." .. list[1].name .. ".data_path"
    blame.raise(settings, field, "MR_E_RECIPE", "dataset.phases.%d: no source has a weight above "
      .. "0; try: a weight for one of %s", i, table.concat(names, ", "))
  end
  local shares = {}
  for _, name in ipairs(names) do
    check_share(settings, phase, i, name, weights[name], sum)
    shares[name] = weights[name] / sum
  end
  return shares
end

-- number of samples over which a phase replaces the one before it
local function window_of(settings, phases, i, step)
  local phase = phases[i]
  local field = ("dataset.phases.%d."):format(i)
  local whole = phase.samples or i > 1 and phases[i - 1].samples
  if not phase.samples and i < #phases then
    blame.raise(settings, field .. (next(phase.weights or {}) and "weights."
      .. sorted_keys(phase.weights)[1] or "samples"), "MR_E_RECIPE",
      "dataset.phases.%d has no end (samples), but %d phases follow it; expected samples above "
        .. "0; try: dataset.phases.%d.samples=1000000", i, #phases - i, i)
  elseif i == 1 then
    return 0
  elseif phase.blend and phase.blend > whole then
    blame.raise(settings, field .. "blend", "MR_E_RECIPE", "%sblend is %d samples, more than the "
      .. "phase of %d; expected at most the samples of the phase", field, phase.blend, whole)
  end
  return phase.blend
    or math.min(whole, math.max(math.floor(BLEND_SHARE * whole), BLEND_STEPS * step))
end

-- the phases of a recipe in their order; they are numbered from 1
local function phases_of(settings)
  local given = settings:plain("dataset.phases")
  if not given then
    return { {} }
  end
  for i, key in ipairs(sorted_keys(given)) do
    if key ~= i then
      blame.raise(settings, sources.field(settings), "MR_E_RECIPE", "dataset.phases has phase %d "
        .. "but no phase %d; expected consecutive numbers from 1", key, i)
    end
  end
  return #given > 0 and given or { {} }
end

-- weights of the sources by the number of drawn samples: {{samples, weight}, ...}
local function set_weights(settings, list)
  local phases, at, before = phases_of(settings), 0, nil
  local step = step_samples(settings)
  for i, phase in ipairs(phases) do
    local shares, window = shares_of(settings, list, phase, i), window_of(settings, phases, i, step)
    for _, s in ipairs(list) do
      s.weights = s.weights or {}
      if before then
        table.insert(s.weights, { at, before[s.name] })
      end
      table.insert(s.weights, { at + window, shares[s.name] })
    end
    before, at = shares, at + (phase.samples or 0)
  end
end

-- ---- the list ----

--- The field that says where samples come from.
---@param settings table
---@return string
function sources.field(settings)
  local given = settings:plain("dataset.sources")
  local first = given and sorted_keys(given)[1]
  return first and ("dataset.sources.%s.data_path"):format(first) or "dataset.data_path"
end

-- the first field below a path that was set
local function first_field(settings, path)
  for _, leaf in ipairs(settings:leaves()) do
    if leaf.path:sub(1, #path + 1) == path .. "." then
      return leaf.path
    end
  end
  return path
end

-- the rows of its index that belong to a source: {column, from, to, trim_top}; nil: all
local function quantiles_of(settings, s, field)
  local range = s.quantiles or { 0.0, 1.0 }
  if not s.column and (s.quantiles or s.trim_top) then
    blame.raise(settings, field .. (s.quantiles and "quantiles" or "trim_top"), "MR_E_RECIPE",
      "%scolumn is not set; expected the column of the index whose quantiles select rows; try: "
        .. "moonreel data stats NAME.mrx, which lists the columns", field)
  elseif range[1] >= range[2] then
    blame.raise(settings, field .. "quantiles", "MR_E_RECIPE", "%squantiles is { %g, %g }; "
      .. "expected the second number above the first; try: { 0, 0.5 }", field, range[1], range[2])
  end
  return s.column and { column = s.column, from = range[1], to = range[2],
    trim_top = s.trim_top or TRIM_TOP } or nil
end

-- samples that are not trained: a share below 1, or a count; nil: all are trained
local function hold_back_of(settings)
  local n = settings.dataset.hold_back
  if n > 1 and n % 1 > 0 then
    blame.raise(settings, "dataset.hold_back", "MR_E_RECIPE", "dataset.hold_back = %g; expected a "
      .. "share below 1, or a whole number of samples; try: %d", n, n // 1)
  end
  return n > 0 and n or nil
end

-- the path of a source's clips
local function path_of(settings, path, field)
  if path == "" then
    blame.raise(settings, field, "MR_E_RECIPE", "%s is empty; expected an index NAME.mrx, or a "
      .. "table of clips", field)
  end
  return path
end

--- A source without a name: an index or table of clips, with what settings say about all samples.
---@param settings table  baked
---@param path string
---@return table source   as in sources.of
function sources.single(settings, path)
  return { name = "", path = path, field = "dataset.data_path",
    hold_back = hold_back_of(settings), change = settings.data_change }
end

--- The sources of settings, by name. A source without a name is dataset.data_path.
---@param settings table  baked
---@return table[] list   {name, path, field, weights, epochs, quantiles, hold_back, change}; empty
---   if no source is given
function sources.of(settings)
  local given, list = settings:plain("dataset.sources"), {}
  local phases = settings:plain("dataset.phases")
  if not given or not next(given) then
    if phases and next(phases) then
      blame.raise(settings, first_field(settings, "dataset.phases"), "MR_E_RECIPE",
        "dataset.phases has weights of sources, but dataset.sources is not set; try: "
          .. "dataset.sources = { name = { data_path = ... } }, or dataset.phases=none")
    end
    local path = path_of(settings, settings.dataset.data_path, "dataset.data_path")
    return path and { sources.single(settings, path) } or {}
  elseif settings.dataset.data_path then
    blame.raise(settings, "dataset.data_path", "MR_E_RECIPE", "dataset.data_path is %q, but "
      .. "dataset.sources has %s; expected only one of the two fields; try: dataset.data_path=none",
      settings.dataset.data_path, table.concat(sorted_keys(given), ", "))
  end
  for i, name in ipairs(sorted_keys(given)) do
    local s, field = given[name], ("dataset.sources.%s."):format(name)
    if not s.data_path then
      blame.raise(settings, field .. sorted_keys(s)[1], "MR_E_RECIPE", "dataset.sources.%s has no "
        .. "data_path; expected an index NAME.mrx, or a table of clips", name)
    end
    list[i] = { name = name, path = path_of(settings, s.data_path, field .. "data_path"),
      field = field .. "data_path", weight = s.weight or 1.0, epochs = s.epochs,
      quantiles = quantiles_of(settings, s, field), hold_back = hold_back_of(settings),
      change = s.data_change or settings.data_change }
  end
  set_weights(settings, list)
  for _, s in ipairs(list) do
    local any = false
    for _, row in ipairs(s.weights) do
      any = any or row[2] > 0
    end
    if not any then
      blame.raise(settings, s.field, "MR_E_RECIPE", "dataset.sources.%s: its weight is 0 in every "
        .. "phase; expected a weight above 0 in some phase; try: dataset.sources.%s.weight=1, or "
        .. "leave it out", s.name,
        s.name)
    end
  end
  return list
end

-- ---- use of shares ----

local function weight_at(weights, x)
  if not weights or #weights == 0 then
    return 1
  end
  local before
  for _, row in ipairs(weights) do
    if row[1] > x then
      return before and before[2] + (x - before[1]) / (row[1] - before[1]) * (row[2] - before[2])
        or row[2]
    end
    before = row
  end
  return before[2]
end

-- is there a share at x or later?
local function has_future(weights, x)
  local any = weight_at(weights, x) > 0
  for _, row in ipairs(weights or {}) do
    any = any or row[1] > x and row[2] > 0
  end
  return any
end

local STEPS <const> = 2000 -- integration steps of a pass, or of the samples drawn so far

--- How often each source is gone through until all have been: 1 for a source that does not repeat,
-- less if its share ends before.
---@param list table[]      of sources.of
---@param samples integer[] samples of an epoch of each
---@return number[] passes
function sources.passes(list, samples)
  local taken, passes, total = {}, {}, 0
  for i, n in ipairs(samples) do
    taken[i], total = 0, total + n
  end
  local x = 0
  for _ = 1, STEPS * 100 do
    local weights, sum, open = {}, 0, false
    for i, s in ipairs(list) do
      local ended = s.epochs and s.epochs > 0 and taken[i] >= s.epochs * samples[i]
      weights[i] = ended and 0 or weight_at(s.weights, x)
      sum = sum + weights[i]
      open = open or not ended and taken[i] < samples[i] and has_future(s.weights, x)
    end
    if not open or sum == 0 then
      break
    end
    -- with a thousand passes the strides are longer
    local dx = math.max(math.max(total, x) / STEPS, 1)
    for i in ipairs(list) do
      taken[i] = taken[i] + weights[i] / sum * dx
    end
    x = x + dx
  end
  for i, n in ipairs(samples) do
    passes[i] = n > 0 and taken[i] / n or 0
  end
  return passes
end

--- The samples drawn from several sources until all have been gone through, as one survey. Samples
-- that are drawn twice count twice.
---@param list table[]
---@param surveys table[]  surveys of an epoch of each: {index, rows, buckets, dropped}
---@return table survey
function sources.together(list, surveys)
  local samples, by, out = {}, {}, { rows = 0, buckets = {}, dropped = {} }
  for i, survey in ipairs(surveys) do
    samples[i] = 0
    for _, b in ipairs(survey.buckets) do
      samples[i] = samples[i] + b.samples
    end
  end
  local names, passes = {}, sources.passes(list, samples)
  for i, survey in ipairs(surveys) do
    local function drawn(n) return math.floor(n * passes[i] + 0.5) end
    names[i] = ("%s (%.3g times)"):format(list[i].name, passes[i])
    out.rows = out.rows + drawn(survey.rows)
    for _, b in ipairs(survey.buckets) do
      local key = ("%s %d %d %d"):format(b.resolution, b.frames, b.height, b.width)
      local n = drawn(b.samples)
      if by[key] then
        local first = by[key]
        local both = first.samples + n
        first.pixels = (first.samples * first.pixels + n * b.pixels) / math.max(both, 1)
        first.samples = both
      elseif n > 0 then
        b.samples, by[key] = n, b
        out.buckets[#out.buckets + 1] = b
      end
    end
    for _, one in ipairs(survey.dropped) do
      one.rows = drawn(one.rows)
      if by[one.why] then
        by[one.why].rows = by[one.why].rows + one.rows
      else
        by[one.why], out.dropped[#out.dropped + 1] = one, one
      end
    end
  end
  out.index = table.concat(names, ", ")
  return out
end

return sources
