--- The meaning of --load and --ckpt-path.
-- Covers: lua/moonreel/ckpt/names.lua
local ckpt = require "moonreel.ckpt"
local run = require "moonreel.run"
local base = require "moonreel.core.base"

local meta = { recipe_hash = "r", dataset_fingerprint = "d", sampler = "", seed = 1, machine = {} }

local function damage(path)
  local f = assert(io.open(path .. "/r00000-of-00001.safetensors", "r+b"))
  f:seek("end", -3)
  f:write("\xAA")
  f:close()
end

describe("ckpt.resolve", function()
  local outputs, demo, other, again

  local function save(dir, steps)
    local saver <close> = ckpt.saver(dir, { keep = 100 })
    for _, step in ipairs(steps) do
      saver:save { step = step,
        tensors = { { name = "w", dtype = "i64", shape = { 1 }, ptr = string.pack("<i8", step) } },
        meta = meta }
      saver:wait(20)
    end
  end

  setup(function()
    outputs = os.tmpname()
    os.remove(outputs)
    demo = run.create(outputs, "demo")
    other = run.create(outputs, "other")
    again = run.create(outputs, "demo")
    run.create(outputs, "demo")  -- it has no checkpoint
    save(demo, { 10, 20 })
    save(other, { 7, 300 })
    save(again, { 5, 6 })
  end)

  teardown(function() os.execute("rm -rf '" .. outputs .. "'") end)

  local function fails(...)
    local ok, err = pcall(ckpt.resolve, ...)
    assert.is_false(ok)
    assert.equal("MR_E_USAGE", err.code)
    return err.message
  end

  local function loads(spec, want_path)
    local found = ckpt.resolve(spec, outputs)
    local c <close> = ckpt.load(found)
    assert.equal(want_path, c.path)
    return found
  end

  it("finds, for 'latest', the newest run of the recipe that has a checkpoint", function()
    local found = ckpt.resolve("latest", outputs, "demo")
    assert.equal(again, found.run)
    assert.equal(6, found.step)
    assert.is_true(found.continues)
  end)

  it("reports that there is no run for 'latest'", function()
    local found, reason = ckpt.resolve("latest", outputs, "nobody")
    assert.is_nil(found)
    assert.matches("no checkpoint of 'nobody' under .*: starting at step 0", reason)
    assert.is_nil((ckpt.resolve("latest", outputs .. "/nowhere", "demo")))
  end)

  it("finds a run by path, folder name or number, to continue in it", function()
    for _, spec in ipairs { demo, demo .. "/", "001-demo", "1", "001" } do
      assert.is_true(loads(spec, ckpt.dir(demo, 20)).continues)
    end
  end)

  it("finds RUN@STEP, to start a new run", function()
    local found = loads("1@10", ckpt.dir(demo, 10))
    assert.is_false(found.continues)
    assert.equal(demo, found.run)
    assert.is_false(loads(demo .. "@20", ckpt.dir(demo, 20)).continues)
    assert.matches("has no checkpoint of step 11; it has 20, 10", fails("1@11", outputs))
    assert.matches("no run '77'", fails("77@1", outputs))
  end)

  it("finds a checkpoint by path; the newest of a run continues in that run", function()
    assert.is_false(loads(ckpt.dir(demo, 10), ckpt.dir(demo, 10)).continues)
    assert.is_true(loads(ckpt.dir(demo, 20), ckpt.dir(demo, 20)).continues)
  end)

  it("accepts a weights file", function()
    local path = outputs .. "/model.safetensors"
    ckpt.write(path, { { name = "w", dtype = "u8", shape = { 1 }, ptr = "x" } })
    local found = loads(path, path)
    assert.is_false(found.continues)
    assert.is_nil(found.run)
  end)

  it("translates the reference's folder names and patterns to ours", function()
    loads(other .. "/epoch*-global_step*", ckpt.dir(other, 300))
    loads(other .. "/epoch1-global_step7", ckpt.dir(other, 7))
    loads(other .. "/epoch*-global_step7", ckpt.dir(other, 7))
    loads(outputs .. "/*-demo/epoch*-global_step*", ckpt.dir(again, 6))
    loads(demo .. "/ckpt/step-*1?", ckpt.dir(demo, 10))
    loads(outputs .. "/00[12]-*", ckpt.dir(other, 300))
    loads(outputs .. "/00[1-2]-*", ckpt.dir(other, 300))
    loads(outputs .. "/00[!3-9]-*", ckpt.dir(other, 300))
    loads(outputs .. "/00[^13-9]-*", ckpt.dir(other, 300))
    -- a set that does not end is no set
    for _, pattern in ipairs { "zz*", "[", "00[1-*", "00[]-*", "[]", "[!]", "[%]", "%*" } do
      assert.matches("no path matches this pattern", fails(outputs .. "/" .. pattern, outputs))
    end
  end)

  it("refuses what does not exist", function()
    assert.matches("no such run", fails("nowhere", outputs))
    assert.matches("no such run", fails(outputs .. "/nowhere", outputs))
    assert.matches("has no checkpoint yet", fails("004-demo", outputs))
    assert.matches("expected a run", fails("", outputs))
    base.make_dir(outputs .. "/002-twin/ckpt")
    assert.matches("more than one run has this number", fails("2", outputs))
    os.execute("rm -rf '" .. outputs .. "/002-twin'")
  end)

  it("skips a damaged newest checkpoint, but not one that was named", function()
    save(demo, { 30 })
    damage(ckpt.dir(demo, 30))
    local c <close>, notes = ckpt.load(ckpt.resolve("1", outputs))
    assert.equal(20, c.step)
    assert.equal(1, #notes)
    local ok, err = pcall(ckpt.load, ckpt.resolve("1@30", outputs))
    assert.is_false(ok)
    assert.equal("MR_E_FORMAT", err.code)
    local d <close>, more = ckpt.load(ckpt.resolve(demo .. "/ckpt/step-*", outputs))
    assert.equal(20, d.step)
    assert.equal(1, #more)
  end)
end)
