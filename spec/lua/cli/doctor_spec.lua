--- moonreel doctor, run as by a user with a substitute for NVML.
-- Covers: core/bind/gpu.c
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

local place, scene
setup(function()
  place = folder.new()
  scene = process.program():gsub("[^/]*$", "") .. "nvml_scene.so"
end)
teardown(function() place:remove() end)

-- lines by subject
local function rows_of(words, before, want)
  local out, err, code = folder.moonreel(("doctor --json --outputs '%s' %s"):format(place.path,
    words), before)
  assert.equal(want, code, out .. err)
  local rows = {}
  for _, row in ipairs(json.decode(out)) do
    rows[row.what] = row
  end
  return rows
end
local function with(words) return ("MOONREEL_NVML='%s' NVML_SCENE='%s'"):format(scene, words) end

describe("moonreel doctor", function()
  it("reports a machine without GPUs", function()
    local rows = rows_of("", "MOONREEL_NVML=/nowhere.so", 0)
    assert.same({ "ok", "absent", "ok" }, { rows.moonreel.state, rows.GPUs.state,
      rows["media plug-in"].state })
    assert.matches("/nowhere.so", rows.GPUs.text, 1, true)
    assert.is_true(rows.processor.threads >= 1)
    assert.is_true(rows.memory.free_bytes <= rows.memory.memory_bytes)
    assert.is_true(rows[place.path].free_bytes > 0)
    assert.is_not_nil(rows.Lua.text:match("^5%.4"))
  end)

  it("reports the state of each GPU", function()
    local rows = rows_of("", with "slow=0x24 ecc=3", 1)
    assert.equal("580.65.06", rows["driver of GPUs"].text)
    assert.equal("wrong", rows["GPU 0"].state) -- memory errors
    for words, state in pairs { ["slow=0x4 alone"] = "note", [""] = "note", alone = "ok" } do
      assert.equal(state, rows_of("", with(words), 0)["GPU 1"].state)
    end
    assert.same({ "power", "heat" }, rows["GPU 0"].slow)
    for _, part in ipairs { "NVIDIA H100", "79.0 GiB free of 80.0 GiB", "123 W of 700",
      "1755 MHz of 1980", "61 C", "slowed down: at its limit of power", "slowed down: hot",
      "3 uncorrected memory errors", "used by process 4242" } do
      assert.matches(part, rows["GPU 0"].text, 1, true)
    end
  end)

  it("leaves out values that a driver does not report", function()
    local rows = rows_of("", with "quiet", 0)
    assert.same({ "ok", "NVIDIA H100 80GB HBM3, 79.0 GiB free of 80.0 GiB" },
      { rows["GPU 0"].state, rows["GPU 0"].text })
    assert.is_nil(rows["GPU 0"].power_w)
  end)

  it("exits with 1 when something is wrong", function()
    assert.matches("GPU 1: GPU is lost", rows_of("", with "quiet lost=1", 1)["GPU 1"].text, 1, true)
    assert.matches("Driver Not Loaded", rows_of("", with "init=9", 1).GPUs.text, 1, true)
    local out, _, code = folder.moonreel("doctor --outputs /proc/none")
    assert.equal(1, code)
    assert.matches("wrong +/proc/none +runs cannot be written there", out)
    -- a program that lacks its plug-ins
    local copy = place.path .. "/moonreel"
    local done = process.run({ "/bin/sh", "-c", ("cp '%s' '%s' && '%s' doctor"):format(
      process.program(), copy, copy) }, "")
    assert.equal(1, done.exit)
    assert.matches("wrong +media plug%-in +no clip can be decoded", done.output)
  end)

  it("checks a recipe, too", function()
    local rows = rows_of("recipes/tiny/demo", "MOONREEL_NVML=/nowhere.so", 0)
    assert.equal("ok", rows.recipe.state)
    rows = rows_of(place:write("bad.lua", "return recipe { lr = 'x' }"),
      "MOONREEL_NVML=/nowhere.so", 1)
    assert.equal("wrong", rows.recipe.state)
    assert.matches("bad.lua:1: optim.lr: expected", rows.recipe.text, 1, true)
    assert.is_nil(rows_of("", "MOONREEL_NVML=/nowhere.so", 0).recipe)
  end)

  it("prints all values of the driver as JSON", function()
    local out = folder.moonreel(([[-e 'local gpus <close> = require("moonreel.core.gpu").open()
      print(gpus:count(), gpus:find("0000:3b:00.0"), gpus:find("none"))
      local s = gpus:read(1)
      print(s.bus, s.busy_percent, s.limit_w, s.memory_errors, #s.processes, s.processes[1].bytes)
      print(select(2, pcall(gpus.read, gpus, 2)))']]), with "ecc=3")
    assert.equal("2\t1\tnil\n00000000:3b:00.0\t97\t700.0\t3\t1\t1073741824\n",
      out:match("^.-\n.-\n"))
    assert.matches("GPU 2: expected one of 0 to 1", out, 1, true)
  end)
end)
