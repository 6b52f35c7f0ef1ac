--- Baking refuses lengths for which all times would be 0.
local folder = require "spec.support.folder"

describe("settings.lengths", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  local RECIPE = [[
return recipe.extend("opensora-1.2/stage1") {
  bucket_config = recipe.replace { ["360p"] = { [1] = { 1.0, 4 },
    [%s] = { %s, 4 } } },
  sampling = { frames = %d },
  scheduler = { %s },
  %s
}
]]
  local function fault(length, share, frames, scheduler, more)
    return dir:fault(RECIPE:format(length, share, frames, scheduler or "", more or ""))
  end

  it("refuse a bucket with its line, and list the lengths that work", function()
    local code, text = fault(16, 1.0, 17)
    assert.equal(3, code)
    assert.matches('^main%.lua:3: bucket_config%.360p%.16: compat = "opensora%-1%.2" with scheduler'
      .. "%.use_timestep_transform counts 16 frames as 0 latent frames, so all times would be 0 "
      .. "and renderings black; expected 1 frame, or at least 17; try: compat = none", text)
    assert.matches("^main%.lua:3: bucket_config%.360p%.2: ",
      select(2, fault(2, "{ 0.5, 0.1 }", 17)))
  end)

  it("refuse a length of renderings, and report who set it", function()
    local code, text = fault(17, 1.0, 5)
    assert.equal(3, code)
    assert.matches("^main%.lua:4: sampling%.frames: .* counts 5 frames as 0", text)
    code, text = dir:fault('return recipe.extend("opensora-1.2/stage1") {}',
      { "sampling.frames=8" })
    assert.equal(2, code)
    assert.matches("^sampling%.frames=8: sampling%.frames: ", text)
  end)

  it("refuse a ratio of 0, which makes the times of all lengths 0", function()
    assert.matches("^main%.lua:5: scheduler%.shift = 0: all times of training and "
      .. "rendering would be 0",
      select(2, fault(17, 1.0, 17, "shift = 0")))
    assert.matches("^main%.lua:5: scheduler%.transform_scale = 0: all times of training and "
      .. "rendering would be 0",
      select(2, fault(17, 1.0, 17, "transform_scale = 0")))
  end)

  it("accept 1 and 17 frames, empty buckets, and runs without the transform",
    function()
      assert.is_nil((fault(17, 1.0, 1)))
      assert.is_nil((fault(16, 0.0, 17)))
      assert.is_nil((fault(16, "{ 0.5, 0.0 }", 17)))
      assert.is_nil((fault(16, 1.0, 5, "use_timestep_transform = false")))
      assert.is_nil((fault(16, 1.0, 5, "shift = 2")))
      assert.is_nil((fault(16, 1.0, 5, "", "compat = recipe.none")))
      assert.is_nil((fault(16, 1.0, 17, "", 'job = "extract"')))
    end)
end)
