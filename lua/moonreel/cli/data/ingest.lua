--- moonreel data ingest: makes an index of a folder, CSV, TSV or JSON lines.
-- @module moonreel.cli.data.ingest
local base = require "moonreel.core.base"
local derived = require "moonreel.cli.derived"
local longwork = require "moonreel.cli.longwork"

local part = {
  words = "DIR|SHARDS|FILE.csv|FILE.tsv|FILE.jsonl|FILE.json|FILE.parquet -o NAME.mrx",
  summary = "build an index from a folder of clips or a list of them",
  output = true,
  options = {
    { "-o, --output NAME.mrx", "the index to write; an existing one is replaced when the new one "
      .. "is sealed" },
    { "--captions FILE", "for folders: a CSV or JSON lines file with path and text (default: "
      .. "NAME.txt or NAME.json next to a clip)" },
    { "--root DIR", "folder of relative paths (default: the folder, or the folder of the list); "
      .. "for a folder of tar shards: folder to put their clips in" },
    { "--source NAME", "name of this source in the sample keys (default: main)" },
    derived.columns,
    derived.escape,
    { "--part I/N", "process only this part of the input, for N processes or machines; data merge "
      .. "joins the results" },
    { "--threads N", "scanning threads (default: one per processor)", least = 1 },
    { "--continue", "continue an ingest of the same input that was stopped or killed" },
    { "--commit N", "commit after N rows: a kill loses at most these (default: 262144, and at most "
      .. "a minute of work); Ctrl-C loses none", least = 1 },
  },
  details = "A list has columns path and text. start_s and end_s, or range_s with both, in seconds "
    .. "or H:MM:SS,\nmake a row a part of its file; lists of ranges and captions in a row make one "
    .. "sample each. Other\ncolumns of numbers become columns of the index; empty, NA, NaN, null "
    .. "and similar are missing values.",
}

-- progress of an ingest, as text
local function words(p, began_s)
  if p.total == 0 then
    return ("reading the list: %d rows"):format(p.listed)
  end
  return ("%s, %d refused"):format(longwork.words(p.done, p.total, "files",
    base.now_s() - began_s, p.resumed), p.refused)
end

-- The shell command that continues this ingest.
local function again(args)
  local line = { "moonreel data ingest --continue" }
  for i = 2, #args do
    local word = args[i]
    if word ~= "--continue" then
      line[#line + 1] = word:find("^[%w@%+=:,./_-]+$") and word
        or "'" .. word:gsub("'", "'\\''") .. "'"
    end
  end
  return table.concat(line, " ")
end

local function ingest(input, opts, tick, kept)
  local began_s, reported = base.now_s(), not opts.continue
  local options = { captions = opts.captions, root = opts.root, source = opts.source,
    threads = opts.threads, resume = opts.continue, commit_rows = opts.commit,
    columns = opts.columns, escape = opts.escape, kept = kept }
  options.part, options.parts = derived.part(opts.part)
  return require("moonreel.data").ingest(input, opts.output, options, function(p)
    if p.total == 0 then
      began_s = base.now_s()
    elseif not reported then
      io.stderr:write(p.resumed > 0 and ("continues after %d of %d files\n"):format(p.resumed,
        p.total)
        or "nothing to continue, begins with the first file\n")
      reported = true
    end
    tick(p.finished and 1 or 0, 1, function() return words(p, began_s) end)
  end)
end

-- the first refused row, as text
local function first_refused(folder)
  local lines <close> = assert(io.open(folder .. "/refused.jsonl"))
  local row = require("moonreel.core.json").decode(lines:read(), folder)
  -- a reason may begin with the whole path of the file
  local _, last = row.detail:find(row.path .. ": ", 1, true)
  return ("row %d (%s): %s"):format(row.row, row.path, row.detail:sub((last or 0) + 1))
end

local function tell(opts, result, facts)
  if opts.json then
    local json = require "moonreel.core.json"
    print(json.encode({ index = opts.output, rows = result.written,
      refused = result.refused,
      without_caption = result.without_caption, fp_order = facts.fp_order, fp_set = facts.fp_set,
      notes = json.array(result.notes) }))
    return
  end
  print(("%s: %d samples, fp_order %s"):format(opts.output, result.written, facts.fp_order))
  if result.without_caption > 0 then
    print(("  %d have no caption"):format(result.without_caption))
  end
  if result.refused > 0 then
    print(("  %d refused, with reasons in %s/refused.jsonl; the first: %s"):format(result.refused,
      opts.output, first_refused(opts.output)))
  end
  for _, note in ipairs(result.notes) do
    print("  " .. note)
  end
end

function part.run(opts, parsed, input)
  local left = "nothing was written"
  local function kept(rows, total, problem)
    if rows == 0 then
      return
    end
    left = ("%d of %d files are done and kept; to continue: %s"):format(rows, total,
      again(parsed.args))
    if type(problem) == "table" and problem.message then
      problem.message = problem.message .. "; " .. left
    end
  end
  local result, code = longwork.run(function(tick) return ingest(input, opts, tick, kept) end,
    "files", function() return left end)
  if not result then
    return code
  end
  local index <close> = require("moonreel.data").open(opts.output)
  tell(opts, result, index.meta)
  return 0
end

return part
