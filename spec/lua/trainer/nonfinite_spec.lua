--- What a run does about losses and gradients that are not finite.
-- Covers: lua/moonreel/trainer/anomalies.lua lua/moonreel/trainer/state.lua
local demo_data = require "spec.support.demo_data"
local small_run = require "spec.support.small_run"

local runs = small_run.new()
local bake, train, entries = runs.bake, small_run.train, small_run.entries

local function not_a_number(input)
  input.t[1] = 0 / 0
end

-- replaces inputs of the steps for which `bad` is true: by a time that is nan, or by `how`
local function spoil(bad, how)
  return function(r)
    local prepare = r.feed.prepare
    r.feed.prepare = function(self, batch, shape)
      local input = prepare(self, batch, shape)
      if bad(r.step + 1) then
        (how or not_a_number)(input)
      end
      return input
    end
  end
end

-- a loss beyond f32 whose gradients are far within it
local function too_heavy(input)
  input.weight[1] = 3e38
end

describe("a run with losses that are not finite", function()
  teardown(function() runs:remove() end)

  local spoiled = {["whose gradients are not finite"] = not_a_number,
    ["whose loss alone is not finite"] = too_heavy}
  for what, how in pairs(spoiled) do it("skips a step " .. what .. ", and its parameters stay",
    function()
    local before, after
    local ok, code, _, dir = train(bake("steps=5", "name=skip"), function(r)
      spoil(function(step) return step == 3 end, how)(r)
      local start = r.update.start
      r.update.start = function(self, h)
        local function bytes()
          return r.exec:read("master", "f32", 0, {r.pipe.params:elements(false)}):bytes()
        end
        if r.step == 2 then
          before = bytes()
        end
        local norm = start(self, h)
        if r.step == 2 then
          after = bytes()
        end
        return norm
      end
    end)
    assert.is_true(ok, tostring(code))
    assert.is_true(before == after)
    assert.equal(1, #entries(dir, "skip"))
    assert.equal(3, entries(dir, "skip")[1].step)
    assert.equal(4, #entries(dir, "step"))
  end) end

  it("exits with 7 after three such steps, with a checkpoint", function()
    local ok, err, _, dir = train(bake("steps=20", "name=bad"), spoil(function(step)
      return step > 2
    end))
    assert.is_false(ok)
    assert.equal("MR_E_NONFINITE", err.code)
    local report = entries(dir, "error")
    assert.same({ 1, err.code, err.message }, { #report, report[1].code, report[1].text })
    assert.equal(7, err.exit)
    assert.matches("3 steps in a row without a finite loss", err.message)
    assert.same({5}, require("moonreel.ckpt").steps(dir))
  end)

  it("counts such steps in a row across a resume", function()
    local _, code, _, dir = train(bake("steps=4", "name=counts"), spoil(function(step)
      return step > 2
    end))
    assert.equal(0, code)
    local _, err, lines = train(bake("steps=20", "name=counts", "load=" .. dir),
      spoil(function(step) return step > 4 end))
    -- the third one is the first step of this launch
    assert.matches("step 5: 3 steps in a row without a finite loss",
      table.concat(lines, "\n") .. tostring(err))
    assert.equal(5, entries(dir, "skip")[3].step)
    -- a good step between them starts the count again
    _, code, _, dir = train(bake("steps=4", "name=apart"), spoil(function(step)
      return step > 2
    end))
    assert.equal(0, code)
    local ok
    ok, code = train(bake("steps=8", "name=apart", "load=" .. dir), spoil(function(step)
      return step > 5 and step < 8
    end))
    assert.is_true(ok, tostring(code))
    assert.equal(0, code)
  end)

  it("rolls back to the last checkpoint and ends with the bits of a run without them",
    function()
    local _, _, _, clean = train(bake("steps=12", "name=clean", "ckpt_every=4"))
    local first = true
    local ok, code, lines, dir = train(bake("steps=12", "name=back", "ckpt_every=4"),
      spoil(function(step)
      local bad = first and step > 5
      first = first and step < 8
      return bad
    end))
    assert.is_true(ok, tostring(code))
    assert.equal(3, #entries(dir, "skip"))
    local back = entries(dir, "rollback")
    assert.equal(1, #back)
    assert.same({4, 8}, {back[1].step, back[1].from})
    assert.matches("step 8: 3 steps in a row without a finite loss and gradient: back to step 4",
      table.concat(lines, "\n"))
    assert.matches("equal: %d+ tensors, bit for bit",
      demo_data.moonreel("ckpt", "diff", clean, dir))
  end)

  it("exits with 7 when a rollback did not help", function()
    local ok, err, _, dir = train(bake("steps=20", "name=vain", "ckpt_every=4"),
      spoil(function(step)
      return step > 5
    end))
    assert.is_false(ok)
    assert.equal(7, err.exit)
    assert.matches("step 8: 3 steps in a row", err.message)
    assert.equal(1, #entries(dir, "rollback"))
    assert.equal(8, require("moonreel.ckpt").steps(dir)[1])
  end)
end)
