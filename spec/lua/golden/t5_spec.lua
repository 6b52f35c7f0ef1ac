--- Golden files about T5 encoders: each encoder is built and compared at all positions. The encoder
-- itself makes the files here, so they must pass, and fail when a number is changed.
-- Covers: spec/golden/runner/t5.lua
local T = require "moonreel.core.tensor"
local ckpt = require "moonreel.ckpt"
local embed = require "moonreel.embed"
local folder = require "spec.support.folder"
local golden = require "spec.golden.runner"
local network = require "moonreel.models.t5.network"
local weights = require "datasets.demo.weights"

describe("golden files about T5", function()
  local dir, encoder
  setup(function()
    dir = folder.new()
    weights.t5(dir.path .. "/t5", 1)
    encoder = embed.open(dir.path .. "/t5", { max_length = 20, padding = "attend" })
  end)
  teardown(function()
    encoder:close()
    dir:remove()
  end)

  local function row(name, t)
    local ptr, bytes = t:ptr()
    return { name = name, dtype = t.dtype, shape = t.shape, ptr = ptr, bytes = bytes, keep = t }
  end

  -- the result for the file; `change` may edit its rows
  local function judge(stem, rows, meta, change)
    for _, r in ipairs((weights.t5_tensors(weights.t5_config, "f32", 1))) do
      r.name = "weight." .. r.name
      rows[#rows + 1] = r
    end
    if change then
      change(rows)
    end
    local own = dir.path .. "/" .. stem
    require("moonreel.core.base").make_dir(own)
    ckpt.write(("%s/%s.safetensors"):format(own, stem), rows, meta)
    local lines = {}
    golden.run(own, function(line) lines[#lines + 1] = line end)
    return lines[1]
  end

  local function ids(from)
    local list = {}
    for i = 1, 20 do
      list[i] = (from * i * i + 7) % 320
    end
    return list
  end

  local function oracle()
    local a, b = ids(3), ids(11)
    local both, ones = table.move(b, 1, 20, 21, table.move(a, 1, 20, 1, {})), {}
    for i = 1, 40 do
      ones[i] = 1
    end
    local y = encoder:encode { a, b }
    return { row("in.ids", T.from({ 2, 20 }, both, "i32")),
      row("in.mask", T.from({ 2, 20 }, ones, "i32")), row("out.masked", y),
      row("out.unmasked", y) }
  end

  it("pass with their own numbers, and fail with others", function()
    assert.matches("^PASS t5_own ", judge("t5_own", oracle(), {}))
    local rows = oracle()
    assert.matches("^FAIL t5_off .*out%.unmasked", judge("t5_off", rows, {}, function()
      rows[4] = row("out.unmasked", rows[4].keep * 1.001)
    end))
  end)

  it("may have weights under param, ids without a mask and a table of buckets", function()
    local list, bucket = {}, network.bucket(32, 128)
    for query = 0, 149 do
      for key = 0, 149 do
        list[#list + 1] = bucket(key - query)
      end
    end
    local function verdict(stem, factor, first)
      local made = oracle()
      list[1] = first
      local rows = { row("input_ids", made[1].keep),
        row("last_hidden_state", made[4].keep * factor),
        row("relative_buckets", T.from({ 150, 150 }, list, "i64")) }
      return judge(stem, rows, {}, function(all)
        for i = 4, #all do
          all[i].name = all[i].name:gsub("^weight", "param")
        end
      end)
    end
    assert.matches("^PASS t5_param ", verdict("t5_param", 1, 0))
    assert.matches("^FAIL t5_param2 .*last_hidden_state", verdict("t5_param2", 1.001, 0))
    assert.matches("^FAIL t5_param3 .*buckets", verdict("t5_param3", 1, 1))
  end)

  it("may have masks with holes", function()
    local rows = oracle()
    local holes = rows[2].keep:totable()
    holes[5], holes[31], holes[40] = 0, 0, 0
    assert.matches("^FAIL t5_hole .*out%.masked", judge("t5_hole", rows, {}, function()
      rows[2] = row("in.mask", T.from({ 2, 20 }, holes, "i32"))
    end))
  end)

  it("may have tables of buckets", function()
    local rel, buckets, bucket = {}, {}, network.bucket(32, 128)
    for i = -150, 150 do
      rel[#rel + 1], buckets[#buckets + 1] = i, bucket(i)
    end
    local function rows_of(list)
      return { row("relbucket.rel", T.from({ #rel }, rel, "i64")),
        row("relbucket.bucket", T.from({ #rel }, list, "i64")) }
    end
    local meta = { relative_buckets = "32", max_distance = "128" }
    assert.matches("^PASS t5_buckets ", judge("t5_buckets", rows_of(buckets), meta))
    buckets[9] = buckets[9] + 1
    assert.matches("^FAIL t5_wrong .*buckets", judge("t5_wrong", rows_of(buckets), meta))
  end)
end)
