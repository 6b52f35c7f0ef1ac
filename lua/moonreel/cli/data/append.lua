--- moonreel data append: an index with the clips of further folders or lists after its rows.
-- @module moonreel.cli.data.append
local base = require "moonreel.core.base"
local derived = require "moonreel.cli.derived"
local json = require "moonreel.core.json"
local longwork = require "moonreel.cli.longwork"

-- Ingests a folder or list into an index of its own, which the caller removes.
local function ingest(input, opts, to)
  return longwork.run(function(tick)
    return require("moonreel.data").ingest(input, to, { captions = opts.captions, root = opts.root,
      source = opts.source, threads = opts.threads, columns = opts.columns,
      escape = opts.escape }, function(p)
      tick(p.done, p.finished and p.done or p.total + 1)
    end)
  end, "files", "nothing was written")
end

return {
  words = "NAME.mrx DIR|FILE.csv|FILE.tsv|FILE.jsonl|FILE.json -o NEW.mrx",
  summary = "add the clips of a folder or list after the rows of an index",
  output = true,
  options = { derived.output,
    { "--captions FILE", "for folders: a CSV or JSON lines file with path and text" },
    { "--root DIR", "folder of relative paths" }, derived.columns, derived.escape,
    { "--source NAME", "name of the new clips' source in the sample keys (default: main)" },
    { "--threads N", "scanning threads (default: one per processor)", least = 1 } },
  run = function(opts, _, path, input)
    local old = derived.open({ path })[1]
    local more = ("%s.append-%d"):format(opts.output:gsub("/+$", ""), base.pid())
    local result, code = ingest(input, opts, more)
    if not result then
      return code
    end
    local _ <close> = setmetatable({}, { __close = function() base.remove_dir(more) end })
    local new = derived.open({ more })[1]
    code = derived.run(opts, { from = { old, new }, made = "append", by = input,
      choose = function(row, index)
        return index == old or not old.core:find(row.key), "in the index already"
      end }, { refused = result.refused, notes = json.array(result.notes) })
    for _, note in ipairs(not opts.json and result.notes or {}) do
      print("  " .. note)
    end
    return code
  end,
}
