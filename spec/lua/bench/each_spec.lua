local each = require "moonreel.bench.each"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

describe("steps on each instruction set", function()
  it("measures both steps and PyTorch with each instruction set and dtype, separately",
    function()
    local real, asked = process.run, {}
    finally(function() process.run = real end)
    process.run = function(words)
      asked[#asked + 1] = table.concat(words, " ")
      return {exit = 0, output = json.encode{seconds = 2, ratio = 0.5, peak_bytes = 1000000,
        speedup = 3, memory_share = 0.25, peer = {seconds = 6, isa = "AVX2",
        peak_bytes = 4000000}}}
    end
    local rows = each.measure{threads = 1, seconds = 1, python = "py"}
    assert.equal(#asked, #rows)
    for i, row in ipairs(rows) do
      assert.matches(("MOONREEL_ISA=%s .*bench %s %%-%%-json %%-%%-dtype %s .*%%-%%-threads 1 .*py")
        :format(row.isa, row.what:gsub("%-", "%%-"), row.dtype), asked[i])
      assert.equal(row.isa == "avx2", asked[i]:match "ONEDNN_MAX_CPU_ISA=AVX2" ~= nil)
      assert.same({2, 0.5, 1, 6, "AVX2", 4, 3, 0.25}, {row.seconds, row.ratio, row.mb,
        row.peer_seconds, row.peer_isa, row.peer_mb, row.speedup, row.memory_share})
      assert.equal(row.what == "demo-step" and 6 or row.dtype == "bf16" and 2.5 or 1.25,
        row.speedup_aim)
    end
    assert.same({"step", "demo-step"}, {rows[1].what, rows[#rows].what})
    process.run = function() return {exit = 1, output = ""} end
    assert.has_error(function() each.measure{threads = 1, seconds = 1} end)
  end)
end)
