--- moonreel data: build a sample index from clips, look over one.
-- @module moonreel.cli.data
local base = require "moonreel.core.base"
local signal = require "moonreel.core.signal"

local command = {
  name = "data",
  summary = "build a sample index from a folder of clips, a CSV or JSON lines; verify one",
  usage = "data ingest DIR|FILE.csv|FILE.jsonl -o NAME.mrx | data verify NAME.mrx",
  options = {
    { "-o, --output NAME.mrx", "the index to write; an index of that name is replaced when the new "
      .. "one is sealed" },
    { "--captions FILE", "for folders: a CSV or JSON lines file with path and text (default: "
      .. "NAME.txt or NAME.json beside a clip)" },
    { "--root DIR", "where relative paths start (default: the folder, or the folder of the list)" },
    { "--source NAME", "name of this source in the sample keys (default: main)" },
    { "--threads N", "scanning threads (default: one per processor)", least = 1 },
    { "--continue", "go on where an ingest of the same input was killed, and keep what is done "
      .. "when this one is stopped" },
    { "--commit N", "rows between two points to go on from (default: 262144, and never more than a "
      .. "minute)", least = 1 },
    { "--json", "print the result as JSON" },
  },
}

local function usage(text)
  base.raise("MR_E_USAGE", text .. "; usage: moonreel " .. command.usage)
end

-- Progress is one line that is redrawn on a terminal; elsewhere a line appears now and then.
local function show_progress(p, began_s, last)
  local now = base.now_s()
  local terminal = base.is_terminal(2)
  if now - last < (terminal and 0.1 or 10) and not p.finished then
    return last
  end
  if p.total == 0 then
    io.stderr:write(terminal and "\r\27[K" or "", ("reading the list: %d rows"):format(p.listed),
      terminal and "" or "\n")
    return now
  end
  local rate = (p.done - p.resumed) / math.max(now - began_s, 1e-3)
  local left = rate > 0 and (p.total - p.done) / rate or 0
  io.stderr:write(terminal and "\r\27[K" or "",
    ("%d of %d files, %d refused, %.0f/s, %.0f s left"):format(p.done, p.total,
      p.refused, rate, left),
    terminal and not p.finished and "" or "\n")
  return now
end

-- the first signal ends the work; only --continue leaves something behind
local stopped = {}

local function ingest(input, opts)
  local data = require "moonreel.data"
  local began_s, last, told = base.now_s(), base.now_s(), not opts.continue
  local options = { captions = opts.captions, root = opts.root, source = opts.source,
    threads = opts.threads,
    resume = opts.continue, commit_rows = opts.commit }
  return data.ingest(input, opts.output, options, function(p)
    if p.total == 0 then
      began_s = base.now_s()
    elseif not told then
      io.stderr:write(p.resumed > 0 and ("continues after %d of %d files\n"):format(p.resumed,
        p.total)
        or "nothing to continue, begins with the first file\n")
      told = true
    end
    last = show_progress(p, began_s, last)
    if signal.pending() and not p.finished then
      error(stopped)
    end
  end)
end

local function run_ingest(input, opts)
  local data = require "moonreel.data"
  signal.catch()
  local ok, result = pcall(ingest, input, opts)
  local number = signal.pending()
  signal.release()
  if not ok and result == stopped then
    io.stderr:write("moonreel: stopped by a signal; ",
      opts.continue and "what was committed waits for --continue\n" or "nothing was written\n")
    return 128 + number
  end
  if not ok then
    error(result, 0)
  end
  local facts = data.open(opts.output).meta
  if opts.json then
    local json = require "moonreel.core.json"
    print(json.encode({ index = opts.output, rows = result.written,
      refused = result.refused,
      without_caption = result.without_caption, fp_order = facts.fp_order, fp_set = facts.fp_set,
      notes = json.array(result.notes) }))
    return 0
  end
  print(("%s: %d samples, fp_order %s"):format(opts.output, result.written, facts.fp_order))
  if result.without_caption > 0 then
    print(("  %d have no caption"):format(result.without_caption))
  end
  if result.refused > 0 then
    print(("  %d rows were refused, with reasons in %s/refused.jsonl"):format(result.refused,
      opts.output))
  end
  for _, note in ipairs(result.notes) do
    print("  " .. note)
  end
  return 0
end

-- compares every block of the file with its checksum
local function run_verify(path, opts)
  local index <close> = require("moonreel.data").open(path, { verify = true })
  local facts = index.meta
  if opts.json then
    print(require("moonreel.core.json").encode({ index = path, rows = facts.rows,
      fp_order = facts.fp_order, fp_set = facts.fp_set }))
  else
    print(("%s: whole, %d samples, fp_order %s"):format(path, facts.rows, facts.fp_order))
  end
  return 0
end

---@param args string[]
---@return integer exit code
function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local opts, words = parsed.options, parsed.positional
  local job = words[1]
  if job ~= "ingest" and job ~= "verify" then
    usage(job and ("'%s' is no part of 'data'"):format(job) or "nothing to do")
  end
  if #words ~= 2 then
    usage(#words < 2 and "no input given" or ("'%s' is one input too many"):format(words[3]))
  end
  if job == "verify" then
    return run_verify(words[2], opts)
  end
  if not opts.output then
    usage("no output given (-o)")
  end
  return run_ingest(words[2], opts)
end

return command
