--- Samples that are held back from training, and the loss of each checkpoint on them.
-- Covers: lua/moonreel/watch/loss.lua core/data/trained.c core/bind/source.c
local base = require "moonreel.core.base"
local core = require "moonreel.core.loader"
local data = require "moonreel.data"
local demo_data = dofile "spec/support/demo_data.lua"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local run = require "moonreel.run"

describe("dataset.hold_back", function()
  local dir = folder.new()
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  -- the rows of a subset
  local function rows(index, options)
    local set, list = core.hold(index.core, options), {}
    for i = 1, #index do
      list[#list + 1] = set:has(i) and i or nil
    end
    assert.equal(#list, set:count())
    return list
  end

  it("splits the samples by their keys, by a count or by a share", function()
    local index <close> = data.open(demo_data.path())
    for _, n in ipairs { 1, 7, 299 } do
      assert.equal(n, #rows(index, { hold_back = n, held = true }))
      assert.equal(300 - n, #rows(index, { hold_back = n }))
    end
    local held, trained = rows(index, { hold_back = 0.2, held = true }),
      rows(index, { hold_back = 0.2 })
    assert.is_true(#held > 30 and #held < 90, #held)
    local all = table.move(trained, 1, #trained, #held + 1, table.move(held, 1, #held, 1, {}))
    table.sort(all)
    for i = 1, 300 do
      assert.equal(i, all[i])
    end
    -- a larger share holds back the same samples and more, also within a subset
    local more = core.hold(index.core, { hold_back = 0.4, held = true })
    for _, row in ipairs(held) do
      assert.is_true(more:has(row))
    end
    assert.same(held, rows(index, { hold_back = 0.2, held = true, of = more }))
    fails("MR_E_DATA", "of 300 samples hold_back = 300 leaves none to train", core.hold, index.core,
      { hold_back = 300 })
    fails("MR_E_DATA", "hold_back = 1e%-09 holds back none", core.hold, index.core,
      { hold_back = 1e-9, held = true })
  end)

  it("is refused when it is neither a share nor a count", function()
    local _, err, code = folder.moonreel("train tiny/demo data_path=" .. demo_data.path()
      .. " dataset.hold_back=2.5 outputs=" .. dir.path)
    assert.equal(3, code)
    assert.matches("hold_back = 2.5; expected a share below 1, or a whole number", err)
  end)

  it("is never trained, and each checkpoint gets a loss on it", function()
    local words = ("train tiny/demo name=a outputs=%s dataset.data_path=%s "
      .. "model.depth=1 model.hidden_size=32 model.num_heads=2 text_encoder.width=32 "
      .. "model.caption_channels=32 'bucket_config={[\"32px\"]={[6]={1,10},[1]={1,10}}}' "
      .. "threads=1 num_workers=1 dataset.hold_back=40 "):format(
      dir.path, demo_data.path())
    local out, err, code = folder.moonreel(words .. "steps=20 ckpt_every=10")
    assert.equal(0, code, err)
    assert.matches("260 of 300 rows, without the samples held back", out)
    -- a resumed run holds back the same samples: the audit proves the order of all steps
    assert.equal(0, select(3, folder.moonreel(words .. "steps=60 --load latest ckpt_every=20")))
    out, err, code = folder.moonreel("order " .. dir.path .. "/001-a --audit")
    assert.equal(0, code, out .. err)

    out, err, code = folder.moonreel("watch " .. dir.path .. "/001-a --eval-loss --loss-only")
    assert.equal(0, code, err)
    assert.matches("^step 20  loss  [%d.]+ s  [^\n]*/step20/loss  eval_loss [%d.]+  "
      .. "eval_loss/32px_1 [%d.]+  eval_loss/32px_6 [%d.]+\n", out)
    local about = json.decode(base.read_file(dir.path .. "/001-a/samples/step60/loss/"
      .. "rendering.json"), "about")
    local samples = 0
    for _, bucket in ipairs(about.loss.buckets) do
      samples = samples + bucket.samples
      assert.equal(10, #bucket.losses)
    end
    -- the held-back samples are those that no epoch of 260 has
    assert.equal(40, samples)
    local report = {}
    for line in run.entries(dir.path .. "/001-a") do
      if line.kind == "samples" then
        report[#report + 1] = line.scalars.eval_loss
      end
    end
    assert.is_true(#report >= 3 and report[#report] < report[1])
    out = folder.moonreel("watch " .. dir.path .. "/001-a --eval-loss --loss-only")
    assert.equal("", out)
  end)
end)
