--- moonreel data export: writes an index as CSV, JSON lines or tar shards.
-- @module moonreel.cli.data.export
local base = require "moonreel.core.base"
local longwork = require "moonreel.cli.longwork"

return {
  words = "NAME.mrx csv|jsonl|shards -o FILE|DIR",
  summary = "write an index as CSV, JSON lines, or tar files with its clips",
  output = true,
  options = {
    { "-o, --output FILE|DIR", "the list, or the folder of 000000.tar, 000001.tar, ..." },
    { "--fields A,B,C", "csv, jsonl: write these fields (default: those that ingest and the "
      .. "references read, and the columns)" },
    { "--shard-bytes N", "shards: size at which a shard is closed (default: "
      .. "1000000000)", least = 1 },
  },
  run = function(opts, _, path, form)
    local export = require "moonreel.data.export"
    if form ~= "csv" and form ~= "jsonl" and form ~= "shards" then
      base.raise("MR_E_USAGE", ("data export: expected csv, jsonl or shards, got '%s'")
        :format(form))
    end
    if opts.output == "-" then
      base.raise("MR_E_USAGE", "data export: -o - : a list is written whole to a file, not to "
        .. "standard output; try: -o LIST && cat LIST")
    end
    local index <close> = require("moonreel.data").open(path)
    local fields
    for name in (opts.fields or ""):gmatch("[^,%s]+") do
      fields = fields or {}
      fields[#fields + 1] = name
    end
    local result, code = longwork.run(function(tick)
      return { shards = export[form](index, opts.output, { tick = tick, fields = fields,
        shard_bytes = opts.shard_bytes }) }
    end, "rows", "the unfinished files are removed")
    if not result then
      return code
    end
    local roots = index.meta.roots
    if opts.json then
      local json = require "moonreel.core.json"
      print(json.encode({ output = opts.output, rows = #index, shards = result.shards,
        roots = json.array(roots) }, { indent = 2 }))
      return 0
    end
    print(("%s: %d rows%s"):format(opts.output, #index, result.shards
      and (", %d shards"):format(result.shards) or ""))
    if form ~= "shards" and #roots == 1 then
      print("  paths are relative to " .. roots[1])
    end
    return 0
  end,
}
