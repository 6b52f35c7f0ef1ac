--- Checkpoints of a run on another host. Covers: lua/moonreel/watch/pull.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local cluster = require "spec.support.cluster"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"

describe("moonreel watch --pull", function()
  local dir = cluster.new ""
  setup(function()
    demo_data.moonreel("train", "tiny/demo", "name=a", "outputs=" .. dir.path .. "/far",
      "dataset.data_path=" .. demo_data.path(), "steps=8", "ckpt_every=4", "threads=1",
      "num_workers=1", "model.depth=1", "model.hidden_size=32", "model.num_heads=2",
      "text_encoder.width=32", "model.caption_channels=32", 'bucket_config={["32px"]={[6]={1,2}}}')
  end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)
  local FAR <const> = dir.path .. "/far/001-a"
  local function watch(words)
    return folder.moonreel("watch " .. words .. " --prompt a --seed 1 --steps 2",
      ("cd '%s' && MOONREEL_RSH='%s/rsh'"):format(dir.path, dir.path))
  end

  it("copies weights and averages, verifies them and renders them", function()
    local out, err, code = watch("--pull me@far:" .. FAR)
    assert.equal(0, code, err)
    assert.matches("^step 4  recipe  [%d.]+ s  pulled/001%-a/samples/step4/recipe\nstep 8  ", out)
    local here <close> = ckpt.open(ckpt.dir(dir.path .. "/pulled/001-a", 8))
    local there <close> = ckpt.open(ckpt.dir(FAR, 8))
    here:verify()
    local kinds = {}
    for _, name in ipairs(here:names()) do
      kinds[require("moonreel.ckpt.names").kind(name)] = true
      assert.equal(0, there:compare(here, name).differing, name)
    end
    assert.same({ weights = true, ema = true }, kinds)
    assert.is_true(here.bytes < there.bytes / 2)
    assert.is_false(base.exists(FAR .. "/samples/step4"))
    -- a second call copies and renders nothing
    out, err, code = watch("--pull far:" .. FAR)
    assert.same({ "", 0 }, { out, code }, err)
  end)

  it("leaves no partial copy and reports the cause of a failure", function()
    local _, err, code = watch("--pull far:" .. FAR .. " far/001-a")
    assert.equal(2, code)
    assert.matches("is the folder of another run; expected a folder for copies", err)
    assert.equal(2, select(3, watch "--pull nowhere"))
    local why, six
    _, why, six = watch "--pull down-x:run"
    assert.equal(6, six)
    assert.matches("No route to host", why)
    _, why = watch "--pull far:nowhere"
    assert.matches("'nowhere' is not a run directory", why)
    assert.is_false(base.exists(dir.path .. "/pulled/nowhere"))
  end)
end)
