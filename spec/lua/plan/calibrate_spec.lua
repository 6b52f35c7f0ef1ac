--- A plan compared with what a run measured.
local calibrate = require "moonreel.plan.calibrate"
local demo_data = dofile "spec/support/demo_data.lua"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local work = require "moonreel.plan.work"

local function bucket(frames, seconds, total)
  return { resolution = "32px", frames = frames, height = 32, width = 32, total = total,
    seconds = { step = seconds }, bytes = { decoders = 10 } }
end

describe("a plan calibrated by a run", function()
  local p = { buckets = { bucket(1, 2, 100), bucket(6, 4, 200), bucket(9, 1, 300) } }

  it("has the median of the rates of the run's buckets", function()
    assert.equal(1.5, calibrate.factor(p, { { bucket = "32px 6x32x32", measured_s = 6 } }))
    assert.equal(2, calibrate.factor(p, { { bucket = "32px 6x32x32", measured_s = 8 },
      { bucket = "32px 1x32x32", measured_s = 20 }, { bucket = "32px 9x32x32", measured_s = 1 },
      { bucket = "64px 1x64x64", measured_s = 1000 } }))
    assert.is_nil(calibrate.factor(p, { { bucket = "32px 6x32x32" } }))
  end)

  it("is slower in each step by the same factor, and starts from the bytes of the run", function()
    local mesh = { machine = { here = true, program_bytes = 10 } }
    calibrate.as_run(mesh, 1.5, 30)
    assert.equal(3, work.seconds(mesh.machine, { op = "add", expected = 2 }, "f32"))
    assert.equal(30, mesh.machine.program_bytes)
    calibrate.as_run(mesh)
    assert.equal(30, mesh.machine.program_bytes)
  end)

  it("is printed next to the measured values, without decoding processes", function()
    local rows = { { bucket = "32px 6x32x32" }, { bucket = "other" } }
    calibrate.compare(p, rows)
    assert.same({ { bucket = "32px 6x32x32", planned_s = 4, planned_bytes = 190 },
      { bucket = "other" } }, rows)
  end)
end)

-- how many more bytes than planned a process had
local function off(planned, seen) return planned / seen - 1 end

-- the fixed step of the bench with fewer tokens, run once: bytes resident, bytes planned
local STEP = [[
  local step, core = require "moonreel.bench.step", require "moonreel.core.bench"
  local cut = require("moonreel.nn").merged(require("moonreel.bench.cuts").all.stdit3,
    { latent = { 1, 4, 2, 16, 16 } })
  local began, device = core.resident(), require("moonreel.core.exec").device("cpu", 0)
  local dtype = device:facts().bf16 and "bf16" or "f32"
  local run, params, net = step.open(device, cut, dtype)
  local one = step.compile(run, params, net, cut, step.settings[1])
  print(core.max_resident(), began + one.prog:plan().total)]]

-- sanitizers keep freed memory, so their peaks prove nothing
local counts = not process.program():find("/asan/", 1, true)

describe("the peak bytes of a process", function()
  teardown(demo_data.remove)

  it("are within 5 % of the planned ones: a run of the demo", function()
    local outputs = demo_data.scratch()
    -- by a process that did other work before, which counts as its initial memory
    demo_data.moonreel("-e", ("local much = ('x'):rep(64 << 20) require('moonreel.trainer').run("
      .. "require('moonreel.settings').bake('recipes/tiny/demo', { 'steps=6', 'outputs=%s', "
      .. "'dataset.data_path=%s' }), { write = function() end }) return #much")
      :format(outputs, demo_data.path()))
    local p = json.decode(demo_data.moonreel("plan", outputs .. "/001-demo", "--json"))
    local b = p.buckets[1].total > p.buckets[2].total and p.buckets[1] or p.buckets[2]
    assert.is_true(b.bytes.program > 6.4e7)
    local by = off(b.total - b.bytes.decoders, p.resident_bytes)
    assert.is_true(not counts or math.abs(by) <= 0.05, by)
    os.execute("rm -r '" .. outputs .. "'")
  end)

  it("are within 5 % of the planned ones: the fixed step of the bench", function()
    local done = process.run({ process.program(), "-e", STEP }, "", { deadline_s = 600 })
    assert.equal(0, done.exit, done.output)
    local seen, planned = done.output:match "(%d+)%s+(%d+)"
    local by = off(tonumber(planned), tonumber(seen))
    assert.is_true(not counts or math.abs(by) <= 0.05, by)
  end)
end)
