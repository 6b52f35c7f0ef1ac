--- An overloaded host and processes that stop for seconds raise no alarm. MOONREEL_CALM=7 trains
-- the demo itself with seven seeds and pauses of 3 s.
-- Covers: lua/moonreel/trainer/spikes.lua lua/moonreel/trainer/weights.lua
local background = require "spec.support.background"
local base = require "moonreel.core.base"
local demo_data = dofile "spec/support/demo_data.lua"
local process = require "moonreel.core.process"
local run = require "moonreel.run"

local SEEDS = math.tointeger(os.getenv "MOONREEL_CALM")
local SEED = math.tointeger(os.getenv "MOONREEL_SEED") or 1
local PAUSE_S = SEEDS and 3 or 0.3
local STEPS, PAUSES = SEEDS and 320 or 130, SEEDS and 4 or 3
local WAIT_S <const> = 1200 -- trains with these options for a number of steps

local out = demo_data.scratch()
teardown(function()
  background.stop()
  os.execute("rm -r '" .. out .. "'")
  demo_data.remove()
end)

local SMALL <const> = { "model.depth=1", "model.hidden_size=32", "model.num_heads=2",
  "text_encoder.width=32", "model.caption_channels=32",
  'bucket_config={["32px"]={[1]={1.0,4},[6]={1.0,2}}}' }

local function signal(name, pids)
  os.execute(("kill -%s %s 2> /dev/null"):format(name, table.concat(pids, " ")))
end

-- one process of the run, or all: ranks, decoders and launchers
local function victims(i)
  local pids = background.pids()
  return i % 2 == 0 and pids or { pids[1 + math.floor(#pids
    * base.random_uniform(SEED, "process", i, 0))] }
end

-- stops processes of the run for a while, spread over its steps, and waits for its end
local function disturb(log, name)
  local function await(what, step)
    background.await(what .. " of " .. name, log, function()
      local newest = base.read_file(log):match ".*  step (%d+)/"
      return newest and tonumber(newest) >= step or #background.pids() == 0 or nil
    end, WAIT_S)
  end
  background.await("the start of " .. name, log, function()
    return #background.pids() > 0 or nil
  end)
  local paused = 0
  for i = 1, PAUSES do
    await("a step", STEPS * i // (PAUSES + 1))
    local pids = victims(i)
    if #pids > 0 then
      signal("STOP", pids)
      base.sleep(PAUSE_S)
      signal("CONT", pids)
      paused = paused + 1
    end
  end
  await("the end", math.huge)
  return paused
end

-- the kinds of lines in a journal, with their counts
local function kinds(name)
  local found = {}
  for line in run.entries(demo_data.run_dir(out, name)) do
    found[line.kind] = (found[line.kind] or 0) + 1
  end
  return found
end

describe("a run that is disturbed", function()
  for seed = 1, SEEDS or 2 do
    it("by load and pauses raises no alarm, seed " .. seed, function()
      local name, log, ranks = "calm" .. seed, ("%s/%d.log"):format(out, seed), 1 + seed % 2
      local words = { process.program(), "train", "tiny/demo", "-n", tostring(ranks),
        "dataset.data_path=" .. demo_data.path(), "outputs=" .. out, "name=" .. name,
        "seed=" .. seed, "steps=" .. STEPS, "log_every=10", "ckpt_every=50", "threads=1",
        "num_workers=1", "weights.every=20" }
      local load = out .. "/load.log"
      background.start(load, "/bin/sh", "-c", "for i in 1 2 3 4; do while :; do :; done & done; "
        .. "wait")
      background.start(log, table.unpack(table.move(SEEDS and {} or SMALL, 1,
        SEEDS and 0 or #SMALL, #words + 1, words)))
      local paused = disturb(log, name)
      background.stop()
      local found = kinds(name)
      print(("calm_spec: seed %d: %d ranks, %d pauses of %g s, %d steps, %d spikes, %d alarms")
        :format(seed, ranks, paused, PAUSE_S, found.step or 0, found.spike or 0,
        found.alarm or 0))
      assert.matches("  done: step " .. STEPS .. ",", base.read_file(log))
      assert.equal(STEPS, found.step)
      assert.is_true(paused > 0)
      for _, kind in ipairs { "spike", "alarm", "skip", "rollback", "nonfinite", "replicas",
          "error", "gap" } do
        assert.is_nil(found[kind], kind .. "\n" .. base.read_file(log))
      end
      assert.equal(1, found.start)
    end)
  end
end)
