--- The hash of settings is equal over processes, orders, splits and spellings, and differs for each
-- value that counts.
local folder = require "spec.support.folder"
local kinds = require "moonreel.recipe.kinds"
local override = require "moonreel.recipe.override"
local settings = require "moonreel.settings"

describe("settings.hash", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  it("is the same for 4 and 4.0, and differs for values of other kinds or contents",
    function()
    local hash = require "moonreel.settings.hash"
    local function of(value)
      return hash.of { { path = "user.x", value = value, affects = "run" } }
    end
    assert.equal(of(4), of(4.0))
    assert.equal(of({ 1, { 2.0 } }), of({ 1.0, { 2 } }))
    local seen = {}
    for _, value in ipairs { 4, 4.5, "4", true, false, "true", "a", "b", { 4 }, { a = 4 }, { "4" },
        { 4, 4 }, { { 4 } }, {} } do
      assert.is_nil(seen[of(value)])
      seen[of(value)] = true
    end
  end)

  it("does not depend on key order, spelling, number form or split into parents", function()
    local want = dir:bake('return recipe { optim = { lr = 4, eps = 0.5 }, seed = 3, epochs = 1024, '
      .. 'bucket_config = { a = { [1] = { 1, 4 }, [2] = { 1, 5 } } } }').hash
    assert.equal(want, dir:bake('return recipe { epochs = 2^10, bucket_config = { a = { [2] = { '
      .. '1.0, 5.0 }, [1] = { 1.0, 4 } } }, seed = 3.0, lr = 4.0, adam_eps = 1/2 }').hash)
    dir:write("a.lua", "return recipe { lr = 4, seed = 9 }")
    dir:write("b.lua", "return recipe { bucket_config = { a = { [2] = { 1, 5 } } } }")
    assert.equal(want, dir:bake('return recipe.extend("./a", "./b") { optim = { eps = 0.5 }, seed '
      .. '= 3, epochs = 1, bucket_config = { a = { [1] = { 1, 4 } } } }',
      { "epochs=1024" }).hash)
    assert.equal(want,
      dir:bake("return recipe {}", { "lr=4", "--adam-eps=.5", "seed=3", "epochs=1_024",
      "bucket_config={'a': {1: (1, 4), 2: (1, 5)}}" }).hash)
    -- fields that set only speed or folders are left out
    assert.equal(want,
      dir:bake("return recipe {}", { "lr=4", "adam-eps=.5", "seed=3", "epochs=1024",
      "bucket_config={'a': {1: (1, 4), 2: (1, 5)}}",
      "threads=7", "outputs=elsewhere", "ckpt_every=3", "user.x=1", "name=other" }).hash)
  end)

  it("is equal in 20 processes", function()
    local path = dir:write("x.lua", 'return recipe { lr = 4, user = { a = 1, b = 2 }, mask_ratios '
      .. '= { random = 0.5, image_head = 0.25, image_tail = 0.25 } }')
    local want = settings.bake(path, nil, { child = false }).hash
    for _ = 1, 10 do
      -- each line is a process, which bakes in a child
      local out = folder.moonreel(
        ("-e 'return require(\"moonreel.settings\").bake(%q).hash'"):format(path))
      assert.equal(want .. "\n", out)
    end
  end)

  it("differs for each field that affects the run", function()
    local registry = require("moonreel.recipe.registry").get()
    local seen = { [dir:bake("return recipe {}").hash] = "nothing" }
    local count = 0
    local candidates = { "3", "5", "0.3125", "0.75", "false", "true", "STDiT3",
      "center", "uniform", "logit-normal", "sincos", "x", "2.5" }
    dir:bake("return recipe {}")
    local default = settings.bake(dir.path .. "/main.lua", nil, { child = false })
    local done = {}
    local function default_of(path)
      local ok, value = pcall(default.get, default, path)
      return ok and value or nil
    end
    for _, row in ipairs(registry.rows) do
      -- a path may have a row for each of several types
      local again = done[row.path]
      done[row.path] = true
      -- each valid choice gives settings of its own
      for _, value in ipairs(row.affects == "run" and not row.when and not again
          and candidates or {}) do
        local target = override.target(row.path)
        local read = target and override.value(target.schema, value)
        local scalar = target and target.schema.tag ~= "map" and target.schema.tag ~= "record"
        local fits = read ~= nil and scalar and kinds.check(target.schema, read) ~= nil
          and kinds.show(read) ~= kinds.show(default_of(row.path))
        local ok, s = false, nil
        if fits then
          ok, s = pcall(dir.bake, dir, "return recipe {}", { row.path .. "=" .. value })
        end
        if ok and s:get(row.path) ~= default:get(row.path) and type(s:get(row.path)) ~= "table" then
          assert.is_nil(seen[s.hash], row.path .. " = " .. value .. " hashes as "
            .. tostring(seen[s.hash]))
          seen[s.hash] = row.path .. " = " .. value
          count = count + 1
        end
      end
    end
    assert.is_true(count > 40)
  end)
end)
