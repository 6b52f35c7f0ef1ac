--- The memory of a text encoder that streams is that of one block for any depth, and it reads the
-- bytes of each block once per batch, as the kernel counts them.
-- Covers: lua/moonreel/embed/residency.lua lua/moonreel/embed/source.lua
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local sizes = require "moonreel.models.t5.sizes"
local weights = require "datasets.demo.weights"

-- a process that opens an encoder and takes two batches: its peak, read bytes, and own count
local CODE = [[
  local base, bench = require "moonreel.core.base", require "moonreel.core.bench"
  local function read() return tonumber(base.read_file("/proc/self/io"):match "rchar: (%%d+)") end
  local before = bench.max_resident()
  local t5 = require("moonreel.embed").open(%q, { residency = %q, dtype = %q })
  local counted, at = t5:bytes_read(), read()
  t5:tokens { "a red circle", "a blue square moving up on a black background" }
  t5:tokens { "a red circle" }
  print(bench.max_resident() - before, t5:bytes_read() - counted, read() - at)]]

-- sanitizers keep freed memory, so their peaks prove nothing
local peaks_count = not process.program():find("/asan/", 1, true)

describe("the memory of a T5 encoder", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  it("is that of a block when it streams, and each block is read once per batch", function()
    local path = dir.path .. "/t5-v1_1-base"
    weights.hole(path)
    local s = sizes.of_name(path)
    local all = 2 * sizes:elements(s)  -- 84.9 M weights in bf16
    local function take(residency)
      local done = process.run({ process.program(), "-e", CODE:format(path, residency,
        require("moonreel.core.exec").device():compute "bf16") }, "", { deadline_s = 600 })
      assert.equal(0, done.exit, done.output)
      local peak, counted, read = done.output:match "(%d+)%s+(%d+)%s+(%d+)"
      return tonumber(peak), tonumber(counted), tonumber(read)
    end
    local peak, counted, read = take "stream"
    assert.is_true(peak < all / 2 or not peaks_count, tostring(peak))
    -- twice the blocks and a few words
    assert.is_true(counted > 2 * all * 0.999 and counted < 2 * all + 100 * 2 * s.d_model, counted)
    assert.is_true(math.abs(read - counted) < 1 << 20, read)
    local of_all, few = take "all"
    -- the start of the program may have needed more memory than it keeps
    assert.is_true(of_all > all * 3 / 4, of_all)
    assert.is_true(few < 100 * 2 * s.d_model, few)
  end)
end)
