--- Prints a plan: tables, bars and sentences.
-- @module moonreel.plan.show
local copies = require "moonreel.plan.copies"
local figures = require "moonreel.plan.figures"
local held = require "moonreel.plan.held"
local listing = require "moonreel.text.listing"
local plan = require "moonreel.plan"
local printer = require "moonreel.text.table"
local recompute = require "moonreel.trainer.recompute"
local measured = require "moonreel.trainer.measured"

local show = {}

local size = listing.size

--- Seconds as text.
---@param s number
---@return string
function show.seconds(s)
  if s == 0 then
    return "-"
  elseif s < 1e-3 then
    return ("%.0f us"):format(s * 1e6)
  elseif s < 1 then
    return ("%.3g ms"):format(s * 1e3)
  end
  return ("%.2f s"):format(s)
end

local function percent(share) return ("%.0f %%"):format(100 * share) end

--- Numbers with commas between thousands.
---@param n integer
---@return string
function show.count(n)
  local text = ("%.0f"):format(n)
  return (text:reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^,", ""))
end

local eighths = { "▏", "▎", "▍", "▌", "▋", "▊", "▉" }

--- A bar of up to `width` letters.
---@param share number  0 to 1
---@param width integer
---@return string
function show.bar(share, width)
  local n = math.floor(math.max(0, math.min(1, share)) * width * 8 + 0.5)
  return ("█"):rep(n // 8) .. (eighths[n % 8] or "")
end

--- The number of parameters of a plan, and the dtype, as text.
---@param p table  from plan.of
---@return string
function show.parameters(p)
  return ("%s parameters%s in %s"):format(show.count(p.parameters), p.writes and ""
    or (", of them %s train,"):format(show.count(p.trained)), p.dtype)
end

-- the title of the arena; for a single rank it also contains gradients if activations leave space
local function title_of(kind, bytes)
  local trains = bytes.moments + (bytes.offloaded or 0) > 0
  return kind[1] == "arena" and trains and bytes.gradients == 0
    and "activations, workspace, gradients" or kind[2]
end

-- the bytes of one rank by kind, while the largest bucket runs
local function memory_lines(p, put)
  local row = p.largest
  put("memory of one rank at its peak, in bucket %s of %d", plan.bucket_name(row), row.batch)
  local rows, most = {}, 1
  local one_memory = p.mesh.machine.cpu
  for _, kind in ipairs(held.kinds) do
    local bytes = row.bytes[kind[1]] or 0
    if bytes > 0 then
      rows[#rows + 1] = { title = title_of(kind, row.bytes), bytes = bytes,
        where = not one_memory and kind[3] == "host" and "host" or "" }
      most = math.max(most, bytes)
    end
  end
  for _, one in ipairs(rows) do
    one.bar = show.bar(one.bytes / most, 30)
  end
  local text = printer.text({ { key = "title", title = "what" },
    { key = "bytes", right = true, format = size }, { key = "where", title = "" },
    { key = "bar", title = "" } }, rows)
  put("%s", (text:gsub("\n$", "")))
  put("%s of %s (%s)%s", size(row.total), size(p.mesh.machine.memory_bytes),
    percent(row.total / p.mesh.machine.memory_bytes),
    one_memory and "" or (", and %s of host memory for each rank"):format(size(row.bytes.host)))
end

local function live_lines(p, put)
  put("in memory at the peak of its activations:")
  local rows, rest = {}, 0
  for i, one in ipairs(p.largest.live) do
    if i <= 6 then
      rows[i] = { bytes = one.bytes, what = one.purpose == "region" and "gradients of weights"
        or one.purpose, block = one.block ~= "" and one.block
        or "outside blocks", ranges = one.ranges }
    else
      rest = rest + one.bytes
    end
  end
  if rest > 0 then
    rows[#rows + 1] = { bytes = rest, what = "everything else", block = "" }
  end
  put("%s", (printer.text({ { key = "bytes", right = true, format = size }, { key = "what" },
    { key = "block", title = "of" }, { key = "ranges", title = "values", right = true } }, rows)
    :gsub("\n$", "")))
end

-- differences of sums below these seconds are rounding errors
local NOTHING_S = 1e-9

-- columns of the table of buckets; columns with only zeros are left out
local function bucket_columns(p)
  local columns = { { key = "name", title = "bucket" },
    { key = "batch", right = true }, { key = "samples", right = true, format = show.count },
    { key = "total", title = "memory", right = true, format = function(v, row)
      return size(v) .. (row.fits and "" or " !")
    end } }
  if p.buckets[1].recomputes ~= nil then
    columns[#columns + 1] = { key = "recomputes", format = recompute.text }
  end
  for _, part in ipairs { { "encode" }, { "forward" }, { "recompute" }, { "backward" },
      { "exchange" }, { "read" }, { "decode" }, { "files", "write" }, { "waits", "wait for clips" },
      { "exposed", "communication" }, { "hidden", "hidden" }, { "slowest", "slowest rank" },
      { "update" }, { "step", p.writes and "a clip" } } do
    local any = false
    for _, b in ipairs(p.buckets) do
      any = any or (b.seconds[part[1]] or 0) > NOTHING_S
    end
    if any then
      columns[#columns + 1] = { key = part[1], title = part[2] or part[1], right = true,
        format = show.seconds }
    end
  end
  if p.mesh.sequence > 1 then
    columns[#columns + 1] = { key = "exchange_bytes", title = p.mesh.clips and "sent for clips"
      or "sent for attention", right = true,
      format = size }
  end
  columns[#columns + 1] = { key = "decode_cores", title = "decode cores", right = true,
    format = function(v) return ("%.1f"):format(v) end }
  columns[#columns + 1] = { key = "share_of_peak", title = "of peak", right = true,
    format = percent }
  return columns
end

-- the part of the shared state that a rank keeps, and what it sends in a step of the largest bucket
local function share_lines(p, put)
  local s, largest = p.shares, p.largest
  if largest.sent == 0 then
    return
  end
  put("a rank keeps %s of the state%s%s; it sends %s a step%s", size(s.state),
    s.buckets > 0 and (", %s of gradients for a while"):format(size(s.buckets)) or "",
    s.windows > 0 and (", %s of weights"):format(size(s.windows)) or "", size(largest.sent),
    largest.sent > s.sent and (", %s of it for %s"):format(size(largest.sent - s.sent),
      p.mesh.clips and "shared clips" or "attention over shared tokens") or "")
  put("")
end

-- a table of the buckets: seconds of a step, or of a clip if clips are written one by one
local function bucket_lines(p, put)
  local rows = {}
  if p.writes then
    put("seconds of a clip; %d decoder processes read the next ones at the same time:", p.decoders)
  end
  for i, b in ipairs(p.buckets) do
    local clips = p.writes and b.batch or 1
    rows[i] = setmetatable({ name = plan.bucket_name(b) }, { __index = function(_, key)
      return b.seconds[key] and b.seconds[key] / clips or b[key]
    end })
  end
  local columns = bucket_columns(p)
  if not p.survey then
    table.remove(columns, 3)
  end
  put("%s", (printer.text(columns, rows):gsub("\n$", "")))
end

-- text about the three kinds that need most of the memory
local function mostly(row, one_memory)
  local kinds = {}
  for _, kind in ipairs(held.kinds) do
    kinds[#kinds + 1] = (one_memory or kind[3] == "device") and kind or nil
  end
  table.sort(kinds, function(a, b) return (row.bytes[a[1]] or 0) > (row.bytes[b[1]] or 0) end)
  local parts = {}
  for i = 1, 3 do
    parts[i] = ("%s %s"):format(kinds[i][2], size(row.bytes[kinds[i][1]]))
  end
  return table.concat(parts, ", ")
end

--- Text about buckets that do not fit, and changes with which they fit.
---@param p table  from plan.of; remedies: from moonreel.plan.solve
---@return string|nil  lines; nil if everything fits
function show.too_large(p)
  local lines, m, large = {}, p.mesh.machine, false
  for _, b in ipairs(p.buckets) do
    large = large or b.total > m.memory_bytes
    if b.above_buffer then
      lines[#lines + 1] = ("bucket %s of %d keeps %s of inputs of blocks in host memory, but "
        .. "grad_ckpt_buffer_size is %d; try: grad_ckpt_buffer_size = %d"):format(
        plan.bucket_name(b), b.batch, size(b.above_buffer.needs), b.above_buffer.has,
        b.above_buffer.needs)
    elseif not b.fits then
      lines[#lines + 1] = ("bucket %s of %d needs %s, but %s has %s: %s too many (%s)"):format(
        plan.bucket_name(b), b.batch, size(b.total), m.name, size(m.memory_bytes),
        size(b.total - m.memory_bytes), mostly(b, m.cpu))
    end
  end
  if #lines == 0 then
    return nil
  end
  local ways = {}
  for i, one in ipairs(p.remedies or {}) do
    ways[i] = one.text .. (one.total and " (" .. size(one.total) .. ")" or "")
  end
  if p.remedies and large then
    lines[#lines + 1] = "  " .. (#ways > 0 and "fits with any of: " .. table.concat(ways, ", ")
      or "no setting that was tried fits; try: smaller buckets, a machine with more memory")
  end
  return table.concat(lines, "\n")
end

--- A length of time for people.
---@param h number  hours
---@return string
function show.hours(h)
  if h < 1 / 60 then
    return ("%.0f s"):format(h * 3600)
  elseif h < 1 then
    return ("%.1f min"):format(h * 60)
  end
  return h < 100 and ("%.1f h"):format(h) or show.count(h) .. " h"
end

-- GPU hours, or their cost: a short run has less than one
local function amount(v) return v < 10 and ("%.2g"):format(v) or show.count(v) end

local function course_lines(p, put)
  local c, m = p.course, p.mesh.machine
  put("the whole %s: %s steps (%s), %s of %s on average%s", p.job and "job" or "run",
    show.count(c.steps), c.from, show.hours(c.hours), show.seconds(c.step_s), c.mixed and "" or
      ", with equal weight for each bucket")
  if not m.cpu then
    put("  %s GPU hours%s%s", amount(c.gpu_hours), c.cost and (", %s at %.4g an hour"):format(
      amount(c.cost), m.price_hour) or "", p.mesh.ranks > 1 and ("; if ranks drew buckets "
      .. "freely, waiting for the slowest would leave %s of the speed"):format(percent(c.free))
      or "")
  end
  local steps = {}
  for e, n in ipairs(c.epochs) do
    steps[e] = show.count(n)
  end
  if #steps > 0 then
    put("  steps of epoch 1, 2, ...: %s", table.concat(steps, ", "))
  end
  if c.clips then
    put("  %s clips, %s of files; %.4g samples a second from the store", show.count(c.clips),
      size(c.disk_bytes), c.samples_s)
  elseif p.job then
    put("  %.4g samples a second from the store", c.samples_s)
  else
    put("  checkpoints of %s, %s kept; %.4g samples a second from the store",
      size(c.checkpoint_bytes), size(c.disk_bytes), c.samples_s)
  end
  if c.renderings then
    put("  %s renderings of %s clips (sampling.every), %s", show.count(c.renderings),
      show.count(c.rendering_clips), c.rendering_s and ("%s each%s: %.2g %% of the run, %s"
      ):format(show.seconds(c.rendering_s), c.rendering_on == "host" and " of a processor" or "",
      100 * c.rendering_share, c.rendering_on == "device" and "in addition"
      or "on processors that the run does not use")
      or "on processors of the host that this machine does not describe")
  end
  if c.failures then
    put("  %.2g failures expected, %s lost with a save every %s (%s steps); a save is in the store "
      .. "after %s", c.failures, show.hours(c.lost_hours), show.hours(c.interval_s / 3600),
      show.count(c.interval), show.seconds(c.save_s))
  end
  if c.drawn then
    local d = c.drawn
    -- one rank may also be faster than the mean
    local waited = math.max(0, d.slowest)
    put("  one random simulation: %s; %s wait for the slowest rank, %s for data, %s save, %s "
      .. "are repeated after %.0f failures", show.hours(d.seconds / 3600),
      show.hours(waited / 3600), show.hours(d.stalled / 3600), show.hours(d.saving / 3600),
      show.hours((d.lost + d.restarting) / 3600), d.failures)
  end
end

-- advice by the part that takes longest
local advice = {
  encode = "encode once and train on stored latents and features",
  forward = "larger batches, if the share of the peak is low",
  backward = "larger batches, if the share of the peak is low; recompute less, if memory "
    .. "allows (--solve mesh)",
  reduce = "fewer, larger steps: a larger batch or accumulate",
  gather = "larger batches hide it; a faster network, or ranks that share weights inside nodes",
  norm = "a larger batch: the norm is computed once a step",
  update = "more ranks, which share it",
  input = "train on stored latents, which are smaller; a faster bus",
  decode = "smaller or shorter clips in bucket_config",
  files = "fewer clips (steps), or smaller ones",
  read = "more decoder processes (num_workers)",
}

-- bytes of a rank's buckets and gathered weights, if buckets have this number of elements
local function there_at(p, elements, trained)
  local each = (p.shares.buckets > 0 and 4 or 0)
    + (p.shares.windows > 0 and (p.dtype == "f32" and 4 or 2) or 0)
  return each * math.min(2 * elements, trained)
end

-- The bucket size with the shortest simulated step, of those with enough memory, and its seconds.
-- The present size stays unless another is clearly faster.
local function quickest_bucket(p, row)
  local schedule, step = require "moonreel.plan.schedule", row.schedule.step
  local room = p.mesh.machine.memory_bytes - row.total
    + there_at(p, step.bucket, step.parameters)
  local best, seconds = step.bucket, row.schedule.seconds
  for _, millions in ipairs(plan.bucket_sizes) do
    local elements = millions << 20
    local other = setmetatable({ bucket = elements }, { __index = step })
    local takes = schedule.seconds(p.mesh.machine, other)
    if takes * (best == step.bucket and plan.notable or 1) < seconds
        and there_at(p, elements, step.parameters) <= room then
      best, seconds = elements, takes
    end
  end
  return best, seconds
end

-- text about the buckets of reductions, and a better size
local function bucket_text(p, row)
  local step, best, seconds = row.schedule.step, quickest_bucket(p, row)
  return ("\nranks reduce %d buckets of %d x 2^20 elements; %s\n"):format(
    math.ceil(step.parameters / step.bucket), step.bucket >> 20,
    best == step.bucket and "no other size that fits is notably faster"
      or ("the fastest that fits: plugin_config.reduce_bucket_size_in_m = %d (%s)"):format(
        best >> 20, show.seconds(seconds)))
end

--- Explains the time of a step.
---@param p table    from plan.of
---@param row table  one of its buckets
---@return string
function show.why(p, row)
  local timeline = require "moonreel.plan.timeline"
  local path, lines, longest = timeline.path(row.schedule), {}, nil
  for _, one in ipairs(path) do
    one.bar = show.bar(one.share, 30)
    longest = (not longest or one.seconds > longest.seconds) and one or longest
  end
  local columns = { { key = "name", title = "from the beginning" }, { key = "stream" },
    { key = "events", right = true }, { key = "seconds", right = true, format = show.seconds },
    { key = "share", right = true, format = percent }, { key = "bar", title = "" } }
  lines[1] = ("why a step of bucket %s, batch %d on %s, takes %s:\n"):format(plan.bucket_name(row),
    row.batch, p.mesh:text(), show.seconds(row.schedule.seconds))
  lines[2] = printer.text(columns, path)
  lines[3] = "\nhow busy the streams of a rank are:\n"
  lines[4] = printer.text({ { key = "stream" }, { key = "seconds", right = true,
    format = show.seconds }, { key = "share", right = true, format = percent } },
    timeline.busy(row.schedule))
  local ops = table.move(row.ops, 1, math.min(8, #row.ops), 1, {})
  lines[5] = "\nthe ops of the step that take longest:\n"
  lines[6] = printer.text({ { key = "op" }, { key = "calls", right = true },
    { key = "seconds", right = true, format = show.seconds },
    { key = "flop", title = "TFLOP", right = true,
      format = function(v) return ("%.3g"):format(v * 1e-12) end },
    { key = "bytes", title = "GB moved", right = true,
      format = function(v) return ("%.3g"):format(v * 1e-9) end } }, ops)
  lines[#lines + 1] = "\nfigures of the machine that decide the step, with their origins:\n"
  lines[#lines + 1] = printer.text({ { key = "figure" }, { key = "value", right = true,
    format = function(v) return ("%.4g"):format(v) end },
    { key = "seconds", right = true, format = show.seconds },
    { key = "share", right = true, format = percent }, { key = "origin" } }, row.figures)
  lines[#lines + 1] = "\nfigures that decide the rest of the run:\n"
  lines[#lines + 1] = printer.text({ { key = "what" }, { key = "figure" }, { key = "value",
    right = true, format = function(v) return ("%.4g"):format(v) end }, { key = "origin" } },
    figures.others(p.mesh))
  if row.seconds.slowest > 0 then
    lines[#lines + 1] = ("\nthe slowest of %s ranks adds %s\n"):format(show.count(p.mesh.ranks),
      show.seconds(row.seconds.slowest))
  end
  if p.mesh.ranks > 1 then
    lines[#lines + 1] = bucket_text(p, row)
  end
  lines[#lines + 1] = ("\n%s takes longest; try: %s\n"):format(longest.name, advice[longest.name])
  return table.concat(lines)
end

--- Prints the events of a step and what each waits for.
---@param p table    from plan.of
---@param row table  one of its buckets
---@param options table  json: rows as JSON
function show.schedule(p, row, options)
  if not options.json then
    print(("a step of bucket %s, batch %d on %s, %s; * is on the critical path:\n"):format(
      plan.bucket_name(row), row.batch, p.mesh:text(), show.seconds(row.schedule.seconds)))
  end
  printer.print({ { key = "begins", right = true, format = show.seconds },
    { key = "ends", right = true, format = show.seconds }, { key = "stream" },
    { key = "decides", title = "", format = function(yes) return yes and "*" or "" end },
    { key = "what" }, { key = "after" } }, require("moonreel.plan.timeline").rows(row.schedule),
    options)
end

--- Prints which inputs of blocks a step keeps in host memory, and when they are copied there and
-- back.
---@param p table    from plan.of
---@param row table  one of its buckets
---@param options table  json: rows as JSON
function show.copies(p, row, options)
  if not row.copies and p.job then
    print(("there are no copies: job = %s has no backward pass, which would wait for inputs of "
      .. "blocks"):format(p.job))
    return
  elseif not row.copies then
    print(p.mesh.machine.cpu and ("there are no copies: %s computes in host memory; try: --gpus "
      .. "H100")
      :format(p.mesh:text()) or "no inputs of blocks go to host memory; try: "
      .. "grad_checkpoint=true grad_ckpt_buffer_size=40000000000")
    return
  elseif not options.json then
    print(("copies of a step of bucket %s, batch %d on %s, from its beginning:\n"):format(
      plan.bucket_name(row), row.batch, p.mesh:text()))
  end
  printer.print({ { key = "begins", right = true, format = show.seconds },
    { key = "ends", right = true, format = show.seconds }, { key = "stream" },
    { key = "bytes", right = true }, { key = "block" }, { key = "during" },
    { key = "waits", right = true, format = function(s) return s > 0 and show.seconds(s) or "" end }
  }, row.copies, options)
  if not options.json then
    print("\n" .. copies.summary(row.copies, row.copies_wait, p.buffer_size, show.seconds))
  end
end

-- predictions of the run when it began, compared with its measurements; the plan above may be for
-- another machine
local function measured_lines(p, put)
  put("predictions of the run when it began, and measurements (medians, without waits for "
    .. "data):")
  local function megabytes(v) return ("%.0f MB"):format(v / 1e6) end
  local columns = { { key = "bucket" }, { key = "steps", right = true },
    { key = "predicted_s", title = "predicted", right = true, format = show.seconds },
    { key = "measured_s", title = "measured", right = true, format = show.seconds },
    { key = "off", title = "", right = true,
      format = function(v, row)
        return p.busy and measured.is_off(row) and "-" or ("%+.0f %%"):format(100 * v)
      end },
    { key = "planned_s", title = "above", right = true, format = show.seconds },
    { key = "predicted_bytes", title = "bytes predicted", right = true, format = megabytes },
    { key = "measured_bytes", title = "measured", right = true, format = megabytes },
    { key = "planned_bytes", title = "above", right = true, format = megabytes } }
  if p.measured.elsewhere then
    table.remove(columns, 9)
    table.remove(columns, 6)
  end
  put("%s", (printer.text(columns, p.measured):gsub("\n$", "")))
  local not_held = measured.not_held(p.measured, p.busy)
  if not_held then
    put("%s", not_held)
  end
  if p.calibrated then
    put("the plan above uses the measured times of this run's steps")
  end
  if p.resident_bytes then
    -- the measured process is the one that trains, without decoders
    local planned = p.largest.total - p.largest.bytes.decoders
    put("%s resident at most; the plan above has %s without decoder processes (%+.1f %%)",
      size(p.resident_bytes), size(planned), 100 * (planned / p.resident_bytes - 1))
  end
end

--- A row per stage and a total.
---@param plans table[]  from plan.of, each with stage and, if steps are known, course
---@return table[] columns, table[] rows  for moonreel.text.table
function show.stage_table(plans)
  local rows, total = {}, { stage = "total", steps = 0, hours = 0, gpu_hours = 0, known = true }
  for i, p in ipairs(plans) do
    local c = p.course or {}
    rows[i] = { stage = p.stage, buckets = #p.buckets, memory = p.largest.total,
      at = plan.bucket_name(p.largest), fits = p.largest.fits, steps = c.steps, step = c.step_s,
      hours = c.hours, gpu_hours = c.gpu_hours, cost = c.cost, disk = c.disk_bytes }
    for _, key in ipairs { "steps", "hours", "gpu_hours", "cost" } do
      total[key] = c[key] and (total[key] or 0) + c[key] or total[key]
    end
    if not p.course then
      total.stage = "total of known steps"
    end
  end
  rows[#rows + 1] = total
  local columns = { { key = "stage" }, { key = "buckets", right = true },
    { key = "memory", title = "largest", right = true, format = function(v, row)
      return size(v) .. (row.fits and "" or " !")
    end }, { key = "at", title = "in bucket" },
    { key = "steps", right = true, format = show.count },
    { key = "step", title = "a step", right = true, format = show.seconds },
    { key = "hours", right = true, format = show.hours } }
  if not plans[1].mesh.machine.cpu then
    columns[#columns + 1] = { key = "gpu_hours", title = "GPU hours", right = true,
      format = show.count }
  end
  if total.cost then
    columns[#columns + 1] = { key = "cost", right = true, format = show.count }
  end
  columns[#columns + 1] = { key = "disk", right = true, format = size }
  return columns, rows
end

--- The same as text, with notes and with buckets that do not fit.
---@param plans table[]
---@return string
function show.stages(plans)
  local mesh = plans[1].mesh
  local lines = { ("%s on %s, stage by stage:\n"):format(plans[1].name, mesh:text()),
    printer.text(show.stage_table(plans)) }
  local reported = {}
  for _, p in ipairs(plans) do
    local bad = show.too_large(p)
    if bad then
      lines[#lines + 1] = ("stage %s: %s\n"):format(p.stage, bad)
    end
    if not p.course then
      lines[#lines + 1] = ("note: stage %s: its number of steps needs an index; try: --data "
        .. "NAME.mrx\n"):format(p.stage)
    end
    for _, note in ipairs(p.notes) do
      if not reported[note] then
        reported[note] = true
        lines[#lines + 1] = ("note: %s\n"):format(note)
      end
    end
  end
  if plans[1].course then
    lines[#lines + 1] = ("note: steps by %s\n"):format(plans[1].course.from)
  end
  lines[#lines + 1] = "note: --stage NAME shows one in full\n"
  return table.concat(lines)
end

--- A plan of one recipe or stage as text.
---@param p table  from plan.of
---@return string
function show.text(p)
  local lines = {}
  local function put(form, ...) lines[#lines + 1] = form:format(...) end
  put("%s%s on %s: %s%s", p.name, p.stage and ", stage " .. p.stage or "", p.mesh:text(),
    p.mesh.ranks > 1 and ("ZeRO %d, "):format(p.mesh.zero) or "", show.parameters(p))
  put("")
  memory_lines(p, put)
  put("")
  live_lines(p, put)
  put("")
  share_lines(p, put)
  bucket_lines(p, put)
  put("")
  if p.course then
    course_lines(p, put)
  else
    put("the number of steps is known only with an index; try: --data NAME.mrx")
  end
  if p.measured and #p.measured > 0 then
    put("")
    measured_lines(p, put)
  end
  if p.survey then
    put("")
    put("first epoch of %s: %s of %s samples in %s batches%s%s", p.survey.index,
      show.count(p.samples - p.carried), show.count(p.survey.rows), show.count(p.batches),
      p.carried > 0 and ("; %s more are carried to the next"):format(show.count(p.carried)) or "",
      #p.survey.dropped > 0 and "; left out: " .. plan.dropped_text(p.survey.dropped) or "")
  end
  local bad = show.too_large(p)
  if bad then
    put("")
    put("%s", bad)
  end
  put("")
  for _, note in ipairs(p.notes) do
    put("note: %s", note)
  end
  return table.concat(lines, "\n") .. "\n"
end

-- ---- for programs ----

local function plain_bucket(b)
  local json = require "moonreel.core.json"
  local out = {}
  for _, key in ipairs { "resolution", "frames", "height", "width", "batch", "tokens", "samples",
      "batches", "bytes", "seconds", "share_of_peak", "decode_cores", "total", "fits", "useful",
      "workspace", "sent", "recomputes", "written" } do
    local value = b[key]
    out[key] = value == nil and json.null or value
  end
  out.live, out.figures = json.array(b.live), json.array(b.figures)
  return out
end

--- A plan in a form for JSON.
---@param p table
---@return table
function show.plain(p)
  local json = require "moonreel.core.json"
  local list = json.array()
  for i, b in ipairs(p.buckets) do
    list[i] = plain_bucket(b)
  end
  local mesh = p.mesh
  return { name = p.name, hash = p.hash, machine = mesh.machine.name, nodes = mesh.nodes,
    gpus = mesh.gpus, ranks = mesh.ranks, zero = mesh.zero, sequence = mesh.sequence,
    layers = mesh.layers,
    memory_bytes = mesh.machine.memory_bytes, dtype = p.dtype, parameters = p.parameters,
    trained = p.trained, shares = p.shares, buckets = list, notes = json.array(p.notes),
    other_figures = json.array(figures.others(mesh)),
    stage = p.stage,
    course = p.course, measured = p.measured and json.array(p.measured),
    calibrated = p.calibrated, resident_bytes = p.resident_bytes, busy = p.busy,
    price_hour = mesh.machine.price_hour, remedies = p.remedies and json.array(p.remedies),
    survey = p.survey and { index = p.survey.index, rows = p.survey.rows, samples = p.samples,
      batches = p.batches, carried = p.carried },
    dropped = p.survey and json.array(p.survey.dropped) }
end

return show
