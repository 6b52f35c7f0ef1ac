--- The references' own recipes, resolved, against the shipped ones: every leaf, and nothing
-- unlisted besides.
-- @module spec.golden.runner.configs
local cases = require "spec.golden.runner.config_cases"
local json = require "moonreel.core.json"
local kinds = require "moonreel.recipe.kinds"
local override = require "moonreel.recipe.override"
local settings = require "moonreel.settings"

local configs = {}

-- leaves whose value is not the reference's, with the reason
local other_value = {
  ["opensora-1.2/stage1 vae.from_pretrained"] = "a folder of the reference's own machines",
  ["opensora-1.2/stage2 vae.from_pretrained"] = "a folder of the reference's own machines",
  ["opensora-1.2/stage3 vae.from_pretrained"] = "a folder of the reference's own machines",
}
for _, name in ipairs { "image", "stage1", "demo", "stage1_i2v", "stage2",
    "stage2_i2v", "high_compression" } do
  for _, path in ipairs { "t5.cache_dir", "clip.cache_dir" } do
    other_value["opensora-2.0/train/" .. name .. " " .. path] =
      "a folder of the reference's own machines, and nothing is downloaded"
  end
end

-- leaves that only ours set, with the reason
local ours = { compat = "the reference's quirks are asked for by name",
  job = "the reference has a script of its own for each",
  ["opensora-1.2/misc/extract epochs"] = "latents are drawn again in every epoch",
  ["batch_search.spread.240p.1"] = "the reference writes guess and spread as one pair; our buckets "
    .. "hold the guess" }

--- Name of our twin of a file of Open-Sora 2.0.
---@param path string  configs/diffusion/train/image.py
---@return string name, as settings.bake takes it
function configs.twin(path)
  return require("moonreel.recipe.twins").of(path,
    require("moonreel.recipe.files").shipped_names())[1]
end

-- lengths of buckets are text in JSON objects
local function bucket_keys(value)
  local out = {}
  for resolution, entries in pairs(value) do
    out[resolution] = {}
    for frames, entry in pairs(entries) do
      out[resolution][math.tointeger(tonumber(frames))] = entry
    end
  end
  return out
end

-- visit the leaves of a reference recipe; our records are walked, anything else is one leaf
local function each_leaf(tree, prefix, visit)
  for key, value in pairs(tree) do
    local path = prefix .. key
    local target = override.target(path)
    if target and target.schema.tag == "record" and type(value) == "table" then
      each_leaf(value, path .. ".", visit)
    else
      visit(path, value, target)
    end
  end
end

--- What differs between a reference recipe and ours.
---@param name string       our recipe
---@param reference table   decoded, nested
---@return string[] texts   empty when nothing does
---@return integer leaves   compared
function configs.differences(name, reference)
  local s = settings.bake(name)
  local leaves, seen, texts, count = s:leaves(), {}, {}, 0
  local function differ(form, ...) texts[#texts + 1] = name .. " " .. form:format(...) end
  each_leaf(reference, "", function(path, value, target)
    count = count + 1
    if not target then
      return differ("%s is no field of ours", path)
    end
    local canonical = table.concat(target.keys, ".")
    seen[canonical] = true
    if target.schema.tag == "record" then
      -- a record that the reference sets to none: nothing below it is set
      for _, leaf in ipairs(leaves) do
        if leaf.path:sub(1, #canonical + 1) == canonical .. "." then
          seen[leaf.path] = true
          if leaf.value ~= leaf.row.default then
            differ("%s = %s, the reference has no %s", leaf.path, kinds.show(leaf.raw), path)
          end
        end
      end
      return
    end
    local want = cases.plain(value)
    if path == "bucket_config" then
      want = bucket_keys(want)
    end
    local same = cases.same(s:get(path), want)
    local listed = other_value[name .. " " .. path]
    if listed and same then
      differ("%s: the exception is not needed any more: %s", path, listed)
    end
    if not listed and not same then
      differ("%s = %s, the reference has %s", path, kinds.show(s:get(path)), kinds.show(want))
    end
  end)
  for _, leaf in ipairs(leaves) do
    local link = leaf.chain[#leaf.chain]
    if link and link.set and not seen[leaf.path] and not seen[leaf.path:match("^[^.]+")]
        and not ours[leaf.path] and not ours[name .. " " .. leaf.path]
      and not cases.same(leaf.value, leaf.row.default) then
      differ("%s = %s at %s, which the reference does not set", leaf.path,
        kinds.show(leaf.raw), link.at)
    end
  end
  table.sort(texts)
  return texts, count
end

--- Check the text of configs_resolved.json.
function configs.run(text, result)
  for path, config in pairs(json.decode(text, "configs_resolved").configs) do
    local texts, count = configs.differences(configs.twin(path), config.values)
    result:exact(texts[1] or path, #texts)
    if count == 0 then
      result:exact(path .. ": no leaves", 1)
    end
  end
end

return configs
