--- Errors of the one who builds a graph.
-- Covers: core/graph/build.c
local G = require "moonreel.core.graph"
local ops = require "moonreel.core.op"

describe("a shape error", function()
  it("names the Lua line and both shapes", function()
    local g <close> = G.graph()
    local x, y = g:input("x", "f32", { 2, 3 }), g:input("y", "f32", { 2, 4 })
    local ok, err = pcall(function() return ops.add(x, y) end)
    assert.is_false(ok)
    assert.matches("build_spec.lua:%d+", tostring(err))
    assert.matches("%[2, 3%]", tostring(err))
    assert.matches("%[2, 4%]", tostring(err))
    assert.are.equal("MR_E_SHAPE", err.code)
    -- also when the op's own message leaves them out
    local w = g:input("w", "f32", { 4 })
    ok, err = pcall(function() return ops.rms_norm(x, w) end)
    assert.is_false(ok)
    assert.matches("build_spec.lua:%d+: rms_norm 'rms_norm#%d': expected w .*; x is %[2, 3%] "
      .. "f32, w is %[4%] f32", tostring(err))
  end)
end)
