--- A run of several ranks whose ranks or launcher are killed ends with the bits of a run without
-- kills.
-- Covers: lua/moonreel/comm/launch.lua lua/moonreel/cli/train.lua core/comm/launch.c
local background = require "spec.support.background"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local core = require "moonreel.core.life"
local demo_data = dofile "spec/support/demo_data.lua"
local life = require "moonreel.life"
local process = require "moonreel.core.process"

local EVERY <const>, KILL <const> = 3, 9
-- a larger number makes this spec longer
local KILLS <const> = tonumber(os.getenv "MOONREEL_KILLS" or 3)
local APART <const> = 6 -- steps from one kill to the next
local STEPS <const> = APART * (KILLS + 1)

local out = demo_data.scratch()
teardown(function()
  background.stop()
  os.execute("rm -r '" .. out .. "'")
  demo_data.remove()
end)

local function words(name, ...)
  return { "train", "tiny/demo", "-n", "2", "dataset.data_path=" .. demo_data.path(),
    "outputs=" .. out, "name=" .. name, "steps=" .. STEPS, "ckpt_every=" .. EVERY, "dtype=fp32",
    "warmup_steps=2", "threads=1", "num_workers=1", "model.depth=1", "model.hidden_size=32",
    "model.num_heads=2", "text_encoder.width=32", "model.caption_channels=32", "log_every=100",
    "restart_pause=0", "restart_steps=1", 'bucket_config={["32px"]={[1]={1.0,2}}}', ... }
end

-- starts a run in the background
local function start(name, ...)
  background.start(out .. "/log", process.program(), table.unpack(words(name, ...)))
end

local function log() return base.read_file(out .. "/log") end

local function await(what, find) return background.await(what, out .. "/log", find) end

local function is_done() return log():find("done: step " .. STEPS, 1, true) ~= nil end

-- the launch of our run once all its ranks have begun a step, or "over" after its end
local function at_step(step, before)
  return await("step " .. step, function()
    for _, one in ipairs(life.of_run(out)) do
      local rank = one.page:rank(1)
      if rank.step >= step and rank.state and rank.pid ~= before then
        return one
      end
      one.page:close()
    end
    return is_done() and "over"
  end)
end

local function kill_ranks(one, first, last)
  for rank = first, last do
    local r = one.page:rank(rank)
    core.signal(r.pid, r.start, one.about.uid, KILL)
  end
end

local whom = {
  function(one) kill_ranks(one, 1, 1) end,
  function(one) kill_ranks(one, 0, 1) end,
  function(one)
    core.signal(one.about.pid, one.about.start, one.about.uid, KILL)
    await("the end of what a launcher left", function()
      return #core.processes(one.about.token, one.about.uid) == 0
    end)
    if not is_done() then
      start("killed", "load=" .. demo_data.run_dir(out, "killed"))
    end
  end,
}

-- kills the run all the times; returns false when it ended before
local function kill_all()
  local before
  for i = 1, KILLS do
    local one = at_step(i * APART - 2, before)
    if one == "over" then
      return false
    end
    before = one.page:rank(1).pid
    whom[(i - 1) % 3 + 1](one)
    one.page:close()
  end
  return true
end

describe("a run whose processes are killed", function()
  it("ends with the bits of a run without kills", function()
    start("whole")
    await("the end of a run", is_done)
    -- a run that ended before a kill is repeated
    local tries = 0
    repeat
      tries = tries + 1
      assert.is_true(tries < 20, log())
      await("the end of all", function() return #life.of_run(out) == 0 end)
      os.execute(("rm -rf '%s'/*-killed"):format(out))
      start("killed")
    until kill_all()
    await("the end of a run", is_done)
    local function newest(name)
      return ckpt.open(ckpt.dir(demo_data.run_dir(out, name), STEPS))
    end
    local a <close> = newest "whole"
    local b <close> = newest "killed"
    assert.same(a:names(), b:names())
    assert.equal(a.manifest.sampler, b.manifest.sampler)
    for _, name in ipairs(a:names()) do
      assert.equal(0, a:compare(b, name).differing, name)
    end
    await("the end of all", function() return #life.of_run(out) == 0 end)
  end)
end)
