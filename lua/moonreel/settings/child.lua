--- Bakes recipes that did not ship with moonreel in a child process with limits of memory and time.
-- The child returns settings, which are plain data; functions are never transferred. Ref:
-- recipes.md 6.
-- @module moonreel.settings.child
local base = require "moonreel.core.base"
local fault = require "moonreel.recipe.fault"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

local child = {}

-- The address space in addition to the program's mappings; with it the peak stays below 256 MiB.
child.memory_bytes = 240 * 1024 * 1024
child.cpu_s = 0.9
child.deadline_s = 120                  -- wall clock, long enough for a busy host

--- Bakes in a child process.
---@param name string
---@param arguments table[]
---@param stage string|nil
---@return table settings
function child.bake(name, arguments, stage)
  local request = json.encode { name = name, arguments = json.array(arguments), stage = stage }
  local done = process.run({ process.program(), "-e",
    'require("moonreel.settings.child").serve()' }, request,
    { deadline_s = child.deadline_s, output_bytes = 64 * 1024 * 1024 })
  if done.timed_out then
    fault.recipe("%s: stopped: no settings after %g s; this host is busy, or a file that the "
      .. "recipe extends is slow to read; try: again", name, child.deadline_s)
  elseif done.signal == 27 or done.signal == 24 then
    -- SIGPROF and SIGXCPU are the limits of processor time
    fault.recipe("%s: stopped: more than %.1f s of work; a recipe is data, not a program; try: "
      .. "look for a loop without end", name, child.cpu_s)
  elseif done.signal then
    fault.recipe("%s: the process that bakes it was ended by signal %d; try: again; dmesg says "
      .. "whether memory was short", name, done.signal)
  end
  if done.too_long then
    fault.recipe("%s: its settings are larger than 64 MiB", name)
  end
  local ok, answer = pcall(json.decode, done.output, name)
  if not ok then
    fault.recipe("%s: the child process that bakes it ended early (exit %s)",
      name, tostring(done.exit))
  end
  if answer.error then
    error(fault.new(answer.error.code, answer.error.message), 0)
  end
  return require("moonreel.settings.restore").from_json(answer.settings, name)
end

-- The bytes that this process has mapped before a recipe runs.
local function mapped_bytes()
  local file = assert(io.open("/proc/self/statm"))
  local pages = file:read("n")
  file:close()
  return pages * 4096
end

--- The child's side: reads one request from stdin, writes one answer to stdout.
function child.serve()
  local answer
  local request = json.decode(io.read("a"), "request")
  local files = require "moonreel.recipe.files"
  local ok, result = pcall(function()
    local file = files.root(request.name)
    process.limit { memory_bytes = mapped_bytes() + child.memory_bytes, cpu_s = child.cpu_s }
    return require("moonreel.settings.bake").bake(file, request.arguments, request.stage):to_json()
  end)
  if ok then
    answer = { settings = result }
  else
    local problem = fault.adopt(result)
    -- a message can quote bytes that JSON does not allow; its lines stay
    answer = { error = { code = problem.code,
      message = problem.message:gsub("[^\n]+", base.printable) .. "" } }
  end
  io.write(json.encode(answer))
end

return child
