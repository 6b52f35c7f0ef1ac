--- trainer/gpu: the state of a run's GPU in its journal and its log.
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local watch = require("moonreel.trainer.gpu").watch

describe("node", function()
  local gpu = require "moonreel.trainer.gpu"
  local function at(bus) return { bus = function() return bus end } end

  it("is that of the memory near the GPU, counted from 1", function()
    local place, sysfs = folder.new(), gpu.sysfs
    finally(function()
      gpu.sysfs = sysfs
      place:remove()
    end)
    gpu.sysfs = place.path .. "/"
    place:write("0000:3b:00.0/numa_node", "1\n")
    place:write("0000:3c:00.0/numa_node", "-1\n")
    assert.equal(2, gpu.node(at "0000:3B:00.0"))
    assert.is_nil(gpu.node(at "0000:3C:00.0"))
    assert.is_nil(gpu.node(at "0000:3D:00.0"))
    assert.is_nil(gpu.node(at(nil)))
  end)
end)

describe("watch", function()
  it("is absent when the device is no GPU", function()
    local device <close> = require("moonreel.core.exec").device("cpu")
    assert.is_nil(watch(device))
  end)

  -- another process, whose environment names a substitute for NVML; each reading advances its scene
  local function looks(script, scene)
    local place = folder.new()
    local out, err, code = folder.moonreel(place:write("look.lua", [[
      local watch = require("moonreel.trainer.gpu").watch
      local device = { bus = function() return os.getenv "BUS" end }
      ]] .. script), ("BUS=0000:3B:00.0 NVML_SCENE='%s' MOONREEL_NVML='%snvml_scene.so'"):format(
        scene, process.program():gsub("[^/]*$", "")))
    place:remove()
    assert.equal(0, code, err)
    return out
  end

  it("reads the GPU at the device's address, at most once a second", function()
    assert.equal("124.456 1755 61 79 nil nil\nnil\n124.456\n", looks([[
      local w <close> = watch(device)
      local s, line = w:look(100)
      print(s.power_w, s.clock_mhz, s.temperature_c, s.free_bytes >> 30, s.slow, line)
      print((w:look(100.9)))
      print(w:look(101).power_w)]], ""):gsub("\t", " "), nil)
  end)

  it("reports once that the GPU runs slower, and leaves out missing values", function()
    assert.equal("heat|the GPU runs slower (heat): 1755 MHz of 1980, 61 C\nheat|nil\n",
      looks([[
        local w <close> = watch(device)
        for now = 1, 3, 2 do
          local s, line = w:look(now)
          print(s.slow .. "|" .. tostring(line))
        end]], "slow=0x20"), nil)
    assert.equal("nil\tnil\tnil\n", looks([[
      local w <close> = watch(device)
      local s, line = w:look(1)
      print(s.power_w, s.slow, line)]], "quiet slow=0x20"))
  end)

  it("is absent without the library, or when no GPU has the address", function()
    assert.equal("nil\n", looks("print(watch(device))", "gpus=1"))
    assert.equal("nil\n", looks("print(watch(device))", "init=9"))
  end)

  it("reports nothing of a GPU that stopped answering", function()
    assert.equal("nil\n", looks([[
      local w <close> = watch(device)
      w.number = 7
      print((w:look(1)))]], ""))
  end)
end)
