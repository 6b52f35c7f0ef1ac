--- Runs the same work in PyTorch, if it is installed: core/bench/peer_torch.py, run by python3 or
-- by a given interpreter.
-- @module moonreel.bench.peer
local json = require "moonreel.core.json"
local nn = require "moonreel.nn"
local process = require "moonreel.core.process"

local peer = {}

local PYTHONS = {"python3", "/usr/bin/python3"}

-- seconds for one answer, including the start of PyTorch; no run begins after END_SHARE of this
-- time
peer.deadline_s = 90
-- seconds for an answer that needs torch.compile, which compiles again in each turn and takes
-- minutes on a busy host
peer.compile_s = 600
-- seconds for one clip through a released autoencoder
peer.clip_s = 600
local END_SHARE = 2 / 3

--- Finds an interpreter that can import a module; nil: no interpreter can.
---@param named string|nil   the only interpreter to try
---@param module string|nil  absent: torch
function peer.python(named, module)
  for _, name in ipairs(named and {named} or PYTHONS) do
    local ok, result = pcall(process.run, {name, "-c", "import " .. (module or "torch")}, "",
      {deadline_s = 60})
    if ok and result.exit == 0 then
      return name
    end
  end
end

-- runs a script of core/bench, whose last line of output is JSON, with the libraries it finds
local function start(python, script, what, request, deadline_s)
  local text = require("moonreel.app").embedded("core/bench/" .. script)
  local words = {"/usr/bin/env"}
  for name in (process.variable("MOONREEL_OWN") or ""):gmatch("%S+") do
    table.move({"-u", name}, 1, 2, #words + 1, words)
  end
  table.move({python, "-", what, json.encode(request)}, 1, 4, #words + 1, words)
  return process.run(words, text, {deadline_s = deadline_s})
end

--- Runs the peers of data (core/bench/peer_data.py).
---@param python string
---@param what string    "pyav", "open-sora", "pandas"
---@param request table  passed as JSON
---@return table|nil result
---@return string|nil reason  why there is no result
function peer.data(python, what, request)
  local started, result = pcall(start, python, "peer_data.py", what, request,
    peer.deadline_s)
  if not started then
    return nil, result.message
  end
  local line = result.output:match("({[^\n]*})%s*$")
  if result.exit == 127 then
    return nil, "cannot start " .. python
  end
  if result.exit ~= 0 or not line then
    return nil, result.timed_out and ("it did not finish in %g s"):format(peer.deadline_s)
      or "it is not installed for " .. python
  end
  return json.decode(line)
end

--- Runs the peer.
---@param python string|nil    result of `peer.python`
---@param what string          "step", "demo-step", "vae", "t5-block", "conv" or "clip"
---@param request table        threads, flop, seconds, isa, dtype and the sizes; way of a step:
---   "plain" (nil), "compiled" by torch.compile, or "both", which returns the faster
---@return table|nil result    name, version, dtype, seconds, runs, compiled, tflops, product_tflops
---   (of its BLAS), peak_bytes, import_bytes: part of it after `import torch`
---@return string|nil reason   why there is no result
function peer.run(python, what, request)
  if not python then
    return nil, "PyTorch is not installed"
  end
  local compiles = request.way == "both" or request.way == "compiled"
  local deadline_s = compiles and peer.compile_s or what == "clip" and peer.clip_s
    or peer.deadline_s
  local result = start(python, "peer_torch.py", what,
    nn.merged({end_s = deadline_s * END_SHARE}, request), deadline_s)
  if result.timed_out then
    return nil, ("PyTorch did not finish in %g s"):format(deadline_s)
  end
  local line = result.output:match("({[^\n]*})%s*$")
  if result.exit ~= 0 or not line then
    return nil, "the PyTorch step failed"
  end
  local answer = json.decode(line)
  if not answer.least_seconds then
    return answer
  end
  return nil, ("%s %s would need at least %.0f s for one step (its BLAS is slow)"):format(
    answer.name, answer.version, answer.least_seconds)
end

--- Makes a function that runs the peer of a step repeatedly: first in both ways, then in the
-- faster.
---@param python string|nil
---@param what string
---@param request table  as for `run`, without seconds and way
---@return fun(seconds: number): table|nil, string|nil  results of `run`
function peer.by_turns(python, what, request)
  local way = "both"
  return function(seconds)
    local answer, reason = peer.run(python, what,
      nn.merged(request, {seconds = seconds, way = way}))
    if answer and way == "both" then
      way = answer.compiled and "compiled" or "plain"
    end
    return answer, reason
  end
end

return peer
