--- Prints solutions and checks, as tables and as fields for a recipe.
-- @module moonreel.plan.show_solved
local listing = require "moonreel.text.listing"
local plan = require "moonreel.plan"
local printer = require "moonreel.text.table"
local show = require "moonreel.plan.show"
local solve = require "moonreel.plan.solve"

local solved = {}

local size = listing.size

-- rows of fit or balance, with the name of each bucket instead of the bucket
local function named(rows)
  for _, row in ipairs(rows) do
    row.name = plan.bucket_name(row.bucket)
  end
  return rows
end

local function print_all(columns, rows, options, text)
  if options.json then
    printer.print(columns, rows, options)
  else
    io.write(printer.text(columns, rows), "\n", text())
  end
end

-- text for the case that no bucket has memory for a sample; nil if one has
local function nothing_fits(rows, memory, of)
  local least
  for _, row in ipairs(rows) do
    if row.batch > 0 then
      return nil
    end
    least = (not least or row.above < least.above) and row or least
  end
  return ("nothing fits in %s on %s: one sample of bucket %s needs %s; try: %s\n"):format(
    size(memory), of:text(), least.name, size(least.above), least.above <= of.machine.memory_bytes
      and ("--fit %dMB"):format(math.ceil(least.above / 1e6))
      or "without --fit, which says what would need less")
end

-- text about buckets without memory for a sample, and ways to change that; "" if all have it
local function left_out(rows, open, memory, bake)
  local names = {}
  for _, row in ipairs(rows) do
    names[#names + 1] = row.batch == 0 and ("%s (%s)"):format(row.name, size(row.above)) or nil
  end
  if #names == 0 then
    return ""
  end
  local ways, enough = solve.room(open, memory, rows, bake)
  for i, one in ipairs(ways) do
    ways[i] = ("%s (%s)"):format(one.text, size(one.total))
  end
  ways[#ways + 1] = enough and ("--fit %.0fMB"):format(enough / 1e6)
  return ("not even one sample fits in %d of %d buckets, which the table leaves out: %s\n  %s\n")
    :format(#names, #rows, table.concat(names, ", "), #ways > 0
      and "one sample of each fits with any of: " .. table.concat(ways, ", ")
      or "no change that was tried makes all of them fit; try: a machine with more memory")
end

-- bytes of a bucket; empty if no sample fits
local function bytes_text(bytes) return bytes > 0 and size(bytes) or "none" end

local function one_fits(rows)
  for _, row in ipairs(rows) do
    if row.batch == 0 then
      return 5
    end
  end
  return 0
end

-- text about memory that batches cannot use
local function kept_text(m)
  return m.cpu and "" or ("; %s of it stay free for driver, libraries and communication"):format(
    size(m.reserve_bytes))
end

--- Prints the largest batches.
---@param open table
---@param memory number
---@param options table  json
---@param bake function  for moonreel.plan.solve remedies
---@return integer exit code: 5 when not even one sample of a bucket fits
function solved.fit(open, memory, options, bake)
  local rows = named(solve.fit(open, memory))
  print_all({ { key = "name", title = "bucket" }, { key = "was", right = true },
    { key = "batch", right = true }, { key = "total", title = "memory", right = true,
      format = bytes_text }, { key = "above", title = "with one more", right = true,
      format = size } }, rows, options, function()
        return nothing_fits(rows, memory, open.mesh)
          or ("%s-- the largest batches in %s on %s%s\n%s"):format(left_out(rows, open, memory,
            bake), size(memory), open.mesh:text(), kept_text(open.mesh.machine),
            solve.table_text(open, rows))
      end)
  return one_fits(rows)
end

--- Prints batches of equal seconds.
---@param open table
---@param memory number
---@param options table
---@param bake function
---@return integer exit code
function solved.balance(open, memory, options, bake)
  local rows, target, p = solve.balance(open, memory)
  named(rows)
  local function spread(key)
    local least, most = math.huge, 0
    for _, row in ipairs(rows) do
      least, most = math.min(least, row[key] or math.huge), math.max(most, row[key] or 0)
    end
    return most / least
  end
  print_all({ { key = "name", title = "bucket" }, { key = "was", right = true },
    { key = "before", title = "took", right = true, format = show.seconds },
    { key = "batch", right = true },
    { key = "seconds", title = "takes", right = true, format = show.seconds },
    { key = "total", title = "memory", right = true, format = bytes_text },
    { key = "rule", title = "by B x S^p", right = true },
    { key = "rule_s", title = "would take", right = true, format = show.seconds } }, rows, options,
    function()
      return nothing_fits(rows, memory, open.mesh)
        or ("%s-- at most %s a step; the longest over the shortest: %.2f, it was %.2f%s\n%s")
        :format(left_out(rows, open, memory, bake), show.seconds(target), spread "seconds",
        spread "before",
        p and ("; by B x S^%.2f (seconds of a sample over its tokens S) it would be %.2f"):format(p,
          spread "rule_s") or "", solve.table_text(open, rows))
    end)
  return one_fits(rows)
end

-- text for the case that no way fits, with advice
local function none_fits(best)
  local above = best.above_buffer
  return above and ("no way fits: bucket %s keeps %s of inputs of blocks in host memory, but "
    .. "grad_ckpt_buffer_size is %d; try: grad_ckpt_buffer_size = %d or more\n"):format(best.bucket,
    size(above.needs), above.has, above.needs)
    or ("no way fits: the smallest needs %s for bucket %s; try: smaller batches (--fit all)\n")
      :format(size(best.memory), best.bucket)
end

--- Prints ways to shard and recompute, the fastest that fits first.
---@param rows table[]
---@param mesh table
---@param options table
---@return integer exit code: 5 if none fits
function solved.mesh(rows, mesh, options)
  local best = rows[1]
  for _, row in ipairs(rows) do
    row.bucket = row.bucket and plan.bucket_name(row.bucket)
    row.speed = row.rate and ("%.4g"):format(row.rate) or row.below and ("< %.4g"):format(row.below)
    row.says = row.fits and "yes" or row.fits == nil and "not tried: slower"
      or row.above_buffer and ("NO: grad_ckpt_buffer_size >= %d"):format(row.above_buffer.needs)
      or "NO"
  end
  local text = best.fits and ("-- the fastest that fits on %s: %.4g samples a second\n%s"):format(
    mesh:text(), best.rate, solve.mesh_text(best))
    or none_fits(best)
  local columns = { { key = "zero", title = "ZeRO", right = true },
    { key = "sequence", title = "share tokens", right = true } }
  for _, row in ipairs(rows) do
    columns[3] = row.tp_size and { key = "tp_size", title = "share layers", right = true }
      or columns[3]
  end
  for _, column in ipairs { { key = "recompute", title = "recomputes" },
    { key = "bucket_size", title = "2^20 elements", right = true },
    { key = "speed", title = "samples/s", right = true },
    { key = "memory", right = true, format = size }, { key = "bucket", title = "in bucket" },
    { key = "says", title = "fits" } } do
    columns[#columns + 1] = column
  end
  print_all(columns, rows, options, function() return text end)
  return best.fits and 0 or 5
end

-- reasons why recipes do not fit or are not planned; each reason once, with all recipes to which it
-- applies
local function reasons(rows)
  local lines, of = {}, {}
  for _, row in ipairs(rows) do
    local who = row.recipe .. (row.stage and " " .. row.stage or "")
    local key = row.why and (row.fits == nil and row.why or row.gpus .. row.why)
    local one = key and of[key]
    if key and not one then
      one = { who = {}, seen = {}, says = row.fits == nil and "not planned" or "on " .. row.gpus
        .. " does NOT fit", why = row.why }
      of[key], lines[#lines + 1] = one, one
    end
    if key and not one.seen[who] then
      one.seen[who], one.who[#one.who + 1] = true, who
    end
  end
  for i, one in ipairs(lines) do
    lines[i] = ("%s: %s: %s"):format(one.says, table.concat(one.who, ", "), one.why)
  end
  return lines
end

--- Prints which recipes fit, or why not.
---@param rows table[]  from moonreel.plan.check
---@param options table
---@param asked boolean   true: the recipes were named; false: all that ship
---@return integer exit code: 5 if one does not fit, 3 if a named one cannot be planned
function solved.check(rows, options, asked)
  local bad, unknown = 0, false
  for _, row in ipairs(rows) do
    bad = bad + (row.fits == false and 1 or 0)
    unknown = unknown or asked and row.fits == nil
    row.says = row.fits == nil and "not planned" or row.fits and "fits" or "does NOT fit"
  end
  local columns = { { key = "recipe" }, { key = "stage" }, { key = "gpus", title = "on" },
    { key = "total", title = "largest", right = true, format = size },
    { key = "bucket", title = "in bucket" }, { key = "says", title = "" } }
  if options.json then
    columns[#columns + 1] = { key = "why" }
  end
  printer.print(columns, rows, options)
  for _, line in ipairs(options.json and {} or reasons(rows)) do
    print(line)
  end
  return bad > 0 and 5 or unknown and 3 or 0
end

return solved
