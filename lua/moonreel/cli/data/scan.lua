--- moonreel data scan: checks that the clips of an index exist, are complete and decode.
-- @module moonreel.cli.data.scan
local base = require "moonreel.core.base"
local derived = require "moonreel.cli.derived"
local json = require "moonreel.core.json"
local longwork = require "moonreel.cli.longwork"

local part = {
  words = "NAME.mrx",
  summary = "check that clips exist, are unchanged and, with --decode, undamaged",
  options = {
    { "--decode", "decode every frame (about a second for ten clips of 720p), and again from some "
      .. "key frames, which must give the same frames; otherwise packets are counted" },
    { "-o, --output NEW.mrx", "write the index of the good clips" },
    { "--threads N", "scanning threads (default: one per processor)", least = 1 },
    { "--bad FILE.jsonl", "write the faults of the others, one a line" },
    { "--part I/N", "process every N-th block of rows, for N processes or machines; data merge "
      .. "--parts joins the results" },
  },
  details = "Exit 1 if a clip is faulty and no new index leaves it out.",
}

-- counts while a scan runs
local function new_count()
  return { good = 0, bad = 0, mended = 0, classes = {}, first = {}, lines = {} }
end

local function examined(count, row, seen, opts)
  local class, detail = seen.class, seen.why
  if not class then
    count.good = count.good + 1
    return true
  end
  -- a new index corrects wrong key frames, so the clip counts as good
  if seen.keys and opts.output then
    count.good, count.mended = count.good + 1, count.mended + 1
    return { keys = seen.keys }
  end
  count.bad = count.bad + 1
  count.classes[class] = (count.classes[class] or 0) + 1
  count.first[class] = count.first[class] or detail
  if opts.bad then
    count.lines[#count.lines + 1] = json.encode { row = row.id + 1, key = row.key, path = row.path,
      class = class, detail = detail } .. "\n"
  end
  return false, class
end

-- checks every row of the part, without writing an index
local function look(index, opts, how, count, tick)
  local rows = require("moonreel.data.derive").rows(index, derived.part(opts.part))
  for seen in require("moonreel.data.examine").sweep(index, rows, how, tick) do
    examined(count, seen.class and index:row(seen.row), seen, opts)
  end
  return true
end

local function tell(opts, path, count, report)
  if opts.bad then
    base.replace_file(opts.bad, table.concat(count.lines))
  end
  if opts.json then
    print(json.encode({ index = path, good = count.good, bad = count.bad, mended = count.mended,
      classes = count.classes, output = report }, { indent = 2 }))
    return
  end
  print(("%s: %d good, %d bad"):format(path, count.good, count.bad))
  for _, class in ipairs(require("moonreel.recipe.environment").sorted_keys(count.classes)) do
    print(("  %d %s, the first: %s"):format(count.classes[class], class, count.first[class]))
  end
  if count.mended > 0 then
    print(("  %d listed wrong key frames; only the right ones are kept"):format(count.mended))
  end
  if report then
    derived.tell(opts, { report })
  end
end

function part.run(opts, _, path)
  local i, n = derived.part(opts.part)
  local index <close> = require("moonreel.data").open(path)
  local count = new_count()
  local how = { look = opts.decode and "frames" or "packets", threads = opts.threads }
  local done, code = longwork.run(function(tick)
    if not opts.output then
      return look(index, opts, how, count, tick)
    end
    return require("moonreel.data.derive").run { output = opts.output, from = { index },
      made = "scan", by = opts.decode and "decode" or "packets", part = i, parts = n,
      look = how, tick = tick,
      choose = function(row, _, _, seen) return examined(count, row, seen, opts) end }
  end, "rows", "nothing was written")
  if not done then
    return code
  end
  tell(opts, path, count, opts.output and done)
  return count.bad > 0 and not opts.output and 1 or 0
end

return part
