--- Several pipelines in sequence: one is in memory at a time, and its renderings are the first
-- frames of those of the next.
-- Covers: lua/moonreel/sample/chain.lua lua/moonreel/sample/request.lua
-- lua/moonreel/sample/conditions.lua
local chain = require "moonreel.sample.chain"
local demo_data = dofile "spec/support/demo_data.lua"
local fails = require "spec.support.fails"
local sample = require "moonreel.sample"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

describe("pipelines in sequence", function()
  local out, specs = demo_data.scratch(), {}
  local open = sample.open
  after_each(function() sample.open = open end)
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  setup(function()
    for i, name in ipairs { "picture", "clip" } do
      assert.equal(0, trainer.run(settings.bake("tiny/demo", { "dataset.data_path="
        .. demo_data.path(), "outputs=" .. out, "threads=1", "num_workers=1", "steps=2",
        "model.depth=1", "model.hidden_size=32", "model.num_heads=2", "name=" .. name,
        "seed=" .. i }), { write = function() end }))
      specs[i] = demo_data.run_dir(out, name)
    end
  end)

  local function given(frames, seeds, more)
    local o = { prompts = { "a red circle" }, seeds = seeds, frames = frames, height = 32,
      width = 32, steps = 2, guidance = 1 }
    for name, value in pairs(more or {}) do
      o[name] = value
    end
    return o
  end

  -- the mean difference between two strings of bytes
  local function off(a, b)
    local sum = 0
    for i = 1, #a do
      sum = sum + math.abs(a:byte(i) - b:byte(i))
    end
    return sum / #a
  end

  it("pass each rendering on as a first frame, and are closed before the next opens", function()
    local list = {}
    -- a pipeline that continues from the renderings of the one before
    local function pipeline(spec, asked)
      return { open = function() return sample.open(spec, { threads = 1 }) end,
        ask = function(clips)
          asked.after = clips
          return asked
        end }
    end
    local function works(sampler)
      return (pcall(sampler.exec.param, sampler.exec, "w", "final_layer.linear.bias"))
    end
    function sample.open(...)
      -- the pipeline before is closed
      assert.is_false(list[1] ~= nil and works(list[1]))
      list[#list + 1] = open(...)
      assert.is_true(works(list[#list]))
      return list[#list]
    end
    local first
    do
      local one <close> = open(specs[1], { threads = 1 })
      first = one:render(given(1, { 1, 2 }))
    end
    local clips = chain.render { pipeline(specs[1], given(1, { 1, 2 })),
      pipeline(specs[2], given(4, { 3, 4 })) }
    assert.equal(2, #list)
    assert.is_true(off(first[1].pixels, first[2].pixels) > 20)
    for i, clip in ipairs(clips) do
      local frame = 3 * 32 * 32
      assert.equal(4 * frame, #clip.pixels)
      -- the decoded picture is encoded again, after its values were clamped
      local kept = off(first[i].pixels, clip.pixels:sub(1, frame))
      assert.is_true(kept < 10, kept)
      assert.is_true(off(first[i].pixels, clip.pixels:sub(frame + 1, 2 * frame)) > 20)
    end
  end)

  it("scale a passed frame, put it where a condition says, and need one for each clip", function()
    local one <close> = open(specs[2], { threads = 1 })
    local small = one:render(given(1, { 1 }, { height = 16, width = 16 }))
    local plain = one:render(given(4, { 3 }))[1].pixels
    local last = one:render(given(4, { 3 }, { after = small,
      strategies = { "0,0,0,3" } }))[1].pixels
    local frame = 3 * 32 * 32
    assert.is_true(off(plain:sub(3 * frame + 1), last:sub(3 * frame + 1)) > 20)
    fails("MR_E_USAGE", "after = 1 clips, but there are 2 renderings; expected one for each",
      one.render, one, given(4, { 3, 4 }, { after = small }))
  end)
end)
