--- moonreel data quarantine: lists samples that could not be read, clears, retries or removes them.
-- @module moonreel.cli.data.quarantine
local base = require "moonreel.core.base"
local derived = require "moonreel.cli.derived"
local json = require "moonreel.core.json"
local longwork = require "moonreel.cli.longwork"

local part = {
  words = "list|clear|retry|apply RUN|FILE.jsonl [NAME.mrx]",
  summary = "samples that a run could not read: list, clear, retry, or remove them from the index",
  options = {
    derived.output,
    { "--class CLASS", "list, clear: only this class: corrupt, short, stall, io, ..." },
    { "--key KEY", "list, clear: only this sample" },
  },
  details = "  list    samples with their failures; after two permanent failures a sample is left "
    .. "out from the next epoch on\n  clear   remove events, all or those of --class and --key\n  "
    .. "retry   read the samples of NAME.mrx again, and remove the events of those that are good "
    .. "now\n  apply   write NAME.mrx without the samples that are left out (-o)",
}

local function wanted(opts)
  return function(event)
    return (not opts.class or event.class == opts.class) and (not opts.key or event.key == opts.key)
  end
end

local columns = { { key = "row", right = true }, { key = "class" },
  { key = "events", right = true }, { key = "first_epoch", title = "from", right = true },
  { key = "last_epoch", title = "to", right = true },
  { key = "left_out", title = "left out", format = function(x) return x and "yes" or "no" end },
  { key = "path" }, { key = "detail", format = require("moonreel.text.table").short } }

local jobs = {}

function jobs.list(opts, path)
  local rows, good = {}, wanted(opts)
  for _, s in ipairs(require("moonreel.data.quarantine").samples(path)) do
    rows[#rows + 1] = good(s) and s or nil
  end
  if opts.json then
    print(json.encode(json.array(rows), { indent = 2 }))
  elseif #rows == 0 then
    print("no samples")
  else
    io.write(require("moonreel.text.table").text(columns, rows))
  end
  return 0
end

function jobs.clear(opts, path)
  local gone, stay = require("moonreel.data.quarantine").remove(path, wanted(opts))
  if opts.json then
    print(json.encode { path = path, removed = gone, left = stay })
  else
    print(("%s: %d events removed, %d kept"):format(path, gone, stay))
  end
  return 0
end

function jobs.retry(opts, path, index)
  local quarantine, examine = require "moonreel.data.quarantine", require "moonreel.data.examine"
  local healed, counts = {}, { good = 0, bad = 0, unknown = 0 }
  local rows, keys = {}, {}
  for _, sample in ipairs(quarantine.samples(path)) do
    local i = index.core:find(sample.key)
    if i then
      rows[#rows + 1], keys[#keys + 1] = i, sample.key
    else
      counts.unknown = counts.unknown + 1
    end
  end
  local done, code = longwork.run(function(tick)
    local n = 0
    for seen in examine.sweep(index, rows, { look = "frames" }, tick) do
      n = n + 1
      healed[keys[n]] = not seen.class
      local kind = seen.class and "bad" or "good"
      counts[kind] = counts[kind] + 1
    end
    return true
  end, "samples", "nothing was removed")
  if not done then
    return code
  end
  counts.removed = quarantine.remove(path, function(event) return healed[event.key] end)
  if opts.json then
    print(json.encode(counts))
  else
    print(("%s: %d samples are good now, their %d events are removed; %d are bad, %d are not in %s")
      :format(path, counts.good, counts.removed, counts.bad, counts.unknown, index.meta.path))
  end
  return 0
end

function jobs.apply(opts, path, index)
  if not opts.output then
    base.raise("MR_E_USAGE", "data quarantine apply: no output given (-o NEW.mrx)")
  end
  local out = {}
  for _, sample in ipairs(require("moonreel.data.quarantine").samples(path)) do
    out[sample.key] = sample.left_out and sample.class
  end
  return derived.run(opts, { from = { index }, made = "quarantine", by = path,
    choose = function(row) return not out[row.key], out[row.key] end })
end

function part.run(opts, _, job, where, name)
  if not jobs[job] then
    base.raise("MR_E_USAGE", ("data quarantine: expected list, clear, retry or apply, got '%s'")
      :format(job))
  end
  local path = require("moonreel.data.quarantine").path(where)
  if job == "list" or job == "clear" then
    return jobs[job](opts, path)
  elseif not name then
    base.raise("MR_E_USAGE", ("data quarantine %s: needs the index; usage: moonreel %s"):format(job,
      part.usage))
  end
  return jobs[job](opts, path, derived.open({ name })[1])
end

return part
