--- Copies and a collective beside compute: what a step may hide, before any device can.
--
--     moonreel examples/queues.lua [TRACE.json]
--
-- Prints the schedule of a small step: which steps wait for which, what they may run beside. With a
-- file name it times a run and writes a trace for chrome://tracing or Perfetto: process 1 as the
-- device ran it, process 2 with the queues side by side. With MOONREEL_DEVICE=shadow both tell also
-- how inputs come beside the run before and a result leaves beside the run after; on the CPU there
-- is no way between host and device.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local ops = require "moonreel.core.op"
local T = require "moonreel.core.tensor"

local N <const> = 256

local g <close> = G.graph()
local x, w = g:input("x", "f32", { N, N }), g:input("w", "f32", { N, N })

-- weights arrive on the way of collectives; no such op yet, so a copy stands in
local gathered = g:queue("comm_intra", function() return ops.copy(w) end)

-- the first layer's result leaves for the host and comes back when it is needed again
local first = ops.silu(ops.linear(x, w))
local kept = g:queue("d2h", function() return ops.copy(first) end)
local y = first
for _ = 1, 3 do
  y = ops.gelu_tanh(ops.linear(y, gathered))
end
local back = g:queue("h2d", function() return ops.copy(kept) end)
y = ops.silu(ops.linear(y, gathered))
y = y + back
g:output("y", y)
g:output("sum", ops.sum(y, { axes = { 0, 1 } }))
g:finish()

local device <close> = E.device(os.getenv "MOONREEL_DEVICE" or "cpu", 1)
local exec <close> = E.new(device)
local program <close> = exec:compile(g)
io.write(program:schedule())

if arg[1] then
  program:set("x", T.new("f32", { N, N }):fill_normal(1, "x"))
  program:set("w", T.new("f32", { N, N }):fill_normal(1, "w"))
  program:time()
  program:run()
  local sum = program:fetch("sum")
  program:trace(arg[1])
  print("sum: " .. sum:get():item())
  print("trace: " .. arg[1])
end
