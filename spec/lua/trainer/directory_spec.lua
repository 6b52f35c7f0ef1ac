--- The files of a run's directory, and of a run that cannot start.
local base = require "moonreel.core.base"
local demo_data = require "spec.support.demo_data"
local process = require "moonreel.core.process"
local run = require "moonreel.run"
local settings = require "moonreel.settings"
local small_run = require "spec.support.small_run"

local runs = small_run.new()
local bake, train, entries = runs.bake, small_run.train, small_run.entries

describe("trainer.directory", function()
  teardown(function() runs:remove() end)

  it("has the recipe, settings, journal and a last checkpoint of a run", function()
    local s = bake("steps=6", "name=plain")
    local ok, code, lines, dir = train(s)
    assert.is_true(ok, tostring(code))
    assert.equal(0, code)
    assert.equal(s.hash, settings.bake(dir .. "/recipe.lua").hash)
    assert.equal(s.hash, settings.load(dir .. "/settings.json").hash)
    assert.same({6}, require("moonreel.ckpt").steps(dir))
    local steps = entries(dir, "step")
    assert.equal(6, #steps)
    for i, e in ipairs(steps) do
      assert.equal(i, e.step)
      for _, field in ipairs{"loss", "grad_norm", "lr", "t", "data_wait_s", "bytes", "time_s"} do
        assert.is_true(type(e[field]) == "number", field)
      end
      assert.matches("^%x+$", e.keys)
    end
    assert.equal(6, entries(dir, "end")[1].step)
    local start = entries(dir, "start")[1]
    assert.equal(6, start.total)
    local index <close> = require("moonreel.data").open(demo_data.path())
    assert.equal(index.meta.fp_order, start.dataset)
    assert.same({}, entries(dir, "error"))
    assert.matches("^bucket 32px 6x32x32: batch 8, 250 samples, peak [%d.]+ MiB, about [%d.]+ ms a "
      .. "step$", lines[2])
  end)

  it("refuses a second trainer on the same run directory", function()
    local inner
    local ok, code = train(bake("steps=2", "name=twice"), function(r)
      inner = table.pack(pcall(run.lock, r.dir))
    end)
    assert.is_true(ok, tostring(code))
    assert.is_false(inner[1])
    assert.equal("MR_E_LOCK", inner[2].code)
  end)

  it("refuses a working directory that the journal cannot name", function()
    local here = runs.out .. "/h\xff"
    base.make_dir(here)
    local done = process.run({ "/bin/sh", "-c", 'cd "$1" && exec "$0" train tiny/demo '
      .. 'data_path="$2" steps=1 2>&1', process.program(), here,
        demo_data.path() }, "", { deadline_s = 60 })
    assert.equal(2, done.exit)
    assert.matches("the working directory '%S+/h\\xff' is not UTF%-8", done.output)
    assert.same({}, base.list_dir(here))
  end)

  it("leaves no directory when the run cannot start, nor the folders made for it", function()
    local outer = runs.out .. "/no"
    local function fails(change)
      local ok, err = train(bake("steps=2", "outputs=" .. outer .. "/runs", change))
      assert.is_false(ok)
      assert.is_true(err.exit >= 2)
    end
    for _, change in ipairs{"dataset.data_path=" .. runs.out .. "/none.mrx", "model.num_heads=3",
        "resolutions.32px.pixels=99999", "ckpt_path=" .. runs.out .. "/none"} do
      fails(change)
      assert.is_false(base.exists(outer), change)
    end
    -- folders that were there stay
    base.make_dir(outer .. "/runs")
    fails "model.num_heads=3"
    assert.same({}, base.list_dir(outer .. "/runs"))
  end)
end)
