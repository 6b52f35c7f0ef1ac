--- moonreel.trainer.programs compiles a program at its first use, closes the least recently used
-- ones above a limit, and computes the same when a shape returns.
-- Covers: lua/moonreel/trainer/largest.lua
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local pipeline = require "moonreel.models.pipeline"
local program = require "moonreel.trainer.program"
local programs = require "moonreel.trainer.programs"
local regions = require "moonreel.optim.regions"

local function new(most_bytes, say)
  local pipe = pipeline.new({vae = {type = "dct"},
    text_encoder = {type = "bytes", width = 16, rows = 64, max_length = 4, num_heads = 2},
    model = {type = "STDiT3", depth = 1, hidden_size = 16, num_heads = 2, patch_size = {1, 1, 1},
      pred_sigma = false, temporal_pos = "sincos"}}, "f32")
  local device, rows = E.device(), regions.gradients()
  local exec = E.new(device, pipe.params, {regions = rows})
  local plans = E.plan(pipe.params, {regions = rows, facts = device:facts()})
  exec:init(3)
  return programs.new(exec, plans, pipe, {most_bytes = most_bytes, say = say}), pipe
end

local function shape(batch)
  return {frames = 1, height = 16, width = 16, batch = batch, text = 4}
end

local function batch_of(pipe, n)
  local function all(value)
    local list = {}
    for i = 1, n do
      list[i] = value
    end
    return list
  end
  local pixels = T.new("u8", {n, 1, 3, 16, 16})
  return {pixels = pixels, keys = all(7), seed = 5, epoch = 0, t = all(300), fps = all(8),
    weight = all(1), drop = all(0), tokens = pipe.text:tokens(all("red"))}
end

describe("trainer.programs", function()
  it("compiles a shape once, at its first use", function()
    local cache = new(1 << 30)
    assert.equal(0, cache.compiled)
    local one = cache:get(shape(1))
    assert.equal(1, cache.compiled)
    assert.is_true(rawequal(one, cache:get(shape(1))))
    cache:get(shape(2))
    assert.equal(2, cache.compiled)
    assert.equal(2, #cache:list())
  end)

  it("closes the least recently used program, reports it once, compiles it again", function()
    local said = {}
    local measure, pipe = new(1 << 30)
    local first = measure:get(shape(1))
    local before = first:run(batch_of(pipe, 1))
    -- room for two of the size of this one and a little more
    local cache, other = new(measure.bytes * 5 // 2, function(line) said[#said + 1] = line end)
    local one = cache:get(shape(1))
    cache:get(shape(2))
    cache:get(shape(1))
    cache:get(shape(3)) -- program 2 is closed, not 1
    assert.is_true(rawequal(one, cache:get(shape(1))))
    assert.same({"1x16x16 b1 l4", "1x16x16 b3 l4"}, {cache:list()[1].key, cache:list()[2].key})
    assert.matches("^program of 1x16x16 b2 l4 closed: programs need more than %d+ MiB ", said[1])
    cache:get(shape(2)) -- program 3 is closed
    cache:get(shape(3)) -- program 1 is closed
    local runs, problem = pcall(one.prog.run, one.prog)
    assert.is_false(runs)
    assert.matches("closed", tostring(problem))
    local again = cache:get(shape(1)):run(batch_of(other, 1))
    assert.equal(before, again)
    assert.equal(6, cache.compiled)
    assert.equal(3, cache.again)
    for _ = 1, 3 do
      for b = 1, 3 do
        cache:get(shape(b))
      end
    end
    assert.equal(1, #said) -- the others are counted
    assert.is_true(cache.again > 9, cache.again)
  end)

  it("reports memory and largest batch of a shape that does not fit", function()
    local cache = new(1 << 30)
    cache:get(shape(2))
    local takes = cache:shortage(shape(5), 0)
    local more, there, batch = cache:shortage(shape(9), takes - cache.shared)
    assert.is_true(more > takes and cache.shared > 0)
    assert.same({takes, 5}, {there, batch})
    assert.equal(4, (select(3, cache:shortage(shape(9), takes - cache.shared - 1))))
    assert.equal(0, (select(3, cache:shortage(shape(9), -cache.shared))))
    assert.equal(1, cache.compiled) -- nothing is compiled for it
  end)

  it("keeps programs within its bytes for any shapes, and always the newest program", function()
    local cache = new(4 << 20)
    -- also during a compilation: other programs are closed before it begins
    local compile, most, compiled = program.new, 0, 0
    finally(function() program.new = compile end)
    program.new = function(...)
      local step = compile(...)
      local m = step.prog:memory()
      most = math.max(most, cache.bytes + m.inputs + m.staged + m.results + m.consts + m.host
        - m.staging)
      compiled = compiled + 1
      return step
    end
    for b = 1, 40 do
      cache:get(shape(b))
      local sum = 0
      for _, step in ipairs(cache:list()) do
        sum = sum + step.bytes
      end
      assert.equal(sum, cache.bytes)
      assert.is_true(cache.bytes <= 4 << 20)
    end
    assert.is_true(#cache:list() > 1 and #cache:list() < 40)
    assert.equal(40, compiled)
    assert.is_true(most <= 4 << 20 and most > 3 << 20, most)
    local none = new(0)
    none:get(shape(1))
    none:get(shape(2))
    assert.equal(1, #none:list())
  end)
end)
