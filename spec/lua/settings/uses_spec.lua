--- Every field of the registry, set on the command line of a training of STDiT3, of MMDiT and of an
-- autoencoder, of an extraction and of a rendering, is read there or refused.
-- Covers: lua/moonreel/settings/uses.lua lua/moonreel/recipe/when.lua
local demo_data = dofile "spec/support/demo_data.lua"
local job = require "moonreel.job"
local marker = require "moonreel.recipe.marker"
local kinds = require "moonreel.recipe.kinds"
local override = require "moonreel.recipe.override"
local readlog = require "spec.support.readlog"
local settings = require "moonreel.settings"
local small_mmdit_run = require "spec.support.small_mmdit_run"
local trainer = require "moonreel.trainer"
local uses = require "moonreel.settings.uses"

local AUTOENCODER = [[return recipe {
  resolutions = { small = { pixels = 256, aspects = { { 1.0, 16, 16 } } } },
  bucket_config = { small = { [1] = { 0.5, 3 }, [5] = { 0.7, 2 } } },
  model = { type = "OpenSoraVAE_V1_2", trains = "pictures",
    vae_2d = { block_out_channels = { 8, 8 }, layers_per_block = 1, norm_num_groups = 2 },
    vae_temporal = { filters = 8, num_res_blocks = 1, channel_multipliers = { 1, 1 },
      temporal_downsample = { true, false }, num_groups = 2, latent_channels = 3 } },
  optim = { lr = 1e-3 }, dtype = "fp32", num_workers = 1, threads = 1, steps = 2 }]]

-- patterns of fields that such a run reads without the log's knowledge, with the reason
local elsewhere = {
  ["watch%..*"] = "of who watches ranks (spec/lua/life/hang_spec.lua)",
  ["plugin.*"] = "of several ranks", nproc_per_node = "the command's", hostfile = "the command's",
  outputs = "where runs lie, of which an extraction makes none", env = "the command's",
  job = "the command's", ["scheduler.type"] = "one built type",
  ["weights%..*"] = "of runs of 100 updates (spec/lua/trainer/weights_spec.lua)",
  ["spike.loss_sigmas"] = "of losses that are known (spec/lua/trainer/spikes_spec.lua)",
  ["vae_loss_config%..*_loss_weight"] = "copied whole into a model's table",
  ["model%..*"] = "none, of a record that is copied whole",
  ["vae%.vae_.*"] = "none, of a record that is copied whole",
  ["optim%.muon%.parameters"] = "none, of a record that is copied whole",
}

local function is_elsewhere(path)
  for pattern in pairs(elsewhere) do
    if path:match("^" .. pattern .. "$") then
      return true
    end
  end
  return false
end

-- the text of another value
local function other(schema, value)
  value = value ~= marker.none and value or nil
  if schema.choices then
    return schema.choices[1] ~= value and schema.choices[1] or schema.choices[2]
  elseif schema.tag == "integer" or schema.tag == "number" then
    local high = (value or schema.min or 0) + 1
    local n = high <= (schema.max or high) and high or (schema.min or 0) + schema.max / 2
    return schema.tag == "number" and kinds.number_text(n) or tostring(math.tointeger(n // 1))
  elseif schema.tag == "boolean" then
    return tostring(not value)
  elseif schema.tag == "list" then
    local item = schema.element.tag == "text" and '"x"' or schema.element.tag == "integer" and "3"
      or schema.element.tag == "number" and "0.5" or "[2.5, 80, 32]"
    return "[" .. item .. (", " .. item):rep((schema.count or 1) - 1) .. "]"
  elseif schema.tag == "map" then
    local inner, key = schema.value, schema.keys and next(schema.keys)
      or schema.key == "integer" and "7" or "x"
    local values = { number = "0.5", integer = "3", text = '"y"', free = "7", bucket = "(0.5, 2)" }
    local text = values[inner.tag] or inner.tag == "map" and other(inner)
    return text and ("{%q: %s}"):format(key, text)
  end
  return schema.tag == "bucket" and "(0.5, 2)" or "x"
end

describe("fields on the command line", function()
  local dir, words, demo = nil, nil, nil
  setup(function()
    dir, words = small_mmdit_run.new()
    dir:write("demo.lua", 'return recipe.extend("tiny/demo") {}')
    dir:write("vae.lua", AUTOENCODER)
    demo = { "data_path=" .. demo_data.path(), "outputs=" .. dir.path .. "/runs", "steps=2",
      "bucket_config={'32px': {1: (1.0, 3), 6: (1.0, 2)}}", "model.depth=1" }
  end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  local function with(list, ...)
    list = table.move(list, 1, #list, 1, {})
    return table.move({ ... }, 1, select("#", ...), #list + 1, list)
  end

  -- is a value refused?
  local function refused(recipe, list, text, refuse)
    local good, problem = pcall(function()
      refuse({ override.parse(text) },
        settings.bake(dir.path .. "/" .. recipe, with(list, text), { child = false }))
    end)
    return not good, tostring(problem)
  end

  local function in_training(arguments, s) uses.refuse(arguments, "train", { { settings = s } }) end

  -- the same for settings in which a leaf comes from an argument, without a bake
  local function refused_leaf(s, leaf, refuse)
    local given = setmetatable({}, { __index = function(_, key)
      return key == "leaves" and function()
        local link = { at = "x", command_line = true }
        return { { path = leaf.path, row = leaf.row, value = true, chain = { link } } }
      end or type(s[key]) == "function" and function(_, ...) return s[key](s, ...) end or s[key]
    end })
    return not pcall(refuse, { { key = leaf.path, argument = "x" } }, given)
  end

  -- fields that a run neither reads nor refuses
  local function escaped(recipe, list, refuse, run)
    local bake = settings.bake
    local baked = bake(dir.path .. "/" .. recipe, list, { child = false })
    local watched, log = readlog.watch(baked)
    settings.bake = function() return watched end
    local good, problem = pcall(run, watched)
    settings.bake = bake
    assert.is_true(good, tostring(problem))
    local out, count = {}, 0
    for _, leaf in ipairs(baked:leaves()) do
      local row, text = leaf.row, other(leaf.schema, leaf.raw)
      if row.reader and row.reader ~= "user" and not row.no_meaning and text
          and log[leaf.path] == nil and not is_elsewhere(leaf.path) and leaf.path ~= "stages" then
        count = count + 1
        local bad = refused_leaf(baked, leaf, refuse)
          or row.when and refused(recipe, list, leaf.path .. "=" .. text, refuse)
        if not bad then
          out[#out + 1] = leaf.path
        end
      end
    end
    table.sort(out)
    return table.concat(out, " "), count
  end

  local quiet = { write = function() end }
  local function train(s) assert.equal(0, (trainer.run(s, quiet))) end

  it("are read by a training of STDiT3 or refused", function()
    local out, count = escaped("demo.lua", demo, in_training, train)
    assert.equal("", out)
    assert.is_true(count > 60, count)
  end)

  it("are read by a training of MMDiT or refused", function()
    assert.equal("", (escaped("mmdit.lua", with(words, "steps=2"), in_training, train)))
  end)

  it("are read by a training of an autoencoder or refused", function()
    assert.equal("", (escaped("vae.lua", { words[1], words[4] }, in_training, train)))
  end)

  it("are read by an extraction or refused", function()
    assert.equal("", (escaped("mmdit.lua", with(words, "job=extract"), in_training,
      function(s) assert.equal(0, (job.run(s, quiet))) end)))
    local bad, message = refused("mmdit.lua", with(words, "job=extract"), "steps=3", in_training)
    assert.is_true(bad)
    assert.is_truthy(message:find("steps=3: steps has no meaning for job = extract", 1, true),
      message)
  end)

  it("are read by a rendering or refused", function()
    local s = settings.bake(dir.path .. "/demo.lua", demo, { child = false })
    local taken = {}
    for _, leaf in ipairs(s:leaves()) do
      local text = other(leaf.schema, leaf.raw)
      if leaf.row.reader and leaf.row.reader ~= "cli" and not leaf.row.no_meaning and text
          and not refused_leaf(s, leaf, uses.refuse_in_rendering) then
        taken[leaf.path:match "^[%w_]+"] = true
      end
    end
    local names = {}
    for name in pairs(taken) do
      names[#names + 1] = name
    end
    table.sort(names)
    -- what a rendering reads; of the demo, one field of each record
    assert.equal("ae_spatial_compression batch_size ckpt_path clip compat device dtype img_flux "
      .. "img_flux_ae load model name outputs plugin_config plugin_config_ae resolutions sampling "
      .. "scheduler strict text_encoder threads user vae", table.concat(names, " "))
    local bad, message = refused("demo.lua", demo, "seed=3", uses.refuse_in_rendering)
    assert.is_true(bad)
    assert.is_truthy(message:find("seed=3: seed is read by training, but not by a rendering; "
      .. "try: --seed N", 1, true), message)
  end)

  it("that nothing reads are refused, and the error names what would read them", function()
    for text, want in pairs { ["wandb_project=x"] = "is read only when wandb is true",
        ["cache=x"] = "is read only when cached is true or load_video_features is true or",
        ["ae_spatial_compression=8"] = "is read for resolutions whose sizes are computed",
        ["vae_loss_config.kl_loss_weight=1"] = "is read only when model.type is an autoencoder",
        ["restarts=2"] = "is read by the launcher of several ranks",
        ["strict=true"] = "is read only when ckpt_path is set",
        ["sampling={height=32}"] = "sampling.height is read by `moonreel sample`" } do
      local bad, message = refused("demo.lua", demo, text, in_training)
      assert.is_true(bad, text)
      assert.is_truthy(message:find(text .. ": ", 1, true) and message:find(want, 1, true), message)
    end
    -- they are accepted when something reads them
    for _, text in ipairs { "wandb_project=x wandb=true", "cache=x cached=true",
        "restarts=2 nproc_per_node=2", "strict=true ckpt_path=x", "cached=false", "cache=none",
        "ae_spatial_compression=8 bucket_config.64px={1: (1.0, 2)}" } do
      local field, more = text:match "^(%S+) ?(.*)$"
      local list = more ~= "" and with(demo, more) or demo
      local bad, message = refused("demo.lua", list, field, in_training)
      assert.is_false(bad, message)
    end
  end)

  it("cause one note when they stand in a recipe, and no error after an earlier launch", function()
    local s = dir:bake('return recipe.extend("tiny/demo") { wandb_project = "x", cache = "y" }')
    assert.equal(2, #s.notes)
    assert.matches("main.lua:1: cache is read only when", s.notes[1])
    assert.matches("main.lua:1: wandb_project is read only when wandb is true", s.notes[2])
    local one = override.parse "wandb_project=x"
    one.taken = true
    s = settings.bake(dir.path .. "/demo.lua", { one, override.parse "wandb=false" },
      { child = false })
    assert.matches("^wandb_project=x: wandb_project is read only when", s.notes[1])
  end)
end)
