--- moonreel.core.base: reads regular files as a whole, and returns free memory.
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local bench = require "moonreel.core.bench"
local process = require "moonreel.core.process"

describe("base.read_file", function()
  it("refuses pipes, devices and folders at once", function()
    local path = os.tmpname()
    os.remove(path)
    assert(os.execute("mkfifo " .. path))
    for _, name in ipairs { path, "/dev/zero", "/tmp" } do
      local ok, err = pcall(base.read_file, name)
      assert.is_false(ok)
      assert.matches("is not a regular file", tostring(err))
    end
    os.remove(path)
  end)
end)

describe("base.trim", function()
  it("returns unused memory, also below used memory", function()
    if process.program():find("/asan/", 1, true) then
      return pending("sanitizers keep what is freed")
    end
    local function fill()
      local all = {}
      -- too small for a mapping of their own
      for i = 1, 800 do
        all[i] = T.new("f32", { 16 << 10 })
        all[i]:fill_torch_normal(i, 0)
      end
      return all[800], bench.resident()
    end
    local last, full = fill()
    base.trim()
    assert.is_true(bench.resident() < full - 40e6, full - bench.resident())
    assert.is_true(last[1] ~= 0)
  end)
end)

describe("base.link", function()
  it("gives a file a second name, or reports an error", function()
    local folder = require "spec.support.folder"
    local dir = folder.new()
    local path = dir:write("a", "text")
    assert.is_true(base.link(path, dir.path .. "/b"))
    os.remove(path)
    assert.equal("text", base.read_file(dir.path .. "/b"))
    assert.is_false(base.link(path, dir.path .. "/c"))
    assert.is_false(base.link(dir.path .. "/b", dir.path .. "/b"))
    dir:remove()
  end)
end)
