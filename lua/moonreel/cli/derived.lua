--- Parts of `moonreel data` that write a new index: how they derive it and report it.
-- @module moonreel.cli.derived
local derive = require "moonreel.data.derive"
local longwork = require "moonreel.cli.longwork"

local derived = {}

--- The options that all of these parts take.
derived.output = { "-o, --output NAME.mrx", "the index to write; an existing one is replaced when "
  .. "the new one is sealed, even if it is the input" }

--- Options for reading a list.
derived.columns = { "--columns A=B,...", "use column B of the list as A: "
  .. "path=video,text=caption,text_2=title,start_s=begin,range_s=times; -=B ignores it" }
derived.escape = { "--escape CHAR", "CSV: escape character in front of a quote, such as '\\' in "
  .. "lists of Spark and MySQL (default: quotes are doubled)" }

--- The two numbers of --part I/N; nil without it.
---@param text string|nil
---@return integer|nil part
---@return integer|nil parts
function derived.part(text)
  if not text then
    return nil
  end
  local i, n = text:match("^(%d+)/(%d+)$")
  i, n = math.tointeger(i), math.tointeger(n)
  if not i or i < 1 or i > n then
    require("moonreel.core.base").raise("MR_E_USAGE",
      ("--part: expected I/N with I from 1 to N, got '%s'"):format(text))
  end
  return i, n
end

--- Open indexes, in the order of their paths.
---@param paths string[]
---@return moonreel.Index[]
function derived.open(paths)
  local data, indexes = require "moonreel.data", {}
  for i, path in ipairs(paths) do
    indexes[i] = data.open(path)
  end
  return indexes
end

--- Prints the reports of one command, for people or as JSON.
---@param opts table       {json}
---@param reports table[]  of derive.run
---@param more? table      further facts for JSON
function derived.tell(opts, reports, more)
  if opts.json then
    local json = require "moonreel.core.json"
    local out = more or {}
    if #reports == 1 then
      for key, value in pairs(reports[1]) do
        out[key] = value
      end
    else
      out.indexes = json.array(reports)
    end
    print(json.encode(out, { indent = 2 }))
    return
  end
  for _, r in ipairs(reports) do
    print(("%s: %d of %d rows, fp_order %s"):format(r.index, r.rows_out, r.rows_in, r.fp_order))
    for _, why in ipairs(require("moonreel.recipe.environment").sorted_keys(r.left_out)) do
      print(("  %d rows: %s"):format(r.left_out[why], why))
    end
  end
end

--- Derives one index and reports it.
---@param opts table   options of the command: output, json
---@param given table  as derive.run takes it, without output and tick
---@param more? table|fun(): table  further facts for JSON
---@return integer exit code
function derived.run(opts, given, more)
  local report, code = longwork.run(function(tick)
    given.output, given.tick = opts.output, tick
    return derive.run(given)
  end, "rows", "nothing was written")
  if not report then
    return code
  end
  derived.tell(opts, { report }, type(more) == "function" and more() or more)
  return 0
end

return derived
