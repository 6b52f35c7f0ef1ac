--- The same work in PyTorch, where it is installed: core/bench/peer_torch.py run by python3.
-- @module moonreel.bench.peer
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

local peer = {}

local PYTHONS = {"python3", "/usr/bin/python3"}

--- An interpreter that can import torch, or nil.
function peer.python()
  for _, name in ipairs(PYTHONS) do
    local ok, result = pcall(process.run, {name, "-c", "import torch, sys; sys.stdout.write(torch.__version__)"}, "", {deadline_s = 60})
    if ok and result.exit == 0 then return name, result.output end
  end
end

--- Run the peer.
---@param what string     "step" or "demo-step"
---@param request table   threads, flop, seconds, isa and the sizes; passed as JSON
---@return table|nil result  name, version, dtype, seconds, tflops, product_tflops (of its BLAS), peak_bytes
---@return string|nil reason  why there is none
function peer.run(what, request)
  local python = peer.python()
  if not python then return nil, "PyTorch is not installed" end
  local script = require("moonreel.app").embedded("core/bench/peer_torch.py")
  local result = process.run({python, "-", what, json.encode(request)}, script, {deadline_s = 300})
  if result.timed_out then return nil, "PyTorch did not finish in 300 s" end
  local line = result.output:match("({[^\n]*})%s*$")
  if result.exit ~= 0 or not line then return nil, "the PyTorch step failed" end
  return json.decode(line)
end

return peer
