--- Parses a prompt: a text per loop, references and scores as JSON. Ref: opensora-1.2.md 3.2.
-- @module moonreel.caption.prompt
local base = require "moonreel.core.base"
local clean = require "moonreel.caption.clean"
local json = require "moonreel.core.json"
local unicode = require "moonreel.caption.unicode"

local prompt = {}

local function refuse(text, ...)
  base.raise("MR_E_USAGE", ("prompt '%s': %s"):format(base.printable(text:sub(1, 80)),
    string.format(...)))
end

local KEYS = { reference_path = true, mask_strategy = true }

--- Splits the JSON from a prompt: A bird{"reference_path": "a.png", "mask_strategy": "0"}.
---@param text string
---@return string words
---@return table fields  reference_path, mask_strategy: texts, if the prompt contains them
function prompt.extract(text)
  local at = text:find("{", 1, true)
  if not at then
    return text, {}
  end
  if text:find("{", at + 1, true) then
    refuse(text, "it contains more than one {; expected one JSON object at its end")
  end
  local good, fields = pcall(json.decode, text:sub(at), "the JSON of a prompt")
  if not good or type(fields) ~= "table" or json.is_array(fields) and next(fields) then
    refuse(text, "its {...} is not a JSON object: %s", tostring(not good and fields.message
      or "list"))
  end
  for key, value in pairs(fields) do
    if not KEYS[key] then
      refuse(text, "unknown key '%s' in its JSON; expected reference_path or mask_strategy", key)
    end
    if type(value) ~= "string" then
      refuse(text, "%s in its JSON is not a text", key)
    end
  end
  return text:sub(1, at - 1), fields
end

-- |0| a |2| b: loops and unchanged texts; nil: one text for all loops
local function segments(text)
  if text:sub(1, 3) ~= "|0|" then
    return nil
  end
  local parts, loops, texts = {}, {}, {}
  for part in (text:sub(2) .. "|"):gmatch("([^|]*)|") do
    parts[#parts + 1] = part
  end
  for i = 1, #parts, 2 do
    local loop = math.tointeger(tonumber((parts[i]:match("^%s*(%d+)%s*$"))))
    if not loop or not parts[i + 1] then
      refuse(text, "segment %d: expected |LOOP|TEXT, got '%s'", #loops + 1, parts[i])
    end
    if loops[1] and loop < loops[#loops] then
      refuse(text, "segment %d begins at loop %d, but the one before begins at %d", #loops + 1,
        loop,
        loops[#loops])
    end
    loops[#loops + 1], texts[#texts + 1] = loop, parts[i + 1]
  end
  return texts, loops
end

local function strip(text) return unicode.text(unicode.strip(unicode.codes(text))) end

--- The texts of a prompt, one per segment.
---@param text string
---@return string[] texts
---@return integer[]|nil loops  first loop of each text; nil: one text for all loops
function prompt.split(text)
  local texts, loops = segments(text)
  if not texts then
    return { text }
  end
  for i, one in ipairs(texts) do
    texts[i] = strip(one)
  end
  return texts, loops
end

--- Joins texts and loops to a prompt.
---@param texts string[]
---@param loops integer[]|nil
---@return string
function prompt.merge(texts, loops)
  if not loops then
    return texts[1]
  end
  local parts = {}
  for i, text in ipairs(texts) do
    parts[i] = ("|%d|%s"):format(loops[i], text)
  end
  return table.concat(parts)
end

--- The unchanged text of a prompt in a loop: that of the last segment that has begun.
---@param text string
---@param loop integer  from 0
---@return string
function prompt.at(text, loop)
  local texts, loops = segments(text)
  local found = text
  for i, from in ipairs(loops or {}) do
    if from <= loop then
      found = texts[i]
    end
  end
  return found
end

-- a label, and the text that is appended if the label is missing
local labels = {
  { "aes", "aesthetic score:", " aesthetic score: %.1f." },
  { "flow", "motion score:", " motion score: %.1f." },
  { "camera_motion", "camera motion:", " camera motion: %s." },
}

--- Appends scores to a text, except those whose label it contains.
---@param text string
---@param scores table  aes, flow: numbers; camera_motion: text
---@return string
function prompt.score(text, scores)
  local out = text
  for _, row in ipairs(labels) do
    local value = scores[row[1]]
    if value ~= nil and not text:find(row[2], 1, true) then
      out = out .. row[3]:format(value)
    end
  end
  return out
end

--- Prepares a prompt for text encoders, loop by loop: without JSON, with scores after every
-- segment, cleaned.
---@param text string
---@param how table|nil  aes, flow, camera_motion; clean = false: only lower case
---@return string prompt  for prompt.at
---@return table fields   as from prompt.extract
function prompt.prepare(text, how)
  how = how or {}
  local words, fields = prompt.extract(text)
  local texts, loops = prompt.split(words)
  for i, one in ipairs(texts) do
    one = prompt.score(one, how)
    texts[i] = how.clean == false and clean.plain(one) or clean.caption(one)
  end
  return prompt.merge(texts, loops), fields
end

--- The paths of references: a.png;b.mp4.
---@param text string|nil
---@return string[]
function prompt.references(text)
  local paths = {}
  if not text or text == "" then
    return paths
  end
  for path in (text .. ";"):gmatch("([^;]*);") do
    path = strip(path)
    paths[#paths + 1] = path
    if path == "" then
      base.raise("MR_E_USAGE", ("reference_path '%s': reference %d has no path; expected "
        .. "FILE;FILE"):format(text, #paths - 1))
    elseif path:find("^%a[%w+.-]*://") then
      base.raise("MR_E_USAGE", ("reference_path: reference %d, %s, is a URL; nothing is ever "
        .. "downloaded; try: the path of a file"):format(#paths - 1, path))
    elseif not base.exists(path) then
      base.raise("MR_E_DATA", ("reference_path: reference %d, %s: there is no such file"):format(
        #paths - 1,
        path))
    end
  end
  return paths
end

return prompt
