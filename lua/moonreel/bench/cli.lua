--- Response times of the command line. For each figure the program is started again, as a user
-- starts it.
-- @module moonreel.bench.cli
local base = require "moonreel.core.base"
local core = require "moonreel.core.bench"
local graph = require "moonreel.bench.graph"
local process = require "moonreel.core.process"
local settings = require "moonreel.settings"
local temporary = require "moonreel.data.temporary"

local cli = {}

local STARTS = 7  -- the most starts of the program per figure; the best counts

-- starts the program once: seconds, processor seconds, output, and peak memory
local function start(words, input)
  local began = base.now_s()
  local done = process.run({process.program(), table.unpack(words)}, input or "",
    {deadline_s = 600, quiet = true})
  local took = base.now_s() - began
  if done.exit ~= 0 then
    base.raise("MR_E_INTERNAL",
      ("bench: moonreel %s ended with %s"):format(table.concat(words, " "),
      done.exit or done.signal))
  end
  return took, done.cpu_s, done.output, done.peak_bytes
end

-- the fastest of several calls of once(): seconds, processor seconds, output, memory
local function best(seconds, once)
  local began, least, cpu, output, bytes = base.now_s(), math.huge, nil, nil, nil
  for i = 1, STARTS do
    if i > 1 and base.now_s() - began > seconds then
      break
    end
    local took, cpu_s, text, peak = once()
    if took < least then
      least, cpu, output, bytes = took, cpu_s, text, peak
    end
  end
  return least, cpu, output, bytes
end

--- The shipped recipe with the most values.
---@return string name, integer values
function cli.largest_recipe()
  local name, most = nil, 0
  for _, one in ipairs(require("moonreel.recipe.files").shipped_names()) do
    local ok, s = pcall(settings.bake, one)  -- helpers are no recipes
    local count = ok and #s:leaves() or 0
    if count > most then
      name, most = one, count
    end
  end
  return name, most
end

-- seconds of a bake in a process that has read the fields; the first bake of a process reads them
local bake_code = [[
  local base, settings = require "moonreel.core.base", require "moonreel.settings"
  require "moonreel.settings.bake"
  require("moonreel.recipe.registry").get()
  local began, cpu = base.now_s(), os.clock()
  settings.bake(%q)
  print(base.now_s() - began, os.clock() - cpu)]]

-- what a user does first with a large checkpoint; the last line prints the private memory
local look = [[
#ckpt:ls("double_blocks.*.img_attn.*")
ckpt:tree(1)
ckpt["double_blocks.18.img_attn.proj.weight"]:stats()
kb = 0
for line in io.lines "/proc/self/smaps_rollup" do kb = kb + (line:match "^Private_.-(%d+)" or 0) end
print("private kB", kb)
]]

local function open_large(dir, seconds)
  local large = require "moonreel.bench.large"
  local one, many, files = large.write(dir, 7)
  local rows = {}
  for _, row in ipairs{{"one file", one}, {"seven files", many}} do
    local took, cpu_s, text = best(seconds, function()
      for _, path in ipairs(files) do
        core.forget_file(path)
      end
      return start({"repl", row[2]}, look)
    end)
    local kb = tonumber(text:match("private kB\t(%d+)"))
    rows[#rows + 1] = {what = "open 11.9 G weights in " .. row[1] .. ", list them, look into one",
      seconds = took, cpu_s = cpu_s, aim_s = 1,
      private_bytes = kb * 1024, aim_bytes = 100e6}
  end
  return rows
end

-- plans of large runs: seven stages on 192 GPUs, and the shapes of Open-Sora 2.0
local function plan_large(_, seconds)
  local rows = {}
  local function add(what, aim_s, words)
    local took, cpu_s, _, peak = best(seconds, function() return start(words) end)
    rows[#rows + 1] = {what = what, seconds = took, cpu_s = cpu_s, aim_s = aim_s,
      private_bytes = peak, aim_bytes = 500e6}
  end
  add("plan all stages of opensora-1.2/lambda/tutorial on 24x8xH100", 10, {"plan",
    "opensora-1.2/lambda/tutorial", "--gpus", "24x8xH100"})
  add("plan 57 blocks of width 3072 over 39 k tokens", 3, {"-e",
    ('require("moonreel.bench.mmdit").plan(1, %d, true)'):format(graph.mmdit_tokens)})
  return rows
end

local RUNS <const>, SHORT <const>, LONG <const> = 200, 500, 100000

-- makes the folder of a run of `steps` steps
local function make_run(path, s, steps)
  base.make_dir(path)
  base.replace_file(path .. "/settings.json", s:to_json())
  local file <close> = assert(io.open(path .. "/journal.jsonl", "w"))
  file:write('{"branch":1,"kind":"start","ranks":1,"run":"bench","step":0,"total":', steps,
    ',"wall":1e9}\n')
  for i = 1, steps do
    file:write(('{"batches":1,"bucket":"6x32x32 b8 l56","bytes":147456,"data_wait_s":4.2e-05,'
      .. '"epoch":%d,"even":true,"grad_norm":0.41,"keys":"%016x","kind":"step","loss":%.12f,'
      .. '"lr":0.002,"samples":8,"step":%d,"t":501.25,"time_s":0.0125,"wall":%.6f,"weight":8}\n')
      :format(i // 64, i, 1 + 1 / i, i, 1e9 + i / 64))
  end
  file:write('{"kind":"end","step":', steps, ',"wall":', 1e9 + steps, "}\n")
  require("moonreel.run").lock(path):close()
end

-- reads runs: a list of many runs, and the whole journal of a long run
local function read_runs(dir, seconds)
  local s, rows = settings.bake "tiny/demo", {}
  for i = 1, RUNS do
    make_run(("%s/runs/%03d-x"):format(dir, i), s, i == RUNS and LONG or SHORT)
  end
  local long = ("%s/runs/%03d-x"):format(dir, RUNS)
  for _, row in ipairs { { "list %d runs, one of %d steps", 1, "runs", dir .. "/runs" },
      { "log --export csv of the latter", 5, "log", long, "--export", "csv" },
      { "log --time of it", 5, "log", long, "--time" } } do
    local took, cpu_s = best(seconds, function() return start { table.unpack(row, 3) } end)
    rows[#rows + 1] = { what = row[1]:format(RUNS, LONG), aim_s = row[2], seconds = took,
      cpu_s = cpu_s }
  end
  return rows
end

--- Measures all figures.
---@param options table  seconds: time to spend per figure
---@return table[] rows  {what, seconds, cpu_s, aim_s, private_bytes, aim_bytes}
function cli.measure(options)
  local name, values = cli.largest_recipe()
  local function row(what, aim_s, once)
    local took, cpu_s = best(options.seconds, once)
    return {what = what, aim_s = aim_s, seconds = took, cpu_s = cpu_s}
  end
  local rows = {
    row(("bake %s (%d values)"):format(name, values), 0.010, function()
      local _, _, text = start{"-e", bake_code:format(name)}
      local took, cpu_s = text:match("(%S+)\t(%S+)")
      return tonumber(took), tonumber(cpu_s)
    end),
    row("start to the prompt, and leave", 0.050, function() return start{"repl"} end),
    row(("show %s, in all"):format(name), 0.100, function() return start{"show", name} end),
  }
  local dir <close> = temporary.folder()
  for _, more in ipairs { open_large, read_runs, plan_large } do
    local list = more(dir.path, options.seconds)
    table.move(list, 1, #list, #rows + 1, rows)
  end
  return rows
end

return cli
