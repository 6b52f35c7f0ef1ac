--- moonreel order: the samples of a step, without running it.
-- @module moonreel.cli.order
local base = require "moonreel.core.base"
local target = require "moonreel.cli.target"

local command = {
  name = "order",
  summary = "print the samples of a step, the steps of a sample, or audit a run",
  usage = "order RECIPE|RUN [key=value ...] --step N [--rank R --ranks N] [--id K] [--json]"
    .. " | --audit",
  overrides = true,
  options = {
    { "--step N", "first step, counted from 1 (default: 1)", least = 1 },
    { "--count N", "number of steps (default: 1)", least = 1 },
    { "--rank R", "only the samples of this one of --ranks, counted from 0", least = 0 },
    { "--ranks N", "number of ranks that share the order (default: 1): a step has N times "
      .. "`accumulate` micro-batches, unless virtual_ranks sets the number", least = 1 },
    { "--id K", "the steps of this sample: its row, counted from 1, its key or its path; from "
      .. "--step to the end of that epoch" },
    { "--source NAME", "source of --id, if dataset.sources has several" },
    { "--data NAME.mrx", "the index (default: dataset.data_path, or dataset.sources)" },
    { "--stage NAME", "one stage of a recipe with stages" },
    { "--audit", "for a run: prove from its journal that no step repeated or skipped a sample; "
      .. "exit 1 if this cannot be proven" },
    { "--json", "print JSON" },
  },
  questions = { { "audit", "data stage json" } },
  details = "The order is a function of the index, the bucket rule and the seed. Steps are counted "
    .. "from the first step of the\nrun that began with its data. For a run, its quarantine is "
    .. "applied. With several sources each has epochs of its own.",
}

-- The micro-batches of one step, each with the rank that takes it. The last step of all epochs may
-- have fewer.
local function step_of(order, step, together, ranks)
  local out = {}
  for i = 1, together do
    if order:over() then
      break
    end
    local draw = order:next()
    draw.step, draw.rank, draw.micro = step, (i - 1) % ranks, (i - 1) // ranks + 1
    out[i] = draw
  end
  return out
end

-- moves the order to the beginning of a step
local function go_to(order, settings, step, together)
  local steps = -(-order:batches() // together)
  local function refuse(form, ...)
    base.raise("MR_E_USAGE", ("order: --step %d: "):format(step) .. form:format(...)
      .. ("; epoch 0 has %d of them, each of %d micro-batches%s"):format(steps, together,
        settings.epochs > 0 and (", and epochs = %d (%s)"):format(settings.epochs,
          settings:origin("epochs")) or ""))
  end
  if settings.epochs == 0 and settings.steps > 0 and step > settings.steps then
    refuse("expected 1 to %d (steps, %s)", settings.steps, settings:origin("steps"))
  end
  local before, most = step - 1, order:most()
  -- a step beyond any possible end is refused without a search
  if before > most // together then
    refuse("all epochs end long before this step; expected at most %d", most // together + 1)
  end
  local passed = before * together - order:skip(before * together)
  if order:over() then
    refuse("all epochs end before this step; expected 1 to %d", -(-passed // together))
  end
end

local function print_draws(draws, list, opts)
  local rows = {}
  for _, d in ipairs(draws) do
    local source = list[d.source]
    for _, i in ipairs(d.rows) do
      local row = source.index:row(i)
      rows[#rows + 1] = { source = source.name ~= "" and source.name or nil, step = d.step,
        epoch = d.epoch, rank = d.rank, micro = d.micro,
        bucket = ("%s %d %dx%d"):format(d.bucket.resolution, d.bucket.frames, d.bucket.height,
          d.bucket.width), row = i, path = row.path, key = row.key,
        text = opts.json and row.text or row.text:sub(1, 60) }
    end
  end
  local columns = { { key = "step", right = true }, { key = "epoch", right = true },
    { key = "rank", right = true }, { key = "micro", right = true }, { key = "bucket" },
    { key = "row", right = true }, { key = "path" }, { key = "text" } }
  if list[1].name ~= "" then
    table.insert(columns, 2, { key = "source" })
  end
  if opts.json then
    columns[#columns + 1] = { key = "key" }
  end
  require("moonreel.text.table").print(columns, rows, opts)
end

-- Finds the steps, in the epoch of `step`, that contain a row of a source. If that source has no
-- share, the search ends after MOST_STEPS.
local MOST_STEPS = 100000
local function find(order, step, together, ranks, wanted, source)
  local found, epoch = {}, nil
  for at = step, step + MOST_STEPS do
    for _, draw in ipairs(step_of(order, at, together, ranks)) do
      local mine = draw.source == source
      epoch = epoch or mine and draw.epoch
      if mine and draw.epoch ~= epoch then
        return found
      end
      for _, row in ipairs(mine and draw.rows or {}) do
        if row == wanted then
          draw.rows = { row }
          found[#found + 1] = draw
        end
      end
      if mine and draw.last then
        return found
      end
    end
  end
  return found
end

-- notes on launches whose settings differ from those that are compared
local function notes_of(record, settings, dir)
  local notes = {}
  for i, launch in ipairs(record.launches) do
    if type(launch.settings) == "string" and launch.settings ~= settings.hash then
      notes[#notes + 1] = ("launch %d, from step %d on, had other settings (%s) than %s/"
        .. "settings.json (%s)"):format(i, launch.at, launch.settings, dir, settings.hash)
    end
  end
  return notes
end

-- audits one run, or one stage
local function audit_part(part, opts)
  local trained <close> = target.trained(part, opts.data)
  local record = trained.record
  local found = require("moonreel.runs.audit").compare(record, trained.order, trained.list)
  found.stage, found.run = part.stage, part.dir
  found.notes = notes_of(record, trained.settings, part.dir)
  found.proven = not found.unknown and #found.problems == 0
  return found
end

local PROBLEMS_SHOWN <const> = 10

local function print_audit(found)
  local name = found.run
  if found.unknown then
    print(("%s: nothing can be proven: %s"):format(name, found.unknown))
    return
  end
  for i, one in ipairs(found.problems) do
    if i > PROBLEMS_SHOWN then
      print(("  and %d more steps; --json lists all"):format(#found.problems - PROBLEMS_SHOWN))
      break
    end
    print(("  step %d: %s"):format(one.step, one.text))
  end
  if found.proven then
    print(("%s: %d steps, %d samples of %d epoch%s: each step has the samples that the order "
      .. "gives, none is repeated or skipped"):format(name, found.steps, found.samples,
      found.epochs, found.epochs == 1 and "" or "s"))
  else
    print(("%s: %d of %d steps are not proven"):format(name, #found.problems, found.steps))
    for _, note in ipairs(found.notes) do
      print("  " .. note)
    end
  end
  if found.left_out > 0 then
    print(("  rollbacks left out %d samples, as the recipe says"):format(found.left_out))
  end
  if found.undone > 0 then
    print(("  %d steps were discarded by a rollback or a restart and do not count"):format(
      found.undone))
  end
end

local function run_audit(word, opts)
  local places = require "moonreel.runs.find"
  local json = require "moonreel.core.json"
  local all, proven = json.array(), true
  local parts = places.parts(places.one(word, "order"))
  require("moonreel.runs.damage").say(parts)
  for _, part in ipairs(parts) do
    if not opts.stage or part.stage == opts.stage then
      local found = audit_part(part, opts)
      all[#all + 1], proven = found, proven and found.proven
      found.problems = json.array(found.problems)
      found.notes = json.array(found.notes)
    end
  end
  if #all == 0 then
    base.raise("MR_E_USAGE", ("order: %s has no stage%s that has begun"):format(word,
      opts.stage and " '" .. opts.stage .. "'" or ""))
  elseif opts.json then
    io.write(json.encode(all, { indent = 2 }), "\n")
  else
    for _, found in ipairs(all) do
      print_audit(found)
    end
  end
  return proven and 0 or 1
end

---@param args string[]
---@return integer exit code
function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local opts = parsed.options
  local step, ranks = opts.step or 1, opts.ranks or 1
  if #parsed.positional ~= 1 then
    base.raise("MR_E_USAGE", ("order: expected one recipe or run, got %d; usage: moonreel %s")
      :format(#parsed.positional, command.usage))
  elseif opts.audit then
    return run_audit(parsed.positional[1], opts)
  elseif opts.rank and opts.rank >= ranks then
    base.raise("MR_E_USAGE", ("order: --rank %d of --ranks %d; expected 0 to %d"):format(opts.rank,
      ranks, ranks - 1))
  end
  local settings, run = target.settings(parsed, parsed.positional[1], opts.stage)
  local list <close> = target.sources(settings, opts.data)
  local order <close> = require("moonreel.data.order").open(settings, list,
    run and run .. "/quarantine.jsonl", ranks)
  local together = settings.accumulate * require("moonreel.data.order").step_ranks(settings, ranks)
  go_to(order, settings, step, together)
  local draws = {}
  if opts.id then
    local source, found = target.source(list, opts.source, opts.id)
    local row, number = found.id + 1, 1
    while list[number] ~= source do
      number = number + 1
    end
    draws = find(order, step, together, ranks, row, number)
    if #draws == 0 and not opts.json then
      print(("row %d does not come again in this epoch; moonreel data explain --why-not %d says "
        .. "whether a bucket takes it"):format(row, row))
      return 1
    end
  else
    for n = 0, (opts.count or 1) - 1 do
      for _, draw in ipairs(step_of(order, step + n, together, ranks)) do
        draws[#draws + 1] = draw
      end
    end
  end
  local mine = {}
  for _, draw in ipairs(draws) do
    mine[#mine + 1] = (not opts.rank or draw.rank == opts.rank) and draw or nil
  end
  print_draws(mine, list, opts)
  return #mine > 0 and 0 or 1
end

return command
