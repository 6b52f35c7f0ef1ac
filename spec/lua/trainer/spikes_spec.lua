--- What counts as a spike, value by value.
local json = require "moonreel.core.json"
local spikes = require "moonreel.trainer.spikes"

local POLICY = { action = "log", norm_factor = 5, norm_steps = 3, loss_sigmas = 6 }

-- steps without losses
local function add_norms(s, ...)
  local found
  for _, norm in ipairs { ... } do
    found = s:add(norm, {})
  end
  return found
end

-- `n` norms whose median is 1
local function calm(s, n)
  for i = 1, n do
    assert.is_nil(s:add(1 + (i % 3 - 1) / 10, {}))
  end
  return s
end

local function losses(group, ...)
  local list = {}
  for i, loss in ipairs { ... } do
    list[i] = { group = group, loss = loss }
  end
  return list
end

describe("a gradient norm", function()
  it("is a spike when it is the third in a row above five times the median", function()
    local s = calm(spikes.new(POLICY), 21)
    assert.is_nil(add_norms(s, 5.1, 5.1))
    local found = s:add(5.1, {})
    assert.same({ "norm", 5.1, 5, 3 }, { found.cause, found.value, found.limit, found.steps })
    assert.equal("gradient norm 5.1: for 3 steps in a row above 5 times its median, 5",
      spikes.text(found))
    assert.equal(4, s:add(6, {}).steps)
  end)

  it("is no spike at the limit, or with a small norm in between", function()
    local s = calm(spikes.new(POLICY), 21)
    assert.is_nil(add_norms(s, 5, 5, 5))
    assert.is_nil(add_norms(s, 9, 9, 4.9, 9, 9))
    assert.is_truthy(s:add(9, {}))
  end)

  it("is a spike by itself above 125 times the median", function()
    local s = calm(spikes.new(POLICY), 21)
    assert.is_nil(s:add(125, {}))
    s:add(1, {})
    local found = s:add(125.1, {})
    assert.same({ "norm", 125, 1 }, { found.cause, found.limit, found.steps })
    assert.equal("gradient norm 125.1: above 125 times its median, 125", spikes.text(found))
  end)

  it("is no spike before 20 norms are known", function()
    assert.is_nil(add_norms(calm(spikes.new(POLICY), 18), 99, 999, 99, 1))
    local s = calm(spikes.new(POLICY), 20)
    assert.is_truthy(add_norms(s, 99, 99, 99))
  end)

  it("becomes normal when it stays large", function()
    local s = calm(spikes.new(POLICY), 100)
    local last
    for i = 1, 60 do
      last = s:add(10, {}) and i or last
    end
    -- until then more than half of the last 100 were small
    assert.equal(50, last)
  end)

  it("is limited from the third one in a row under action = skip", function()
    local s = calm(spikes.new(POLICY), 21)
    assert.equal(125, s:most_norm())
    add_norms(s, 6)
    assert.equal(125, s:most_norm())
    add_norms(s, 6)
    assert.equal(5, s:most_norm())
    add_norms(s, 1)
    assert.equal(125, s:most_norm())
    assert.is_nil(spikes.new(POLICY):most_norm())
    assert.is_true(spikes.new({ action = "skip" }):skips())
    assert.is_false(s:skips())
  end)
end)

describe("a loss", function()
  -- 31 losses of a group: mean 1, deviation 0.1
  local function known(s, group)
    for i = 1, 31 do
      assert.is_nil(s:add(1, losses(group, i == 31 and 1 or i % 2 == 0 and 1.1 or 0.9)))
    end
    return s
  end

  it("is a spike above the mean plus six sigmas of its own group", function()
    local s = known(known(spikes.new(POLICY), "a"), "b")
    local limit = s.groups.a.mean + 6 * s.groups.a.variance ^ 0.5
    assert.near(1.6, limit, 0.03)
    assert.is_nil(s:of_losses(losses("a", limit - 1e-9)))
    local found = s:of_losses(losses("a", 1, limit + 1e-9))
    assert.same({ "loss", limit, "a" }, { found.cause, found.limit, found.group })
    s:add(1, losses("b", 1.5, 1.5, 1.5))
    assert.is_truthy(s:of_losses(losses("a", 1.7)))
    assert.matches("^loss 1.7 of a: more than 6 sigmas above their mean, 1.59$",
      spikes.text(s:add(1, losses("a", 1.7))))
  end)

  it("is compared with all groups when its own group is new", function()
    local s = known(known(spikes.new(POLICY), "a"), "b")
    s:add(1, losses("b", 3))
    local limit = 10 * (s.groups.b.mean + 6 * s.groups.b.variance ^ 0.5)
    assert.is_nil(s:of_losses(losses("c", limit)))
    assert.equal(limit, s:of_losses(losses("c", limit * 1.01)).limit)
    -- the mean of the new group is limited, so that the next such loss is a spike, too
    s:add(1, losses("c", 1e9))
    assert.equal(limit, s.groups.c.mean)
  end)

  it("is no spike before 30 losses of its group are known", function()
    local s = spikes.new(POLICY)
    for _ = 1, 29 do
      s:add(1, losses("a", 1))
    end
    assert.is_nil(s:of_losses(losses("a", 1e9)))
    s:add(1, losses("a", 1))
    assert.is_truthy(s:of_losses(losses("a", 1.1)))
  end)

  it("becomes normal when it stays large", function()
    local s, last = known(spikes.new(POLICY), "a"), 0
    for i = 1, 400 do
      last = s:add(1, losses("a", 3)) and i or last
    end
    assert.is_true(last > 3 and last < 100, last)
  end)

  it("belongs to one of four levels of noise", function()
    local levels = {}
    for i, t in ipairs { 0, 249, 250, 500, 999, 1000, 0 / 0 } do
      levels[i] = spikes.level(t, 1000)
    end
    assert.same({ 0, 0, 1, 2, 3, 3, 0 }, levels)
  end)
end)

it("the statistics of norms and losses keep all bits in a manifest", function()
  local a = spikes.new(POLICY)
  assert.same({ above = 0 }, a:state())
  for i = 1, 130 do
    a:add(math.sqrt(i), losses("g" .. i % 3, math.log(i + 0.1), 1 / i))
  end
  add_norms(a, 1e3, 1e3)
  a.back = 7
  local b = spikes.new(POLICY, json.decode(json.encode(a:state())))
  assert.same(a:state(), b:state())
  assert.equal(2, b.above)
  assert.equal(100, #b.norms)
  for i = 1, 50 do
    local norm, list = 1e3 / i, losses("g" .. i % 4, i / 7)
    assert.same(a:add(norm, list), b:add(norm, list))
  end
  assert.same(a:state(), b:state())
end)
