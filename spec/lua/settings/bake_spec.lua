--- From a recipe to settings: the object, its text forms and its hash.
-- Covers: lua/moonreel/settings/frozen.lua lua/moonreel/settings/init.lua
-- lua/moonreel/settings/store.lua lua/moonreel/settings/restore.lua
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local settings = require "moonreel.settings"
local unread = require "spec.support.unread"

local body = [[return recipe {
  lr = 1e-3, epochs = 4, seed = 7, name = "try", warmup_steps = recipe.none,
  model = { type = "STDiT3", depth = 2, patch_size = { 1, 1, 1 } },
  bucket_config = { ["256"] = { [1] = { 1.0, 4 }, [51] = { { 0.5, 0.33 }, 2 }, [102] = { 0.0, recipe.none } } },
  mask_ratios = { random = 0.25 },
  user = { note = { text = "ä\n", deep = { 1, 2.5 } } },
  resolutions = { tiny = { pixels = 4, aspects = { { 1.0, 2, 2 } } } },
  load = recipe.previous,
}]]

describe("settings", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  it("are read by nested field, by path and by spelling; a value of none is nil", function()
    local s = dir:bake(body)
    assert.equal(1e-3, s.optim.lr)
    assert.equal(1e-3, s:get("lr"))
    assert.equal(2, s.model.depth)
    assert.equal(16, s.model.num_heads)
    assert.is_nil(s.warmup_steps)
    assert.equal(0.33, s.bucket_config["256"][51][1][2])
    assert.equal(3, #s:get("model.patch_size"))
    assert.same({ 1, 1, 1 }, s:get("model.patch_size"))
    assert.equal("recipe.previous", s.load)
  end)

  it("cannot be changed, at any depth", function()
    local s = dir:bake(body)
    for _, f in ipairs { function()
      s.seed = 1
    end, function() s.optim.lr = 1 end, function() s.model.patch_size[1] = 2 end,
      function() s.bucket_config["256"][1][2] = 9 end, function() s.bucket_config.new = {} end } do
      local ok, fault = pcall(f)
      assert.is_false(ok)
      assert.matches("settings cannot be changed", tostring(fault))
    end
    -- callers may change the copies that they get
    s:get("model.patch_size")[1] = 5
    assert.equal(1, s.model.patch_size[1])
  end)

  it("refuse unknown names, with the nearest known one", function()
    local s = dir:bake(body)
    local ok, fault = pcall(function() return s.optim.lrr end)
    assert.is_false(ok)
    assert.matches("settings have no field 'optim%.lrr', did you mean 'lr'%?", fault)
  end)

  it("are iterated in order", function()
    local keys = {}
    for key in pairs(dir:bake(body).bucket_config["256"]) do
      keys[#keys + 1] = key
    end
    assert.same({ 1, 51, 102 }, keys)
  end)

  it("have the line of every value", function()
    local s = dir:bake(body, { "seed=8" })
    assert.matches("main%.lua:2$", s:origin("lr"))
    assert.matches("main%.lua:4$", s:origin("bucket_config.256.51"))
    assert.equal("seed=8", s:origin("seed"))
    assert.equal("default", s:origin("log_every"))
    assert.equal("default of STDiT3", s:origin("model.num_heads"))
  end)

  it("are read from settings.json with values, places and hash", function()
    local s = dir:bake(body, { "seed=8" })
    local back = settings.from_json(s:to_json(), "settings.json")
    assert.equal(s.hash, back.hash)
    assert.same(s:plain(), back:plain())
    assert.equal("seed=8", back:origin("seed"))
    assert.equal(s:to_json(), back:to_json())
    assert.equal(s:to_recipe(), back:to_recipe())
  end)

  it("are read from the flattened recipe with the same hash and values", function()
    local s = dir:bake(body, { "seed=8", "optim.betas=[0.5, 0.6]" })
    local flat = dir:write("flat.lua", s:to_recipe())
    local back = settings.bake(flat, {}, { child = false })
    assert.equal(s.hash, back.hash)
    assert.same(s:plain(), back:plain())
  end)

  it("refuse a settings.json that was changed by hand, cut off, or is another file", function()
    local text = dir:bake(body):to_json()
    local ok, problem = pcall(settings.from_json, (text:gsub('"epochs": 4', '"epochs": 5')),
      "s.json")
    assert.is_false(ok)
    assert.equal(3, problem.exit)
    assert.matches("s%.json: the values do not match their checksum: the file was changed",
      problem.message)
    ok, problem = pcall(settings.from_json, (text:gsub('"epochs": 4', '"epochs": "four"')),
      "s.json")
    assert.is_false(ok)
    assert.matches("s%.json: epochs: expected integer", problem.message)
    ok, problem = pcall(settings.from_json, (text:gsub('"epochs"', '"epocs"')), "s.json")
    assert.is_false(ok)
    assert.matches("s%.json: epocs is not a field of this version", problem.message)
    ok, problem = pcall(settings.from_json, text:sub(1, 300), "s.json")
    assert.is_false(ok)
    assert.equal("MR_E_DATA", problem.code)
    ok, problem = pcall(settings.from_json, "{}", "s.json")
    assert.is_false(ok)
    assert.matches("s%.json: expected an object with hash and settings", problem.message)
    ok, problem = pcall(settings.load, dir.path .. "/settings.json")
    assert.is_false(ok)
    assert.matches("settings%.json: there is no such file", problem.message)
  end)

  it("are read by a version with more, fewer and other fields", function()
    local fields = function()
      return { { "lr", "number", default = 1 }, { "seed", "integer", default = 3 },
        { "model.type", "text", default = "a", choices = { "a" } } }
    end
    local function reads(rows, text)
      return require("moonreel.recipe.registry").with(rows, settings.from_json, text, "old.json")
    end
    local text = require("moonreel.recipe.registry").with(fields(), function()
      return dir:bake('return recipe { lr = 2 }'):to_json()
    end)
    local hash = reads(fields(), text).hash
    -- more fields
    local more = fields()
    more[#more + 1] = { "gain", "number", default = 0.5 }
    more[#more + 1] = { "model.width", "integer", none = true }
    local s = reads(more, text)
    assert.same({ 2.0, 3, 0.5, "a" }, { s.lr, s.seed, s.gain, s.model.type })
    assert.is_nil(s.model.width)
    assert.equal("default", s:origin("gain"))
    assert.equal(hash, s.hash)
    -- another effect, another kind
    local other = fields()
    other[2].affects, other[2][2] = "nothing", "number"
    assert.equal(hash, reads(other, text).hash)
    -- fewer fields: one that was not set is left out
    assert.equal(2.0, reads({ fields()[1], fields()[3] }, text).lr)
    assert.equal(2.0, reads({ fields()[1], fields()[2] }, text).lr)
    local ok, problem = pcall(reads, { fields()[2], fields()[3] }, text)
    assert.is_false(ok)
    assert.equal("old.json: lr is not a field of this version", problem.message)
    -- edits are still detected
    for _, edit in ipairs { { '"lr": 2.0', '"lr": 3.0' }, { '"seed": 3\n', '"seed": 4\n' },
        { '"hash": "%x%x', '"hash": "00' } } do
      local edited, n = text:gsub(edit[1], edit[2])
      assert.equal(1, n, edit[1] .. text)
      ok, problem = pcall(reads, more, edited)
      assert.is_false(ok)
      assert.matches("old.json: .* the file was changed by hand", problem.message)
    end
    -- a file of a version without a sum
    assert.equal(hash, reads(more, (text:gsub('"sum": "%x*",', ""))).hash)
  end)

  it("are read from a file of an earlier version, with the hash of that version", function()
    -- this file is never written again: changes of the registry must not make it unreadable
    local text = base.read_file("spec/lua/settings/fixtures/stored.json")
    local s = settings.from_json(text, "stored.json")
    assert.equal("10c7f2f9a45f13f65a51d9681a7fe7b4", s.hash)
    assert.equal(1e-3, s.optim.lr)
    assert.equal(4, s.bucket_config["32px"][6][2])
    assert.equal("STDiT3", s.model.type)
  end)

  it("warn of inherited fields that nothing reads or that have no meaning here", function()
    local s = dir:bake(
      "return recipe {\n  min_lr = 1e-5,\n  model = { enable_flash_attn = true } }")
    assert.equal(2, #s.notes)
    assert.matches('min_lr is read only when lr_schedule is "1cycle", and it is "constant"',
      s.notes[1])
    assert.matches("main%.lua:3: model%.enable_flash_attn has no meaning here: attention is always "
      .. "tiled", s.notes[2])
    assert.equal(0, #dir:bake(
      'return recipe { lr_schedule = "1cycle", min_lr = 1, max_lr = 2 }').notes)
  end)
end)

describe("env", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  it("does not change variables of the environment, and why reports it", function()
    local recipe = dir:write("main.lua", 'return recipe { env = { NCCL_DEBUG = "WARN", NCCL_ALGO = '
      .. '"Ring", NCCL_PROTO = "LL" } }')
    local function why(name)
      local output, errors, code = folder.moonreel(("why '%s' env.%s --json"):format(recipe, name),
        "NCCL_DEBUG=INFO NCCL_ALGO=Ring")
      assert.equal(0, code, errors)
      return require("moonreel.core.json").decode(output, "why")
    end
    local rows = why "NCCL_DEBUG"
    assert.same({ '"WARN"', '"INFO"' }, { rows[#rows - 1].value, rows[#rows].value })
    assert.equal("variable NCCL_DEBUG of the environment", rows[#rows].set_by)
    local shown = folder.moonreel(("show '%s' --json"):format(recipe), "NCCL_DEBUG=INFO")
    shown = require("moonreel.core.json").decode(shown, "show")
    assert.equal("INFO", shown.settings.env.NCCL_DEBUG)
    for _, name in ipairs { "NCCL_ALGO", "NCCL_PROTO" } do
      rows = why(name)
      assert.matches("main.lua:1$", rows[#rows].set_by)
    end
  end)

  it("accepts no variables that make libraries load code", function()
    local code, fault = dir:fault('return recipe { env = { LD_PRELOAD = "x.so" } }')
    assert.equal(3, code)
    assert.matches("main.lua:1: env.LD_PRELOAD is not known; expected one of .*NCCL_IB_HCA", fault)
    code, fault = dir:fault("return recipe {}", { "env.NCCL_IB_HCAS=mlx5" })
    assert.equal(2, code)
    assert.matches("env.NCCL_IB_HCAS is not known, did you mean 'NCCL_IB_HCA'%?; expected one of "
      .. ".*NCCL_ALGO", fault)
  end)
end)

describe("settings:require_readers", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  it("names fields that nothing reads yet, with their lines", function()
    local s = dir:bake(
      'return recipe {\n  batch_size = 3,\n  model = { class_dropout_prob = 0.5 } }')
    unread("batch_size", function()
      unread("model.class_dropout_prob", function()
        local ok, problem = pcall(s.require_readers, s)
        assert.is_false(ok)
        assert.equal(3, problem.exit)
        assert.matches("main%.lua:2: batch_size = 3: this version has no reader for batch_size",
          problem.message)
        assert.matches("main%.lua:3: model%.class_dropout_prob = 0%.5: this version has no reader "
          .. "for model%.class_dropout_prob", problem.message)
      end)
    end)
  end)

  it("accepts fields that have a reader, and fields that are off", function()
    local s = dir:bake('return recipe { model = { drop_path = 0 }, vae = { type = "dct" }, '
      .. 'text_encoder = { type = "bytes" } }')
    s:require_readers()
    settings.bake("tiny/demo"):require_readers()
  end)
end)
