--- Golden runner: takes a directory of reference files, reads from each what it describes, checks
-- it. The kind of a file is its stem; models, sizes and weights come from its metadata, so other
-- files of the same form need no new code. One line per file: PASS name max-error tolerance, FAIL
-- ..., SKIP name reason.
-- @module spec.golden.runner
local base = require "moonreel.core.base"
local check = require "spec.golden.runner.check"
local file = require "spec.golden.runner.file"

local golden = {}

-- kinds in order of trial: a Lua pattern over the stem, and a function (file, check) or the reason
-- for a skip
local kinds = {}
local function kind(pattern, run) kinds[#kinds + 1] = {pattern = pattern, run = run} end

for _, stem in ipairs{"_weights$", "^ae$", "^flux$", "^hunyuan_vae$", "^video$"} do
  kind(stem, "weights for other files")
end
for _, room in ipairs{"ranks", "model", "start", "flow", "update", "masks", "rounding", "data",
    "transforms", "autoencoder", "losses", "adversary", "hunyuan", "dc_ae", "mmdit", "shifted",
    "train20", "guided", "pipes", "t5", "clip"} do
  for _, row in ipairs(require("spec.golden.runner." .. room)) do
    kind(row[1], row[2])
  end
end

-- JSON files: a Lua pattern over the stem, or over the text as `head`, and a function (text, check,
-- folder)
local json_rooms = {"recipes", "texts", "data20", "tables", "rates"}

local function find_json(stem, text)
  for _, room in ipairs(json_rooms) do
    for _, row in ipairs(require("spec.golden.runner." .. room)) do
      if row.head and text:find(row.head) or not row.head and stem:find(row[1]) then
        return row[#row]
      end
    end
  end
end

local function find(stem)
  for _, k in ipairs(kinds) do
    if stem:find(k.pattern) then
      return k.run
    end
  end
end

-- one line and its verdict
local function judge(dir, name)
  local path, stem, ext = dir .. "/" .. name, name:match("^(.*)%.([^.]+)$")
  local result, run = check.new(), nil
  local ok, err = xpcall(function()
    local text = ext == "json" and base.read_file(path)
    if text then
      run = find_json(stem, text)
    else
      run = find(stem)
    end
    if type(run) ~= "function" then
      return
    end
    if text then
      run(text, result, dir)
    else
      local f <close> = file.open(path)
      run(f, result)
    end
  end, function(e)
    return type(e) == "string" and debug.traceback(e, 2) or e
  end)
  collectgarbage()
  if not ok then
    return "FAIL", (tostring(err):gsub("%s*\n%s*", " | "))
  end
  if type(run) ~= "function" then
    return "SKIP", run or "not built yet"
  end
  local numbers = string.format("%.3g %.3g", result.error, result.tolerance)
  local aside = #result.aside == 0 and "" or (", %d of %d not judged: %s"):format(#result.aside,
    #result.aside + result.count, table.concat(result.aside, "; "))
  if result:passed() then
    return "PASS", numbers .. aside
  end
  return "FAIL", numbers .. " (" .. result.name .. ")" .. aside
end

--- Check every file of a directory.
---@param dir string
---@param write function  takes a line
---@return table  passed, failed, skipped; files: list of {name, verdict, text}
function golden.run(dir, write)
  local sum = {passed = 0, failed = 0, skipped = 0, files = {}}
  local field = {PASS = "passed", FAIL = "failed", SKIP = "skipped"}
  for _, name in ipairs(base.list_dir(dir)) do
    if name:find("%.safetensors$") or name:find("%.json$") then
      local verdict, text = judge(dir, name)
      sum[field[verdict]] = sum[field[verdict]] + 1
      sum.files[#sum.files + 1] = {name = name, verdict = verdict, text = text}
      write(string.format("%s %s %s", verdict, name:match("^(.*)%.[^.]+$"), text))
    end
  end
  write(string.format("%d passed, %d failed, %d skipped", sum.passed, sum.failed, sum.skipped))
  return sum
end

return golden
