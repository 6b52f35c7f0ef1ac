--- A PyTorch twin of training, written from the published facts: from the same state, the same
-- micro-batches lead to the same losses, gradients and weights. It needs python3 with PyTorch and
-- safetensors, or MOONREEL_TWIN = such a Python. spec/twin/check.sh has all of its cases, which
-- take minutes.
-- Covers: lua/moonreel/trainer/dump.lua
local base = require "moonreel.core.base"
local demo_data = require "spec.support.demo_data"
local process = require "moonreel.core.process"

local PYTHON <const> = os.getenv "MOONREEL_TWIN" or "python3"

describe("a twin in PyTorch", function()
  local dir
  setup(function() dir = demo_data.scratch() end)
  teardown(function()
    os.execute("rm -r '" .. dir .. "'")
    demo_data.remove()
  end)

  it("trains the same from the same state #slow", function()
    local there = process.run({ PYTHON, "-c", "import torch, safetensors" }, "",
      { deadline_s = 120 })
    if there.exit ~= 0 then
      return pending(PYTHON .. " has no PyTorch with safetensors")
    end
    for recipe, more in pairs { twin_a = "accumulate=2", twin_mask = "grad_checkpoint=true" } do
      local dump = dir .. "/" .. recipe
      local ran = process.run({ "/usr/bin/env", "TWIN_STATES=0,1,5", "TWIN_GRADS=1,5",
        process.program(), "spec/twin/dump.lua", dump, "spec/twin/" .. recipe, "steps=5",
        "threads=1", "dtype=fp32", "text_encoder.rows=512", "data_path=" .. demo_data.path(),
        "outputs=" .. dir .. "/runs", more }, "", { deadline_s = 300, output_bytes = 1 << 20 })
      assert.equal(0, ran.exit, ran.output)
      local twin = process.run({ PYTHON, "spec/twin/twin.py", dump, "--within", "5e-6" }, "",
        { deadline_s = 300, output_bytes = 1 << 20 })
      assert.equal(0, twin.exit, twin.output)
      -- gradients of the first step, before errors can add up
      local far = tonumber(twin.output:match "gradient (%S+),")
      assert.is_true(far < 5e-6, twin.output)
      assert.is_true(base.exists(dump .. "/0005.state.safetensors"))
    end
  end)
end)
