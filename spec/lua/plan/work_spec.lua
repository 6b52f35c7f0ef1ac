--- Seconds of steps by their class.
local machine = require "moonreel.plan.machine"
local work = require "moonreel.plan.work"

describe("the work of a step", function()
  local h100, a100 = machine.open "H100", machine.open "A100"
  -- figures_spec tests the cost of a launch
  h100.launch_s, a100.launch_s = nil, nil

  it("is rated by its op's class", function()
    for op, class in pairs { linear = "product", linear_dw = "product", matmul = "product",
        muon = "product", attention = "attention", attention_grad = "attention",
        conv3d = "convolution", layer_norm = "stream", copy = "stream" } do
      assert.equal(class, work.class(op), op)
    end
  end)

  it("takes the longer time of operations and bytes", function()
    assert.equal(2, (work.seconds(h100, { op = "linear", flop = 1200e12, bytes = 1e9 }, "bf16")))
    for op, flop in pairs { linear = 1, gelu = 1e15 } do
      local row = { op = op, flop = flop, bytes = 3 * 0.8 * 3.35e12 }
      assert.is_true(math.abs(work.seconds(h100, row, "bf16") - 3) < 1e-9, op)
    end
    -- in 8 bits, on machines with such products
    assert.equal(1200e12 / (h100.rate.product * (1979 / 989)),
      (work.seconds(h100, { op = "linear_dw_f8", flop = 1200e12, bytes = 1 }, "bf16")))
    assert.equal(1200e12 / a100.rate.product,
      (work.seconds(a100, { op = "linear_f8", flop = 1200e12, bytes = 1 }, "bf16")))
    local slow = work.seconds(h100, { op = "linear", flop = 1200e12, bytes = 1 }, "f32")
    assert.is_true(math.abs(slow - 2 * 989 / 67) < 1e-9)
  end)

  it("uses measured rates if there are any, and the time around each step", function()
    local m = setmetatable({ ops = { ["linear f32"] = { { 100, 1, 0.5 } } } }, { __index = h100 })
    m.rate = setmetatable({ step_s = 0.25 }, { __index = h100.rate })
    local row = { op = "linear", shapes = "[2] f32", flop = 100, bytes = 1 }
    assert.is_true(math.abs(work.seconds(m, row, "f32") - 0.75) < 1e-12)
    assert.is_true(work.seconds(m, row, "f32", true) < 1e-6)
  end)

  it("is reported by part, and by op with the longest first", function()
    local rows = { { op = "linear", flop = 600e12, bytes = 0 },
      { op = "linear", flop = 600e12, bytes = 0, again = true, backward = true },
      { op = "linear_dx", flop = 1200e12, bytes = 0, backward = true } }
    local parts, ops = work.parts(h100, rows, "bf16")
    assert.same({ forward = 1, recompute = 1, backward = 2 }, parts)
    assert.same({ "linear", 2, 2 }, { ops[1].op, ops[1].calls, ops[1].seconds })
  end)

  it("counts equal steps by their number", function()
    local launched = setmetatable({ launch_s = 0.5 }, { __index = h100 })
    local parts, ops, by = work.parts(launched, { { op = "linear", flop = 600e12, bytes = 7,
      count = 3 } }, "bf16")
    assert.same({ forward = 4.5, recompute = 0, backward = 0 }, parts)
    assert.same({ 3, 4.5, 1800e12, 21 }, { ops[1].calls, ops[1].seconds, ops[1].flop,
      ops[1].bytes })
    assert.same({ ["rate.product"] = 3, launch_s = 1.5 }, by)
    assert.equal(30 + 80, work.useful { { op = "linear", flop = 10, count = 3 },
      { op = "attention_grad", flop = 50, count = 2 } })
  end)

  it("counts useful work once", function()
    assert.equal(100 + 10 + 20 + 40, work.useful { { op = "linear", flop = 100 },
      { op = "linear", flop = 600, again = true }, { op = "linear_dw", flop = 10 },
      { op = "attention", flop = 20 }, { op = "attention_grad", flop = 50 },
      { op = "gelu_tanh", flop = 1e9 } })
  end)
end)
