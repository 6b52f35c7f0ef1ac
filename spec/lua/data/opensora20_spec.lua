--- Frame rate and motion score in captions of Open-Sora 2.0. The reference values come from make
-- golden (data_rules).
-- Covers: lua/moonreel/data/opensora20.lua
local data = require "moonreel.data"
local demo_data = require "spec.support.demo_data"
local opensora20 = require "moonreel.data.opensora20"

describe("captions of 2.0", function()
  teardown(demo_data.remove)

  it("end with rate and motion score; the reference adds a full stop to all of them",
    function()
    local row = { fps = 24.0, score_vmafmotion = 3.5 }
    assert.equal(" 24 FPS, 4 motion score.", opensora20.suffix(row, 30, true))
    assert.equal(" 24.0 FPS, 4 motion score.", opensora20.suffix(row, 30, true, true))
    assert.equal(" 12 FPS.", opensora20.suffix(row, 16, false, true))
    assert.equal(" 23.976 FPS.", opensora20.suffix({ fps = 23.976 }, 24, true))
    assert.equal(" 4 motion score.", opensora20.suffix(row, nil, true))
    assert.equal("", opensora20.suffix({ fps = 0 }, 24, true))
    assert.equal("", opensora20.suffix(row, nil, false))
  end)

  local function of(dataset, compat)
    local rows = { { fps = 8.0, columns = {} }, { fps = 0, columns = { score_vmafmotion = 2 } } }
    local index = { row = function(_, i) return rows[i] end }
    return opensora20.teller({ dataset = dataset, compat = compat }, { false, index })
  end

  it("are extended for samples of an index as the recipe asks", function()
    local tell = of({ type = "video_text", fps_max = 24, vmaf = true })
    assert.same({ " 8 FPS.", " 2 motion score." }, { tell(2, 0), tell(2, 1) })
    tell = of({ type = "video_text", fps_max = 24, vmaf = false }, "opensora-2.0")
    assert.same({ " 8.0 FPS.", "" }, { tell(2, 0), tell(2, 1) })
    assert.is_nil(of { type = "video_text", fps_max = 0, vmaf = false })
    assert.is_nil(of { type = "VariableVideoTextDataset", fps_max = 24, vmaf = true })
  end)

  it("are part of the batches of a loader", function()
    local index <close> = data.open(demo_data.path())
    local loader <close> = data.loader { index = index, epochs = 1, threads = 1,
      resolutions = { ["32px"] = { pixels = 1024, aspects = { { 1.0, 32, 32 } } } },
      bucket_config = { ["32px"] = { [6] = { 1.0, 8 } } },
      says = function(source, id) return (" %d:%d"):format(source, id) end }
    local batch = loader:next()
    for i = 1, batch.n do
      assert.equal(index:row(batch.ids[i] + 1).text .. " 1:" .. batch.ids[i], batch.captions[i])
    end
    assert.equal(" 1:7", loader:said(1, 7))
    loader:release(batch)
  end)
end)
