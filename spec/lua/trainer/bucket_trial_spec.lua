--- The size of communication buckets is found by a trial before the first step. All ranks use the
-- same size, the journal records the trial, and a resumed run keeps the size, with the bits of a
-- run that was never stopped.
-- Covers: lua/moonreel/trainer/setup.lua lua/moonreel/optim/ranks.lua
local base = require "moonreel.core.base"
local demo_data = dofile "spec/support/demo_data.lua"
local fails = require "spec.support.fails"
local process = require "moonreel.core.process"
local program = require "spec.support.program"
local ranks = require "moonreel.optim.ranks"
local run = require "moonreel.run"
local settings = require "moonreel.settings"

local out = demo_data.scratch()
teardown(function()
  os.execute("rm -r '" .. out .. "'")
  demo_data.remove()
end)

local WORDS = "train tiny/demo dtype=fp32 warmup_steps=2 threads=1 num_workers=1 "
  .. "model.depth=2 model.hidden_size=64 model.num_heads=2 text_encoder.width=16 "
  .. "text_encoder.num_heads=1 text_encoder.rows=64 model.caption_channels=16 log_every=1000 "
  .. "bucket_config={['32px']:{1:[1.0,2]}}"

local AUTO = "plugin_config.reduce_bucket_size_in_m=auto"

-- Buckets are smaller than those of recipes. A number as first argument replaces the result of the
-- trial.
local TRAIN = [[
local bucket_size = require "moonreel.optim.bucket_size"
bucket_size.least = 65536
local best = bucket_size.best
function bucket_size.best(...) return math.tointeger(arg[1]) or best(...) end
assert(require("moonreel.cli.train").run { table.unpack(arg, 3) } == 0)
]]

local function train(size, name, steps, ...)
  base.replace_file(out .. "/train.lua", TRAIN)
  local list = { process.program(), "-n", tostring(size), out .. "/train.lua",
    name:match "%d%d%d+$" or "tried" }
  for word in WORDS:gsub("%['32px'%]", "'32px'"):gmatch "%S+" do
    list[#list + 1] = word
  end
  table.move({ "name=" .. name, "steps=" .. steps, "outputs=" .. out, "dataset.data_path="
    .. demo_data.path(), ... }, 1, 4 + select("#", ...), #list + 1, list)
  return program.output(list)
end

-- losses of all steps, and the bucket size that each start reports
local function reported(name)
  local losses, starts = {}, {}
  for entry in run.entries(demo_data.run_dir(out, name)) do
    losses[#losses + 1] = entry.kind == "step" and ("%.17g %.17g"):format(entry.loss,
      entry.grad_norm) or nil
    starts[#starts + 1] = entry.kind == "start" and (entry.bucket_size or {}) or nil
  end
  return losses, starts
end

-- the losses of two runs agree but for their last bits
local function assert_near(wanted, losses)
  assert.equal(#wanted, #losses)
  for i, line in ipairs(wanted) do
    local a, b = tonumber(line:match "^%S+"), tonumber(losses[i]:match "^%S+")
    assert.is_true(math.abs(a - b) <= 1e-6 * a, a .. " " .. b)
  end
end

describe("a run that tries bucket sizes", function()
  for zero = 1, 3 do
    it(("chooses the fastest size, reports and keeps it (ZeRO %d)"):format(zero), function()
      local stage, name = "plugin_config.zero_stage=" .. zero, "tried" .. zero
      local text = train(2, name, 2, AUTO, stage)
      local _, starts = reported(name)
      local size, seen = starts[1], {}
      assert.is_true(#size.tried >= 2)
      assert.equal(size.formula, size.tried[1].elements)
      for i, one in ipairs(size.tried) do
        assert.is_true(one.seconds > 0)
        seen[one.elements] = i
      end
      assert.is_truthy(seen[size.elements])
      assert.equal(2, size.ranks)
      assert.matches(("reduce_bucket_size_in_m = %s: [%%d.]+ ms a step[^\n]*, chosen\n"):format((
        "%g"):format(size.elements / (1 << 20)):gsub("%p", "%%%0")), text)
      text = train(2, name, 3, AUTO, stage, "load=" .. demo_data.run_dir(out, name))
      assert.matches("reduce_bucket_size_in_m = [%d.]+, as before\n", text)
      local losses, again = reported(name)
      assert.same({ size.elements, true }, { again[2].elements, again[2].kept })
      train(2, "plain" .. zero, 3, stage)
      assert_near((reported("plain" .. zero)), losses)
    end)
  end

  it("computes the same bits with a size after a resume", function()
    local clip = "optim.grad_clip=0.1"
    for _, elements in ipairs { 65536, 1 << 27 } do
      train(2, "fixed" .. elements, 3, AUTO, clip)
    end
    local many, starts = reported "fixed65536"
    assert.equal(65536, starts[1].elements)
    assert_near((reported("fixed" .. (1 << 27))), many)
    train(2, "stopped65536", 2, AUTO, clip)
    -- the size of the checkpoint is used although a trial would find another one
    train(2, "stopped", 3, AUTO, clip, "load=" .. demo_data.run_dir(out, "stopped65536"))
    assert.same(many, (reported "stopped65536"))
  end)

  it("tries again with another number of ranks, and tries nothing with one rank", function()
    train(3, "tried1", 4, AUTO, "load=" .. demo_data.run_dir(out, "tried1"))
    local _, starts = reported "tried1"
    assert.equal(3, starts[#starts].ranks)
    assert.is_truthy(starts[#starts].tried)
    assert.not_matches("reduce_bucket_size_in_m", train(1, "alone", 1, AUTO))
  end)

  it("uses the formula when the recipe says auto, or the size that a trial found", function()
    local function cut(word, elements)
      return ranks.cut(settings.bake("tiny/demo",
        { "plugin_config.reduce_bucket_size_in_m=" .. word }), 4, 1, elements).elements
    end
    assert.same({ 128 << 20, 3 << 20, 77 }, { cut "auto", cut "3", cut("auto", 77) })
    fails("MR_E_USAGE", "reduce_bucket_size_in_m=some: plugin_config.reduce_bucket_size_in_m: "
      .. "expected integer of at least 1, or \"auto\", or none", cut, "some")
  end)
end)
