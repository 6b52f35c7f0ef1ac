--- The fixed step and the demo's step on every instruction set, and in every dtype that is fast
-- there. Each is a separate process, because peak memory and the selected kernels are properties of
-- a process. PyTorch is limited to the same instruction set and dtype.
-- @module moonreel.bench.each
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

local each = {}

-- aims compared with PyTorch, in time and in memory
local FASTER, LESS = {f32 = 1.25, bf16 = 2.5}, 0.40
local DEMO_FASTER = 6

-- the aims of one cell of the table
local function aims(what, isa, dtype, facts)
  if what == "demo-step" then
    return {speedup_aim = DEMO_FASTER}
  end
  local peak = dtype == "f32" and (isa == "avx2" and 0.88 or nil) or facts.amx and 0.60 or nil
  return {ratio_aim = peak, speedup_aim = FASTER[dtype], memory_aim = LESS}
end

-- runs one program, limited to an instruction set and a dtype; returns its JSON
local function run(what, isa, dtype, options)
  local words = {"/usr/bin/env", "MOONREEL_ISA=" .. isa}
  if isa == "avx2" then
    table.move({"ONEDNN_MAX_CPU_ISA=AVX2", "DNNL_MAX_CPU_ISA=AVX2"}, 1, 2, 3, words)
  end
  for _, word in ipairs{process.program(), "bench", what, "--json", "--dtype", dtype, "--seconds",
    tostring(options.seconds), "--threads", tostring(options.threads)} do
    words[#words + 1] = word
  end
  if options.python then
    table.move({"--python", options.python}, 1, 2, #words + 1, words)
  else
    words[#words + 1] = "--no-peer"
  end
  local done = process.run(words, "", {deadline_s = each.deadline_s})
  if done.exit ~= 0 then
    base.raise("MR_E_INTERNAL", ("bench: %s ended with %s"):format(table.concat(words, " "),
      done.exit or done.signal or "its deadline"))
  end
  return json.decode(done.output:match("({.*)"))
end

each.deadline_s = 600

--- Measures.
---@param options table    threads, seconds: per step; python: for peer.python, or nil
---@return table[] rows    what, isa, dtype, threads, seconds, ratio (share of the product peak),
---   mb, peer_seconds, peer_isa, peer_mb, speedup, memory_share, missing (why there is no peer),
---   and aims: ratio_aim, speedup_aim, memory_aim
function each.measure(options)
  local device <close> = E.device("cpu", options.threads)
  local facts, rows = device:facts(), {}
  local o = {threads = facts.threads, seconds = options.seconds, python = options.python}
  local sets = facts.isa == "avx512" and {"avx512", "avx2"} or {facts.isa}
  for _, what in ipairs(each.steps) do
    for _, isa in ipairs(sets) do
      for _, dtype in ipairs(facts.bf16 and isa == "avx512" and {"f32", "bf16"} or {"f32"}) do
        local r = run(what, isa, dtype, o)
        local peer = r.peer or {}
        local row = aims(what, isa, dtype, facts)
        row.what, row.isa, row.dtype, row.threads = what, isa, dtype, facts.threads
        row.seconds, row.ratio, row.mb = r.seconds, r.ratio, r.peak_bytes and r.peak_bytes * 1e-6
        row.peer_seconds, row.peer_isa, row.missing = peer.seconds, peer.isa or "", r.peer_missing
        row.peer_mb = peer.peak_bytes and peer.peak_bytes * 1e-6
        row.speedup, row.memory_share = r.speedup, r.memory_share
        rows[#rows + 1] = row
      end
    end
  end
  return rows
end

each.steps = {"step", "demo-step"}

return each
