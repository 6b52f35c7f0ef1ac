--- moonreel log: the events of a run, its use of time, its curve for other programs.
-- @module moonreel.cli.log
local base = require "moonreel.core.base"
local find = require "moonreel.runs.find"
local glance = require "moonreel.runs.glance"
local signal = require "moonreel.core.signal"
local words = require "moonreel.runs.words"

local command = {
  name = "log",
  summary = "print the events of a run, follow it, or export its curve",
  usage = "log RUN [--follow] [--every N] [--time | --worst | --export FORMAT] [--json]",
  options = {
    { "-f, --follow", "continue while a process writes the run" },
    { "--every N", "one line for each N steps (default: log_every of the recipe)", least = 1 },
    { "--time", "how the wall time was spent: training, waits for data and other ranks, saves, "
      .. "discarded steps, restarts; with several hosts also for each host" },
    { "--worst", "samples whose steps had the largest losses, relative to others of the same "
      .. "bucket and noise level" },
    { "--count N", "number of samples of --worst (default: 20)", least = 1 },
    { "--data NAME.mrx", "with --worst: the index, if it has moved since the run" },
    { "--export FORMAT", "csv or json: one row for each step that was not discarded, on standard "
      .. "output; tensorboard or wandb: their files, in the run's folder" },
    { "--stage NAME", "only this stage of a run with stages, with --time, --worst and --export" },
    { "--json", "lines as JSON" },
  },
  questions = { { "export", "stage" }, { "time", "stage json" },
    { "worst", "stage json count data" } },
  details = "RUN is a folder, or the name or number of a run in outputs/. It may be running, also "
    .. "on another host.\nSteps that a rollback or a restart discarded are shown where they "
    .. "happened; --export leaves them out.\n--follow ends with the run; if a launcher restarts "
    .. "lost ranks, it waits a minute for that.",
}

local POLL_S <const> = 0.2
local EVERY <const> = 50
local WORST <const> = 20
local LONGEST_S <const> = 1e11

-- log_every of a run's settings
local function every_of(dir)
  local tree = glance.settings(dir)
  local every = tree and math.tointeger(tree.log_every)
  return every and every >= 1 and every or EVERY
end

-- Prints lines. For people a line is local time and text; as JSON it is what the run wrote.
local function print_lines(list, opts)
  local output = require "moonreel.text.output"
  for _, one in ipairs(list) do
    local text
    if opts.json then
      text = require("moonreel.core.json").encode(one.entry)
    else
      text = words.time(one.wall) .. "  " .. one.text
    end
    if not output.write(io.stdout, text, "\n") then
      return false
    end
  end
  return true
end

-- Prints new lines until the run ends, the reader closes the pipe, or a signal comes.
local function follow(history, dir, opts)
  signal.catch()
  local running
  repeat
    running = glance.active(dir)
    -- lines that were written just before the run ended are read after this check
    if not print_lines(history:more(), opts) or signal.pending() then
      break
    end
    if running then
      base.sleep(POLL_S)
    end
  until not running
  local number = signal.pending()
  signal.release()
  return number and 128 + number or 0
end

-- the parts of a run that the options select
local function parts_of(dir, opts)
  local parts, names = find.parts(dir), {}
  for i, part in ipairs(parts) do
    names[i] = part.stage
    if opts.stage and part.stage == opts.stage then
      return { part }
    end
  end
  if opts.stage then
    base.raise("MR_E_USAGE", ("log: --stage %s: in %s no stage of this name has begun; %s"):format(
      opts.stage, dir, #names > 0 and "expected " .. table.concat(names, ", ")
      or "try: leave --stage out"))
  end
  return parts
end

local function seconds(value)
  -- sums from a damaged journal are printed as they are
  if value > LONGEST_S then
    return ("%.3gs"):format(value)
  end
  return value < 60 and ("%.1fs"):format(value)
    or require("moonreel.trainer.progress").duration(value)
end

local function percent(share) return ("%.1f %%"):format(share * 100) end

local function seconds_column(opts)
  return { key = "seconds", title = "time", right = true,
    format = not opts.json and seconds or nil }
end

-- parts of a host's time, with short titles for a wide table
local SHARES <const> = { { "training", "training" }, { "waiting for data", "data" },
  { "waiting for other ranks", "other ranks" }, { "saving", "saving" },
  { "steps taken back", "taken back" }, { "other work of a launch", "other work" },
  { "restarting after a failure", "restarts" },
  { "ended or stopped, until the next launch", "at rest" } }

-- prints a line for each host; each has a list of rows like the account's
local function print_hosts(hosts, columns)
  local rows = {}
  for i, list in ipairs(hosts) do
    local whole = list[#list]
    rows[i] = { host = whole.host, seconds = whole.seconds, stage = whole.stage }
    for _, row in ipairs(list) do
      rows[i][row.what] = row.share
    end
  end
  table.move({ { key = "host" }, seconds_column {} }, 1, 2, #columns + 1, columns)
  for _, share in ipairs(SHARES) do
    columns[#columns + 1] = { key = share[1], title = share[2], right = true, format = percent }
  end
  io.write("\n")
  require("moonreel.text.table").print(columns, rows)
end

local function print_time(dir, opts)
  local parts, rows, hosts = parts_of(dir, opts), {}, {}
  local function take(list, stage)
    for _, row in ipairs(list) do
      row.stage = stage
      rows[#rows + 1] = (opts.json or row.seconds > 0 or (row.n or 0) > 0) and row or nil
    end
  end
  for i, account in ipairs(require("moonreel.runs.account").of(parts)) do
    take(account:rows(), parts[i].stage)
    for _, list in ipairs(account:by_host()) do
      if opts.json then
        take(list, parts[i].stage)
      end
      list[#list].stage, hosts[#hosts + 1] = parts[i].stage, list
    end
  end
  local stage = #parts > 1 and { key = "stage" } or nil
  local columns = { { key = "what" }, seconds_column(opts),
    { key = "share", right = true, format = percent }, { key = "n", title = "times",
      right = true } }
  if stage or opts.json then
    table.insert(columns, 1, { key = "stage" })
  end
  if opts.json then
    table.insert(columns, 2, { key = "host" })
  end
  require("moonreel.text.table").print(columns, rows, opts)
  if #hosts > 0 and not opts.json then
    print_hosts(hosts, { stage })
  end
  return 0
end

-- the worst samples of one part, with their index rows
local function worst_of(part, opts)
  local trained <close> = require("moonreel.cli.target").trained(part, opts.data)
  local rows, facts = require("moonreel.runs.worst").of(trained.record, trained.order, trained.list)
  local out = {}
  for i = 1, math.min(#rows, opts.count or WORST) do
    local one = rows[i]
    local source = trained.list[one.source]
    local sample = source.index:row(one.row)
    out[i] = { stage = part.stage, source = source.name ~= "" and source.name or nil,
      row = one.row, score = one.score, loss = one.loss, times = one.times, step = one.step,
      path = sample.path, key = sample.key, index = source.index.meta.path,
      text = opts.json and sample.text or sample.text:sub(1, 40) }
  end
  return out, facts
end

local function say_nothing(dir, facts)
  io.stderr:write(("moonreel: %s: no step can be judged: %s\n"):format(dir, facts.problem
    or facts.left > 0 and ("%d steps have no loss or no digest of their samples, or are the first "
      .. "of their bucket and noise level"):format(facts.left) or "the journal has no steps"))
  return 1
end

local function print_worst(dir, opts)
  local rows, facts
  for _, part in ipairs(parts_of(dir, opts)) do
    local more
    more, facts = worst_of(part, opts)
    rows = table.move(more, 1, #more, rows and #rows + 1 or 1, rows or {})
  end
  if not rows or #rows == 0 then
    return say_nothing(dir, facts or { left = 0 })
  end
  local columns = { { key = "score", right = true, format = function(z)
      return ("%+.2f"):format(z)
    end }, { key = "loss", right = true, format = function(z) return ("%.4f"):format(z) end },
    { key = "times", right = true }, { key = "step", right = true }, { key = "row", right = true },
    { key = "path" }, { key = "text" } }
  for _, key in ipairs(opts.json and { "stage", "source", "key", "index" } or {}) do
    columns[#columns + 1] = { key = key }
  end
  require("moonreel.text.table").print(columns, rows, opts)
  if not opts.json then
    local ids = {}
    for i = 1, math.min(#rows, 8) do
      ids[i] = "--id " .. rows[i].row
    end
    print(("score: deviations of its steps above others of the same bucket and noise level, "
      .. "from %d steps\n"
      .. "try: moonreel data preview %s %s -o worst.png"):format(facts.steps, rows[1].index,
      table.concat(ids, " ")))
  end
  return 0
end

-- writes the files of a tracker; complete files stay as they are
local function make_files(dir, opts)
  if opts.stage then
    base.raise("MR_E_USAGE", ("log: --export %s shows all stages of a run; try: without --stage")
      :format(opts.export))
  end
  local r = require("moonreel.trackers").export(dir, opts.export)
  print(("%s: %d files written, %d were there"):format(r.folder, r.written, r.kept))
  for _, path in ipairs(r.left) do
    print(path .. ": another program wrote it, or it was uploaded; it stays unchanged")
  end
  return 0
end

local function print_export(dir, opts)
  local export, format = require "moonreel.runs.export", opts.export
  if format == "tensorboard" or format == "wandb" then
    return make_files(dir, opts)
  elseif format ~= "csv" and format ~= "json" then
    base.raise("MR_E_USAGE", ("log: --export: expected csv, json, tensorboard or wandb, got '%s'")
      :format(format))
  end
  local steps = require("moonreel.runs.events").steps(parts_of(dir, opts))
  local output = require "moonreel.text.output"
  export[format](steps, function(text) output.write(io.stdout, text) end)
  return 0
end

---@param args string[]
---@return integer exit code
function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local opts = parsed.options
  if #parsed.positional ~= 1 then
    base.raise("MR_E_USAGE", ("log: expected one run, got %d; usage: moonreel %s"):format(
      #parsed.positional, command.usage))
  end
  local dir = find.one(parsed.positional[1], "log")
  if not opts.follow then
    require("moonreel.runs.damage").say(find.parts(dir))
  end
  if opts.export then
    return print_export(dir, opts)
  elseif opts.time then
    return print_time(dir, opts)
  elseif opts.worst then
    return print_worst(dir, opts)
  end
  local history = require("moonreel.runs.history").open(dir, opts.every or every_of(dir))
  if opts.follow then
    return follow(history, dir, opts)
  end
  print_lines(history:more(), opts)
  return 0
end

return command
