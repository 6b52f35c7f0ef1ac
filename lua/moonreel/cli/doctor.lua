--- moonreel doctor: checks this machine for a run: what is present, missing or wrong.
-- @module moonreel.cli.doctor
local base = require "moonreel.core.base"
local process = require "moonreel.core.process"
local size = require("moonreel.trainer.progress").bytes

local command = {
  name = "doctor",
  summary = "check this machine for a run: what is present, missing or wrong",
  usage = "doctor [RECIPE] [--hostfile FILE] [--outputs DIR] [--json]",
  most = 1,
  options = {
    { "--outputs DIR", "the folder for run directories (default: outputs)" },
    { "--hostfile FILE", "check these hosts: the same program, recipe and folder, clocks, links" },
    { "--include HOSTS", "only these of the hosts, as a,b" },
    { "--exclude HOSTS", "all hosts but these" },
    { "--json", "print JSON" },
  },
  details = "One line per check: ok, absent (and the substitute), note (worth a look), wrong (to "
    .. "be fixed).\nExit 1 if something is wrong, 6 if a host does not answer. For hosts, checks "
    .. "that are ok are counted, not listed.",
}

-- libraries that a build may lack, and what happens without them
local OPTIONAL = {
  { "oneDNN", "own kernels for products, slower" },
  { "libedit", "the prompt has plain lines, without history and completion" },
  { "minizip", "weights saved by torch (.pth, .bin) cannot be opened" },
}
local SLOW = { power = "at its limit of power", heat = "hot", brake = "the supply asks for less",
  hardware = "hardware slowdown" }
local FILES_LEAST = 1024 -- clips, shards and links that one run has open
local FREE_LEAST = 1 << 30

-- a list of findings, in order
local Report = {}
Report.__index = Report

function Report:add(what, state, text, fields)
  local row = { what = what, state = state, text = text }
  for key, value in pairs(fields or {}) do
    row[key] = value
  end
  self[#self + 1] = row
end

-- ---- checks ----

local function program(report)
  local app = require "moonreel.app"
  report:add("moonreel", "ok", app.version)
  local built = {}
  for name, version in app.libraries:gmatch("([^,]+) ([^, ]+)") do
    built[name] = version
    report:add(name, "ok", version)
  end
  for _, row in ipairs(OPTIONAL) do
    if not built[row[1]] then
      report:add(row[1], "absent", row[2])
    end
  end
end

local function plugins(report)
  for _, row in ipairs {
    { "media", "wrong", "no clip can be decoded and no video written" },
    { "mpi", "absent", "ranks of this host alone" },
    { "stack", "absent", "stacks of ranks have no native frames" },
    { "cuda", "absent", "no GPU can be used" } } do
    local path, problem = process.plugin(row[1])
    report:add(row[1] .. " plug-in", path and "ok" or row[2],
      path or ("%s: %s"):format(row[3], problem))
  end
end

local function processor(report)
  local device <close> = require("moonreel.core.exec").device("cpu")
  local facts = device:facts()
  local free, total = device:memory()
  report:add("processor", "ok", ("%s, %d threads, bf16 %s"):format(facts.isa, facts.threads,
    facts.amx and "by AMX" or facts.bf16 and "by vectors" or "computed as f32"), facts)
  report:add("memory", "ok", ("%s free of %s"):format(size(free), size(total)),
    { free_bytes = free, memory_bytes = total })
end

-- values that a GPU driver reports, as text
local function gpu_words(gpu)
  local words = { gpu.name, size(gpu.free_bytes) .. " free of " .. size(gpu.memory_bytes) }
  local function say(form, ...)
    if (...) then
      words[#words + 1] = form:format(...)
    end
  end
  if gpu.limit_w then
    say("%.0f W of %.0f", gpu.power_w, gpu.limit_w)
  end
  if gpu.most_mhz then
    say("%d MHz of %d", gpu.clock_mhz, gpu.most_mhz)
  end
  say("%d C", gpu.temperature_c)
  for _, why in ipairs(gpu.slow) do
    say("slowed down: %s", SLOW[why])
  end
  if (gpu.memory_errors or 0) > 0 then
    say("%d uncorrected memory errors", gpu.memory_errors)
  end
  for _, user in ipairs(gpu.processes or {}) do
    say("used by process %d", user.pid)
  end
  return table.concat(words, ", ")
end

local function gpu_state(gpu)
  if (gpu.memory_errors or 0) > 0 then
    return "wrong"
  end
  return (#gpu.slow > 0 or #(gpu.processes or {}) > 0) and "note" or "ok"
end

local function gpus(report)
  local opened, list = pcall(require("moonreel.core.gpu").open)
  if not opened then
    report:add("GPUs", list.code == "MR_E_UNSUPPORTED" and "absent" or "wrong", list.message)
    return
  end
  report:add("driver of GPUs", "ok", list:driver())
  for i = 0, list:count() - 1 do
    local good, gpu = pcall(list.read, list, i)
    if good then
      report:add("GPU " .. i, gpu_state(gpu), gpu_words(gpu), gpu)
    else
      report:add("GPU " .. i, "wrong", gpu.message)
    end
  end
  -- the driver has GPUs: can the program compute on them?
  if list:count() > 0 and process.plugin("cuda") then
    local good, device = pcall(require("moonreel.core.exec").device, "cuda")
    report:add("device=cuda", good and "ok" or "wrong", good and "opens" or device.message)
    if good then
      device:close()
    end
  end
  list:close()
end

local function limits(report)
  local allowed = process.allowed()
  local files, locked = allowed.files, allowed.locked_bytes
  report:add("open files", (not files or files >= FILES_LEAST) and "ok" or "note",
    files and files < FILES_LEAST and ("%d, a run may need %d; try: ulimit -n %d"):format(files,
      FILES_LEAST, FILES_LEAST) or tostring(files or "no limit"), { limit = files })
  report:add("locked memory", "ok", locked and size(locked) or "no limit", { limit = locked })
end

-- the nearest folder above a path that exists
local function existing(path)
  while not base.exists(path) do
    path = path:match("^(.*)/[^/]+/*$") or "."
    if path == "" then
      path = "/"
    end
  end
  return path
end

local function outputs(report, dir)
  local where = existing(dir)
  local probe = ("%s/.moonreel-doctor-%d"):format(where, base.pid())
  local good, problem = pcall(base.replace_file, probe, "x")
  os.remove(probe)
  local free = base.free_bytes(where)
  if not good then
    report:add(dir, "wrong", "runs cannot be written there: " .. problem.message)
  else
    report:add(dir, free and free < FREE_LEAST and "note" or "ok", ("%s free%s"):format(
      free and size(free) or "not known how much is", where ~= dir and ", made when a run begins"
      or ""), { free_bytes = free })
  end
end

local function running(report)
  for _, row in ipairs(require("moonreel.life").rows()) do
    report:add("launch " .. row.launch, "note", ("runs here: ranks %s, %s, step %d, %s"):format(
      row.ranks, row.phase, row.step, row.run or row.command or "without a run directory"), row)
  end
end

-- Bytes of a checkpoint of a recipe; nil if its models need files that this host does not have.
local function checkpoint_bytes(settings)
  local E = require "moonreel.core.exec"
  local good, bytes = pcall(function()
    local device <close> = E.device("cpu")
    local pipe = require("moonreel.models.pipeline").of(settings, "bf16")
    return require("moonreel.trainer.state").saved_bytes(E.plan(pipe.params, {
      regions = require("moonreel.optim.regions").of(settings, nil, nil, nil, pipe.params),
      facts = device:facts() }), pipe.params)
  end)
  return good and bytes or nil
end

-- Can the recipe be baked, and do two of its checkpoints fit on the disk?
local function recipe(report, name, dir)
  local good, found = pcall(require("moonreel.settings").bake, name)
  report:add("recipe", good and "ok" or "wrong", good and found.hash
    or tostring(found))
  local bytes = good and not found.stages and found.job == "train" and checkpoint_bytes(found)
  local free = bytes and base.free_bytes(existing(dir))
  if free then
    report:add("checkpoints", free < 2 * bytes and "wrong" or "ok", ("two of %s take %s; %s are "
      .. "free in %s"):format(size(bytes), size(2 * bytes), size(free), dir),
      { checkpoint_bytes = bytes })
  end
end

--- Runs all checks of this host.
---@param dir string          the folder that runs will write into
---@param name string|nil     a recipe to check
---@return table[]  {what, state, text, ...}
function command.rows(dir, name)
  local report = setmetatable({}, Report)
  program(report)
  plugins(report)
  processor(report)
  gpus(report)
  limits(report)
  outputs(report, dir)
  running(report)
  if name then
    recipe(report, name, dir)
  end
  return setmetatable(report, nil)
end

--- Merges rows of several hosts that report the same: {host = "a, b (2 hosts)"}. A merged row takes
-- the place of its first row.
---@param rows table[]  {host, what, state, text}
---@return table[]
function command.folded(rows)
  local list, by = {}, {}
  for _, row in ipairs(rows) do
    local key = table.concat({ row.what, row.state, row.text }, "\0")
    if not by[key] then
      by[key] = { what = row.what, state = row.state, text = row.text, hosts = {} }
      list[#list + 1] = by[key]
    end
    table.insert(by[key].hosts, row.host)
  end
  for _, row in ipairs(list) do
    local n = #row.hosts
    row.host = table.concat(row.hosts, ", ", 1, math.min(n, 3)) .. (n > 3 and ", ..." or "")
      .. (n > 1 and (" (%d hosts)"):format(n) or "")
  end
  return list
end

---@param args string[]
function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local opts, code = parsed.options, 0
  opts.outputs = opts.outputs or "outputs"
  local rows = not opts.hostfile and command.rows(opts.outputs, parsed.positional[1])
  if not rows then
    rows, code = require("moonreel.cluster.preflight").rows(opts, parsed.positional[1])
  end
  if opts.json then
    print(require("moonreel.core.json").encode(rows))
  else
    local columns = { { key = "state" }, { key = "what" }, { key = "text" } }
    if opts.hostfile then
      table.insert(columns, 1, { key = "host" })
      rows = command.folded(rows)
    end
    require("moonreel.text.table").print(columns, rows, opts)
  end
  for _, row in ipairs(rows) do
    code = code == 0 and row.state == "wrong" and 1 or code
  end
  return code
end

return command
