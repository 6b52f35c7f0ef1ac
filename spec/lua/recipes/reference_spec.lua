--- The shipped recipes of the references: every leaf of the reference's own tables, and nothing unlisted besides.
-- Sources: spec/golden/recipes (hpcaitech/Open-Sora bde3c42 and 7ad6a96, LambdaLabsML fork).
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local settings = require "moonreel.settings"

-- reference recipe -> ours
local names_12 = {
  ["R adapt"] = "adapt", ["R stage1"] = "stage1", ["R stage2"] = "stage2", ["R stage3"] = "stage3", ["R stage1_feat"] = "stage1_feat",
  ["L stage1"] = "lambda/stage1", ["L stage2"] = "lambda/stage2", ["L stage3"] = "lambda/stage3", ["L stage4"] = "lambda/stage4",
  ["L stage5"] = "lambda/stage5", ["L stage6"] = "lambda/stage6", ["L demo_360p"] = "lambda/demo_360p", ["L demo_480p"] = "lambda/demo_480p",
}

-- leaves whose value is not the reference's, with the reason
local other_value = {
  ["opensora-1.2/stage1 vae.from_pretrained"] = "the reference's own folder", ["opensora-1.2/stage2 vae.from_pretrained"] = "the reference's own folder",
  ["opensora-1.2/stage3 vae.from_pretrained"] = "the reference's own folder",
}
-- leaves that only ours set, with the reason
local ours = { compat = "the reference's quirks are asked for by name" }

-- values of the reference's JSON: tuples and dictionaries with integer keys are tagged
local function plain(value)
  if value == json.null then return nil end
  if type(value) ~= "table" then return value end
  if value.__tuple__ then return plain(value.__tuple__) end
  local out = {}
  if value.__dict__ then
    for _, pair in ipairs(value.__dict__) do out[pair[1]] = plain(pair[2]) end
    return out
  end
  for key, item in pairs(value) do out[key] = plain(item) end
  return out
end

local function same(a, b)
  if type(a) == "number" and type(b) == "number" then return a == b end
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in pairs(a) do if not same(value, b[key]) then return false end end
  for key in pairs(b) do if a[key] == nil then return false end end
  return true
end

-- visit leaves of a reference recipe: records of ours are walked, everything else is one leaf
local function each_leaf(tree, visit, prefix, schema)
  local registry = require "moonreel.recipe.registry"
  for key, value in pairs(tree) do
    local path = prefix and prefix .. "." .. key or key
    local target = require("moonreel.recipe.override").target(path)
    assert.is_truthy(target, path .. " is no field of ours")
    if target.schema.tag == "record" and type(value) == "table" then
      each_leaf(value, visit, path, schema or registry)
    else
      visit(path, value, target)
    end
  end
end

-- integer keys are text in JSON
local function bucket_keys(value)
  local out = {}
  for resolution, entries in pairs(value) do
    out[resolution] = {}
    for frames, entry in pairs(entries) do out[resolution][math.tointeger(tonumber(frames))] = entry end
  end
  return out
end

local function compare(name, reference)
  local s = settings.bake(name)
  local seen = {}
  each_leaf(reference, function(path, value, target)
    local want = plain(value)
    if path == "bucket_config" then want = bucket_keys(want) end
    local canonical = table.concat(target.keys, ".")
    seen[canonical] = true
    local got = s:get(path)
    if target.schema.tag == "record" then
      -- a record written none: nothing below it is set
      for _, leaf in ipairs(s:leaves()) do
        if leaf.path:sub(1, #canonical + 1) == canonical .. "." then
          assert.is_true(leaf.value == nil or leaf.row.default == leaf.value, name .. " " .. leaf.path)
          seen[leaf.path] = true
        end
      end
    elseif other_value[name .. " " .. path] or (path:match("%.cache_dir$")) then
      assert.is_false(same(got, want), name .. " " .. path .. ": the exception is no longer one")
    else
      local kinds = require "moonreel.recipe.kinds"
      assert.is_true(same(got, want), ("%s %s: %s, the reference has %s"):format(name, path, kinds.show(got), kinds.show(want)))
    end
  end)
  -- what is set beyond the reference is listed
  for _, leaf in ipairs(s:leaves()) do
    local link = leaf.chain[#leaf.chain]
    local top = leaf.path:match("^[^.]+")
    if link and link.set and not seen[leaf.path] and not seen[top] then
      local default = leaf.row.default
      assert.is_true(ours[leaf.path] ~= nil or same(leaf.value, default), ("%s sets %s = %s at %s, which the reference does not"):format(
        name, leaf.path, tostring(leaf.value), link.at))
    end
  end
end

describe("recipes/opensora-1.2", function()
  local tables = json.decode(base.read_file("spec/golden/recipes/opensora-1.2.json"), "opensora-1.2.json").recipes
  for reference, name in pairs(names_12) do
    it(("%s has every leaf of %s"):format(name, reference), function() compare("opensora-1.2/" .. name, tables[reference]) end)
  end

  it("has a twin for every reference recipe", function()
    for reference in pairs(tables) do assert.is_truthy(names_12[reference], reference) end
  end)

  it("stage 7 is stage 6", function()
    assert.equal(settings.bake("opensora-1.2/lambda/stage6").hash, settings.bake("opensora-1.2/lambda/stage7").hash)
  end)

  it("renders as the sampling config says", function()
    local s = settings.bake "opensora-1.2/sample"
    assert.same({ 30, 7.0, "240p", "9:16", 51, 24.0, 24.0, 42, 6.5 }, { s.scheduler.num_sampling_steps, s.scheduler.cfg_scale, s.sampling.resolution,
      s.sampling.aspect_ratio, s.sampling.frames, s.sampling.fps, s.sampling.save_fps, s.seed, s.sampling.aes })
    assert.is_nil(s.sampling.flow)
  end)
end)

describe("recipes/opensora-2.0", function()
  local names = { ["diffusion/train/(.*)"] = "train/%1", ["diffusion/inference/(.*)"] = "inference/%1",
    ["vae/inference/hunyuanvideo_vae"] = "vae/hunyuan", ["vae/inference/video_dc_ae"] = "vae/dc_ae",
    ["vae/train/video_dc_ae_disc"] = "vae/train_dc_ae_disc", ["vae/train/video_dc_ae"] = "vae/train_dc_ae" }
  local configs = json.decode(base.read_file("spec/golden/recipes/opensora-2.0.json"), "opensora-2.0.json").configs
  for path, config in pairs(configs) do
    local stem, name = path:gsub("^configs/", ""):gsub("%.py$", ""), nil
    for pattern, ours_name in pairs(names) do
      if stem:match("^" .. pattern .. "$") then name = stem:gsub("^" .. pattern .. "$", ours_name) end
    end
    it(("%s has every leaf of %s"):format(name, stem), function() compare("opensora-2.0/" .. name, config.values) end)
  end
end)
