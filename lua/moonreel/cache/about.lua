--- The origin of a cache's values: the draws, the encoders' fields and a hash of their weights. If
-- all this is equal for two caches, they contain the same bits.
-- @module moonreel.cache.about
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local ckpt = require "moonreel.ckpt"
local families = require "moonreel.recipe.families"
local json = require "moonreel.core.json"
local kinds = require "moonreel.recipe.kinds"

local about = {}

about.FORMAT = "moonreel cache 1"

-- bytes of a tensor that are read at a time
local PIECE = 64 << 20

local function tensor_hash(file, name)
  local info = file:info(name)
  local words = { name, info.dtype, table.concat(info.shape, "x") }
  for at = 0, info.bytes - 1, PIECE do
    words[#words + 1] = base.hash128(file:read(name, at, math.min(PIECE, info.bytes - at)))
  end
  return table.concat(words, " ")
end

--- Computes the hash of an encoder: of its tensors by name, independent of the files that contain
-- them, its config.json and its tokenizer. Reads all of them.
---@param path string           a folder, or a file of weights
---@param more string[]|nil     names of files next to config.json that affect its results
---@return string
function about.model(path, more)
  local file <close> = ckpt.open(path)
  local names, words = file:names(), {}
  table.sort(names)
  for i, name in ipairs(names) do
    words[i] = tensor_hash(file, name)
  end
  for _, name in ipairs { "config.json", table.unpack(more or {}) } do
    local file_path = path .. "/" .. name
    if base.exists(file_path) then
      words[#words + 1] = name .. " " .. base.hash128(base.read_file(file_path))
    end
  end
  return base.hash128(table.concat(words, "\n"))
end

-- the fields of a record that affect its results, by path
local function fields_of(settings, record, into)
  for _, leaf in ipairs(settings:leaves()) do
    if leaf.keys[1] == record and leaf.row.affects == "run" and leaf.value ~= nil
        and leaf.path ~= record .. ".from_pretrained" then
      into[leaf.path] = kinds.show(leaf.raw)
    end
  end
end

local function model_of(settings, record)
  local path, type = settings[record].from_pretrained, settings[record].type
  return path and base.exists(path)
    and about.model(path, families.of(record, type):open "init".files) or nil
end

--- The origin of the values of one kind, by name; "model" is nil if the weights do not exist.
---@param settings table  baked
---@param kind string     "latents" or "text"
---@param dtype string    compute dtype of the encoders
---@param text table|nil  the text encoder: padding
---@return table<string, string>
function about.of(settings, kind, dtype, text)
  local record = kind == "latents" and "vae" or "text_encoder"
  local rows = { dtype = dtype, compat = settings.compat or "none",
    model = model_of(settings, record) }
  fields_of(settings, record, rows)
  -- positions after a caption take part in attention, and are stored
  if kind == "text" and text and text.padding == "attend" then
    rows.padding = text.padding
  end
  if kind == "text" and settings.clip.type then
    fields_of(settings, "clip", rows)
    rows["clip.model"] = model_of(settings, "clip")
  end
  if kind == "latents" then
    rows.seed = tostring(settings.seed)
    rows["dataset.frame_interval"] = tostring(settings.dataset.frame_interval)
    rows["dataset.fps_max"] = tostring(settings.dataset.fps_max or 0)
  end
  return rows
end

--- The first difference; nil: there is no difference. Missing weights are not compared.
---@param have table  result of about.of
---@param want table
---@return string|nil name
function about.difference(have, want)
  local names = {}
  for name in pairs(have) do
    names[#names + 1] = name
  end
  for name in pairs(want) do
    names[#names + 1] = have[name] == nil and name or nil
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local missing = (name == "model" or name == "clip.model")
      and (have[name] == nil or want[name] == nil)
    if not missing and have[name] ~= want[name] then
      return name
    end
  end
  return nil
end

--- Converts to the text that a store contains, and back.
---@param rows table  latents, text: results of about.of; epochs, part, parts, index
---@return string
function about.encode(rows)
  rows.format = about.FORMAT
  return json.encode(rows)
end

---@param text string|nil
---@param where string  name for errors
---@return table
function about.decode(text, where)
  local good, rows = pcall(json.decode, text or "", where)
  if not good or type(rows) ~= "table" or rows.format ~= about.FORMAT then
    base.raise("MR_E_FORMAT", (
      "%s is not a cache of features: its format is '%s'; expected '%s'; try: the folder that "
      .. "job=extract wrote"):format(
      where, good and type(rows) == "table" and tostring(rows.format) or "none", about.FORMAT))
  end
  return rows
end

--- Refuses to store results of encoders that run within the training step.
---@param s table  settings; save_text_features: texts are also stored
---@param pipe mr.Pipeline
function about.check(s, pipe)
  if not pipe.autoencoder.apart then
    blame.raise(s, "vae.type", "MR_E_RECIPE", "vae.type = %s runs within the training step, so no "
      .. "cache can store its latents", s.vae.type)
  elseif s.save_text_features and not pipe.text.apart then
    blame.raise(s, "text_encoder.type", "MR_E_RECIPE", "text_encoder.type = %s runs within the "
      .. "training step, so no cache can store its features; try: save_text_features = false",
      s.text_encoder.type)
  end
end

return about
