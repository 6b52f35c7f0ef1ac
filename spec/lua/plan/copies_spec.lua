--- When inputs of blocks are copied to host memory and back: their order, their bytes, and who
-- waits on machines with a fast link and with a slow one.
-- Covers: lua/moonreel/plan/copies.lua
local compiled = require "moonreel.plan.compiled"
local machine = require "moonreel.plan.machine"
local mesh = require "moonreel.plan.mesh"
local plan = require "moonreel.plan"
local settings = require "moonreel.settings"

describe("copies of inputs of blocks", function()
  -- the plan of the bucket on an H200 whose link to the host has this rate
  local function row_of(rate, most)
    local s = settings.bake("recipes/opensora-2.0/train/stage1.lua", { "model.depth=2",
      "model.depth_single_blocks=2", "grad_checkpoint=true", "grad_ckpt_settings=none",
      "grad_ckpt_buffer_size=" .. (most or 4000000000),
      "bucket_config=recipe.replace{['256px']={[1]={1.0,8}}}" })
    local m = machine.open "H200"
    local host = setmetatable({ pcie = rate }, { __index = m.host })
    m = setmetatable({ host = host }, { __index = m })
    local c <close> = compiled.new(m)
    return plan.of(s, { mesh = mesh.new(m), compiled = c }).largest
  end

  -- bytes and blocks of a stream, in order
  local function stream(list, name)
    local bytes, blocks = 0, {}
    for _, one in ipairs(list) do
      if one.stream == name then
        bytes, blocks[#blocks + 1] = bytes + one.bytes, one.block
      end
    end
    return bytes, blocks
  end

  it("leave in the order of blocks, two for a double block, and return in reverse",
    function()
    local row = row_of(55e9)
    local out, there = stream(row.copies, "d2h")
    local back, here = stream(row.copies, "h2d")
    assert.same({ out, out }, { row_of(55e9, 1).above_buffer.needs, back })
    assert.same({ "double_blocks.0", "double_blocks.0", "double_blocks.1", "double_blocks.1",
      "single_blocks.0", "single_blocks.1" }, there)
    for i, block in ipairs(here) do
      assert.equal(there[#there + 1 - i], block)
    end
    local during = {}
    for i, one in ipairs(row.copies) do
      during[i] = one.during
    end
    assert.same({ "operations outside blocks", "double_blocks.0", "double_blocks.1",
      "double_blocks.1",
      "single_blocks.0", "single_blocks.1", "single_blocks.1", "single_blocks.1", "single_blocks.0",
      "double_blocks.1", "double_blocks.1", "double_blocks.0" }, during)
  end)

  it("delay no block on a fast link, and some blocks on a slow one",
    function()
    local row = row_of(55e9)
    assert.is_true(row.seconds.away < row.seconds.forward)
    assert.equal(0, row.copies_wait)
    local n = 0
    for _, one in ipairs(row.copies) do
      assert.equal(0, one.waits)
      assert.near(one.bytes / 55e9, one.ends - one.begins, 1e-9)
      n = n + 1
    end
    assert.equal(12, n)
    -- when nothing else takes time all of them are waited for, one after the other
    local slow = row_of(1e6)
    local bytes = stream(slow.copies, "d2h")
    assert.near(1, slow.copies_wait / (2 * bytes / 1e6), 0.02)
    local sum = 0
    for _, one in ipairs(slow.copies) do
      sum = sum + one.waits
    end
    assert.near(slow.copies_wait, sum, 1e-9)
  end)
end)
