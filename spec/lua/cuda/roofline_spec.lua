--- cuda/bench/roofline.lua: the floor of a step, from the costs that its ops declare.
local folder = require "spec.support.folder"

describe("roofline", function()
  it("adds the floors of a bucket's ops, each the longer of products and memory", function()
    local out, err, code = folder.moonreel("cuda/bench/roofline.lua recipes/tiny/demo.lua H200")
    assert.equal(0, code, err)
    assert.matches("^recipes/tiny/demo.lua on H200: %a+%d+ peak %d+ TFLOP/s, memory 4%.80 TB/s",
      out)
    local buckets = 0
    for ops, all in out:gmatch("floor ms  by\n(.-)\nall +([^\n]+)") do
      local sum = 0
      for line in ops:gmatch("[^\n]+") do
        sum = sum + tonumber((line:match("([%d.]+)  %a*$")))
      end
      -- printed with microsecond precision
      assert.near(tonumber(all:match("([%d.]+) *$")), sum, 0.02)
      buckets = buckets + 1
    end
    assert.equal(2, buckets, out)
  end)

  it("measures an H100 by four buckets of the Lambda stage 1", function()
    local out, err, code = folder.moonreel("cuda/bench/roofline.lua")
    assert.equal(0, code, err)
    for _, bucket in ipairs { "144p x 51", "240p x 51", "360p x 51", "480p x 1" } do
      assert.matches("\n" .. bucket .. " frames, %d+ x %d+, batch %d+", out)
    end
    -- there a linear layer is limited by products, also with its activation; a residual by memory
    assert.matches("linear +%d+ +[%d.]+ +[%d.]+ +[%d.]+  products", out)
    assert.matches("linear_gelu +%d+ +[%d.]+ +[%d.]+ +[%d.]+  products", out)
    assert.matches("gated_residual +%d+ +[%d.]+ +[%d.]+ +[%d.]+  memory", out)
  end)
end)
