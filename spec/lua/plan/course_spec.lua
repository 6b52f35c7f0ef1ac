--- The course of a whole run, from its buckets' seconds and an index's samples.
-- Covers: lua/moonreel/trainer/cadence.lua
local course = require "moonreel.plan.course"
local mesh = require "moonreel.plan.mesh"

-- two buckets of 1 s and 3 s
local function planned(gpus)
  local function bucket(resolution, frames, batch, seconds)
    return { resolution = resolution, frames = frames, batch = batch, seconds = { step = seconds,
      slowest = 0 } }
  end
  return { mesh = mesh.parse(gpus):with { zero = 2 }, saved_bytes = 16e9,
    buckets = { bucket("144p", 1, 10, 1), bucket("144p", 51, 2, 3) } }
end

local function settings(given)
  return setmetatable(given, { __index = { accumulate = 1, virtual_ranks = 1, steps = 0,
    epochs = 2, ckpt_every = 0, ckpt_minutes = 0, sampling = { every = 0 },
    eval = { every = 0 }, recipe = "mine" } })
end

-- 30 batches of the first and 10 of the second bucket, which has two aspects
local survey = { index = "x.mrx", buckets = {
  { resolution = "144p", frames = 1, batch = 10, samples = 291 },
  { resolution = "144p", frames = 51, batch = 2, samples = 9 },
  { resolution = "144p", frames = 51, batch = 2, samples = 10 } } }
local fewer = { index = "x.mrx", buckets = { survey.buckets[1] } }

local function near(want, got) assert.is_true(math.abs(got / want - 1) < 1e-9, got) end

describe("the course of a run", function()
  it("has the steps and hours of its index, epoch by epoch", function()
    local c = course.of(planned "8xH100", settings {}, { surveys = { survey, fewer } })
    assert.same({ 5, 4 }, c.epochs)
    assert.equal(9, c.steps)
    assert.equal(1.5, c.step_s)
    assert.equal(9 * 1.5 / 3600, c.hours)
    assert.equal(8 * c.hours, c.gpu_hours)
    assert.equal(2.99 * c.gpu_hours, c.cost)
    -- 7.5 and 0.5 samples of the average batch
    assert.equal(8 * 8 / 1.5, c.samples_s)
    -- later epochs are as long as the last that was counted; micro-batches are added up
    c = course.of(planned "H100", settings { epochs = 4, accumulate = 2 },
      { surveys = { survey, fewer } })
    assert.same({ 20, 15 }, c.epochs)
    assert.equal(20 + 15 * 3, c.steps)
    -- a step continues in the next epoch: only the last of all is short
    c = course.of(planned "H100", settings { epochs = 5, accumulate = 12 },
      { surveys = { survey, fewer } })
    assert.same({ 4, 2 }, c.epochs)
    assert.equal(-(-(40 + 4 * 30) // 12), c.steps)
  end)

  it("carries incomplete batches into the next epoch when the recipe says so", function()
    local function epoch(samples)
      return { index = "x.mrx", buckets = { { resolution = "144p", frames = 1, height = 9,
        width = 16, batch = 10, samples = samples }, { resolution = "144p", frames = 1, height = 16,
        width = 9, batch = 10, samples = 6 } } }
    end
    local surveys = { epoch(25), epoch(19), epoch(21) }
    local function epochs(tail)
      return course.of(planned "H100", settings { epochs = 3, tail = tail },
        { surveys = surveys }).epochs
    end
    assert.same({ 4, 3, 4 }, epochs "short")
    -- 5 and 6, then 4 and 2 remain; the last epoch trains 25 and 8
    assert.same({ 2, 3, 4 }, epochs "carry")
  end)

  it("of an extraction covers all epochs that differ, whatever the steps of a training", function()
    local c = course.of(planned "H100", settings { job = "extract", steps = 7, epochs = 9,
      dataset = { draw_epochs = 3 } }, { surveys = { survey, fewer } })
    assert.equal(40 + 30 + 30, c.steps)
    assert.matches("^3 epochs of x.mrx", c.from)
  end)

  it("uses the recipe's own number of steps, or that of a published run, or none", function()
    assert.equal(77, course.of(planned "H100", settings { steps = 77 }).steps)
    local lambda = settings { recipe = "recipes/opensora-1.2/lambda/tutorial.lua" }
    local c = course.of(planned "24x8xH100", lambda, { stage = "stage3" })
    assert.equal(14778, c.steps)
    assert.matches("published checkpoints", c.from)
    assert.is_nil(course.of(planned "24x8xH100", lambda, { stage = "stage7" }))
    assert.is_nil(course.of(planned "H100", settings {}))
  end)

  it("is slower when ranks draw independently: the slowest of each step decides", function()
    local s = settings { steps = 10 }
    assert.equal(1, course.of(planned "H100", s, { surveys = { survey } }).free)
    local c = course.of(planned "2xH100", s, { surveys = { survey } })
    -- both draw the short one in 9 of 16 steps
    local expected = 1.5 / (9 / 16 * 1 + 7 / 16 * 3)
    assert.is_true(math.abs(c.free - expected) < 1e-12)
    assert.is_true(course.of(planned "24x8xH100", s, { surveys = { survey } }).free < 0.51)
  end)

  it("keeps checkpoints and saves as often as failures require", function()
    local c = course.of(planned "8xH100", settings { steps = 1000 })
    assert.equal(16e9, c.disk_bytes)
    c = course.of(planned "8xH100", settings { steps = 1000, ckpt_every = 100 })
    assert.equal(3 * 16e9, c.disk_bytes)
    -- retention keeps two that were verified
    for kept, expected in pairs { [1] = 2, [2] = 2, [5] = 5 } do
      c = course.of(planned "8xH100", settings { steps = 1000, ckpt_every = 100,
        keep_n_latest = kept })
      assert.equal(expected * 16e9, c.disk_bytes)
    end
    c = course.of(planned "8xH100", settings { steps = 1000, ckpt_every = 100, keep_n_latest = 0 })
    assert.equal(10 * 16e9, c.disk_bytes)
    c = course.of(planned "8xH100", settings { steps = 1001, ckpt_every = 100, keep_n_latest = 0 })
    assert.equal(11 * 16e9, c.disk_bytes)
    -- rendered steps are saved, too, and some of them anyway
    c = course.of(planned "8xH100", settings { steps = 1000, ckpt_every = 100, keep_n_latest = 0,
      sampling = { every = 50 } })
    assert.equal(20 * 16e9, c.disk_bytes)
    c = course.of(planned "8xH100", settings { steps = 1001, ckpt_every = 100, keep_n_latest = 0,
      sampling = { every = 40 } })
    assert.equal((10 + 25 - 5 + 1) * 16e9, c.disk_bytes)
    c = course.of(planned "8xH100", settings { steps = 1000, keep_n_latest = 0,
      sampling = { every = 250 } })
    assert.equal(4 * 16e9, c.disk_bytes)
    -- and evaluated ones: multiples of 100, 40 or 60
    c = course.of(planned "8xH100", settings { steps = 1001, ckpt_every = 100, keep_n_latest = 0,
      sampling = { every = 40 }, eval = { every = 60 } })
    local n = 1
    for step = 1, 1001 do
      n = n + ((step % 100 == 0 or step % 40 == 0 or step % 60 == 0) and 1 or 0)
    end
    assert.equal(n * 16e9, c.disk_bytes)
    -- by time: two an hour, and the last
    local slow = course.of(planned "8xH100", settings { steps = 1000, ckpt_minutes = 30,
      keep_n_latest = 0 })
    assert.equal(1 + slow.hours * 2 // 1, slow.disk_bytes / 16e9)
    assert.is_true(slow.disk_bytes > 16e9)
    -- 2 GB of each rank over 55 GB/s, a failure in 6,375 hours: more than the ten minutes
    assert.equal(600, c.interval_s)
    assert.equal(300, c.interval)
    near(16e9 / 8 / 55e9 + 16e9 / 2e9, c.save_s)
    assert.is_true(math.abs(c.failures - c.gpu_hours / 5.1e4) < 1e-12)
    local many = course.of(planned "2048x8xH100", settings { steps = 1e6, ckpt_every = 100 })
    -- the store takes 16 GB in 0.8 s, and one of 16,384 fails every three hours: 134 s
    near((2 * many.save_s * 5.1e4 * 3600 / 16384) ^ 0.5, many.interval_s)
    assert.is_true(many.interval_s > 120 and many.interval_s < 150, many.interval_s)
    assert.is_true(many.failures > 100 and many.lost_hours > 0)
    -- each failure costs half an interval, the save in progress, and 300 s to start again
    near(many.failures * (many.interval_s / 2 + 0.8 + 300) / 3600, many.lost_hours)
    -- a store that is slower than the interval: one save after the other
    local slow_store = planned "2048x8xH100"
    slow_store.mesh.machine.host.store = 1e7
    local waits = course.of(slow_store, settings { steps = 1e6, ckpt_every = 100 })
    assert.equal(waits.save_s, waits.interval_s)
    assert.is_true(waits.save_s > 1600)
    -- a rank's 100 of 400 bytes to the host, those of both ranks of a node to the store
    local save = course.save { saved_bytes = 400, mesh = { ranks = 4, gpus = 2,
      machine = { host = { pcie = 10, disk = 50, store = 1e3 } } } }
    assert.same({ snapshot_s = 10, write_s = 4 }, save)
    save = course.save { saved_bytes = 400, mesh = { ranks = 4, gpus = 2,
      machine = { host = { pcie = 10, disk = 50, store = 40 } } } }
    assert.same({ snapshot_s = 10, write_s = 10 }, save)
  end)
end)
