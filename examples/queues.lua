--- Copies and a collective in parallel with compute: which transfers a schedule can hide.
--
--     moonreel examples/queues.lua [TRACE.json]
--
-- Prints the schedule of a small step: which steps wait for which, which ones they may overlap.
-- With a file name it times a run and writes a trace for chrome://tracing or Perfetto: process 1 as
-- the device ran it, process 2 with concurrent queues. With MOONREEL_DEVICE=shadow both also show
-- that inputs arrive during the previous run and a result leaves during the next one; on the CPU
-- there are no transfers between host and device.
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
