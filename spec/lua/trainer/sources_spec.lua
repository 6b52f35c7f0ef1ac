--- A run of several sources: what it draws, where it resumes, what it refuses.
-- Covers: lua/moonreel/trainer/samples.lua lua/moonreel/data/place.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local data = require "moonreel.data"
local demo_data = dofile "spec/support/demo_data.lua"
local derive = require "moonreel.data.derive"
local json = require "moonreel.core.json"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

describe("a run of several sources", function()
  local out = demo_data.scratch()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  setup(function()
    local all <close> = data.open(demo_data.path())
    for name, keep in pairs { a = function(i) return i % 8 == 0 end,
      b = function(i) return i % 3 == 0 and i % 8 ~= 0 end } do
      derive.run { output = out .. "/" .. name .. ".mrx", from = { all }, made = "filter",
        choose = function(_, _, i) return keep(i), "elsewhere" end }
    end
  end)

  local A, B = "dataset.sources.a.data_path=" .. out .. "/a.mrx",
    "dataset.sources.b.data_path=" .. out .. "/b.mrx"

  local function train(name, steps, ...)
    local s = settings.bake("tiny/demo", { "dataset.data_path=none", "outputs=" .. out,
      "threads=1", "num_workers=1", "warmup_steps=2", "name=" .. name,
      "steps=" .. steps, "model.depth=1", "model.hidden_size=32",
      "model.num_heads=2", "text_encoder.width=32",
      "model.caption_channels=32", ... })
    local lines = {}
    local ok, result = pcall(trainer.run, s, { write = function(line)
      lines[#lines + 1] = line
    end })
    return ok, result, table.concat(lines, "\n")
  end

  -- samples of each source in the steps of a run
  local function drawn(dir)
    local of = {}
    for line in base.read_file(dir .. "/journal.jsonl"):gmatch("[^\n]+") do
      for name, n in pairs(json.decode(line).sources or {}) do
        of[name] = (of[name] or 0) + n
      end
    end
    return of
  end

  it("draws by the weights, and is the same run after a restart", function()
    local words = { A, B, "dataset.sources.a.weight=3", "ckpt_every=7" }
    local ok, problem, log = train("whole", 14, table.unpack(words))
    assert.is_true(ok, tostring(problem))
    local whole = demo_data.run_dir(out, "whole")
    local of = drawn(whole)
    -- within a batch
    assert.is_true(math.abs(of.a - 0.75 * (of.a + of.b)) <= 32, of.a .. " " .. of.b)
    assert.matches("source a: " .. of.a .. " samples since the run began, epoch %d+ of 37 rows",
      log)
    ok, problem = train("parts", 14, "load=" .. whole .. "@7", table.unpack(words))
    assert.is_true(ok, tostring(problem))
    local parts = demo_data.run_dir(out, "parts")
    local x <close> = ckpt.open(ckpt.dir(whole, 14))
    local y <close> = ckpt.open(ckpt.dir(parts, 14))
    assert.equal(x.manifest.sampler, y.manifest.sampler)
    assert.matches("^moonreel blend 1\nsamples %d+\nshare a %d+ %-?%d+\nshare b ",
      x.manifest.sampler)
    for _, name in ipairs(x:names()) do
      assert.equal(0, x:compare(y, name).differing, name)
    end
  end)

  it("ends near its expected step, with the epochs of each source counted", function()
    local ok, problem, log = train("ends", 0, A, B, "dataset.sources.a.weight=2", "epochs=1",
      "log_every=1")
    assert.is_true(ok, tostring(problem))
    local total, done = tonumber(log:match "step 1/(%d+)"), tonumber(log:match "done: step (%d+)")
    assert.is_true(math.abs(total - done) <= 0.1 * done, total .. " " .. done)
  end)

  it("accepts new sources, and drops others when data_change says so", function()
    assert(train("alone", 3, "dataset.data_path=" .. out .. "/b.mrx"))
    local alone = demo_data.run_dir(out, "alone")
    -- one index continues as a source of the same samples; the other one begins
    local ok, problem, log = train("alone", 4, "load=latest", A, B)
    assert.is_true(ok, tostring(problem))
    assert.matches("source a: is new, and begins with its first epoch", log)
    local c <close> = ckpt.newest(alone)
    assert.matches("share a %d+ .*\nsource b\n.*\ntaken %d", c.manifest.sampler)
    -- without data_change
    ok, problem = train("alone", 5, "load=latest", A)
    assert.is_false(ok)
    assert.equal("MR_E_DATA", problem.code)
    assert.matches("dataset.sources.a.data_path=.*: source 'b' of the checkpoint, which was in "
      .. "epoch 0, is no longer a source .*data_change = \"carry\"", problem.message)
    ok, problem = train("alone", 5, "load=latest", A, "data_change=carry")
    assert.is_true(ok, tostring(problem))
  end)

  it("continues each source by its own data_change when its samples differ", function()
    assert(train("swap", 3, A, B))
    local other = "dataset.sources.b.data_path=" .. demo_data.path()
    local ok, problem = train("swap", 4, "load=latest", A, other)
    assert.is_false(ok)
    assert.matches("dataset.sources.b.data_path=.*: %S+ holds other samples than the data of the "
      .. "checkpoint: %d+ are in both", problem.message)
    local log
    ok, problem, log = train("swap", 4, "load=latest", A, other,
      "dataset.sources.b.data_change=carry")
    assert.is_true(ok, tostring(problem))
    assert.matches("source b: the data set changed: %d+ samples that epoch 0 has already trained "
      .. "are left out", log)
    ok, problem, log = train("swap", 5, "load=latest", A, B, "dataset.sources.b.data_change=next")
    assert.is_true(ok, tostring(problem))
    assert.matches("source b: the data begin again with epoch 1", log)
  end)

  it("names the source that is wrong", function()
    for word, pattern in pairs {
      ["dataset.sources.b.data_path=" .. out .. "/none.mrx"] =
        "dataset.sources.b.data_path=%S+: .*none.mrx",
      ["data_path=" .. out .. "/a.mrx"] = "dataset.data_path is .*expected only one of the two "
        .. "fields" } do
      local ok, problem = train("wrong", 2, A, B, word)
      assert.is_false(ok, word)
      assert.matches(pattern, problem.message)
    end
  end)
end)
