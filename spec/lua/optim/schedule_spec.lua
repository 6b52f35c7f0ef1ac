local schedule = require "moonreel.optim.schedule"

describe("optim.schedule", function()
  it("rises linearly and stays: lr (k+1)/(W+1)", function()
    local at = schedule.new{kind = "constant", lr = 1e-4, warmup_steps = 3}
    assert.near(0.25e-4, at(0), 1e-12)
    assert.near(0.75e-4, at(2), 1e-12)
    assert.near(1e-4, at(3), 1e-12)
    assert.near(1e-4, at(99999), 1e-12)
  end)

  it("rises and falls with 1cycle", function()
    local at = schedule.new{kind = "1cycle", lr = 2, min_lr = 1, max_lr = 8,
      warmup_steps = 4, cooldown_steps = 4}
    assert.near(1, at(0), 1e-12)
    assert.near(4.5, at(2), 1e-12)
    assert.near(8, at(4), 1e-12)
    assert.near(5, at(6), 1e-12)
    assert.near(2, at(8), 1e-12)
  end)

  it("anneals linearly forwards, and backwards only under compat", function()
    local c = {kind = "1cycle", lr = 2, min_lr = 1, max_lr = 8, warmup_steps = 4,
      cooldown_steps = 4, anneal_strategy = "linear"}
    assert.near(1, schedule.new(c)(0), 1e-12)
    c.compat = true
    assert.near(8, schedule.new(c)(0), 1e-12)
  end)

  it("counts the micro-steps of an update when it is configured to", function()
    local c = {kind = "constant", lr = 1, warmup_steps = 8, initial_lr = 0.1}
    local each = schedule.new(c)
    c.micro_steps = 3
    local at = schedule.new(c)
    for k = 0, 5 do
      assert.near(each(3 * k + 2), at(k), 1e-12)
    end
    assert.near(0.1 + 0.9 * 3 / 9, at(0), 1e-12)
  end)

  it("ends a cosine at min_lr", function()
    local at = schedule.new{kind = "cosine", lr = 1, min_lr = 0.1, warmup_steps = 5,
      total_steps = 105}
    assert.near(1 / 6, at(0), 1e-12)
    assert.near(1, at(5), 1e-12)
    assert.near(0.55, at(55), 1e-12)
    assert.near(0.1, at(105), 1e-12)
    assert.near(0.1, at(400), 1e-12)
  end)

  it("lists the kinds when one is unknown", function()
    local ok, err = pcall(schedule.new, {kind = "saw", lr = 1})
    assert.is_false(ok)
    assert.matches("'saw'; expected one of 1cycle, constant, cosine", tostring(err))
  end)
end)
