--- Kinds of JSON reference files about texts: {pattern over the stem, or over the text as `head`,
-- function(text, check, folder)}.
-- @module spec.golden.runner.texts
local json = require "moonreel.core.json"
local clean = require "moonreel.caption.clean"
local core = require "moonreel.core.token"
local names = require "moonreel.sample.names"
local opensora_vae = require "moonreel.models.opensora_vae"
local prompt = require "moonreel.caption.prompt"
local strategy = require "moonreel.diffusion.strategy"
local token = require "moonreel.token"

local function same(a, b) return table.concat(a, " ") == table.concat(b, " ") end

-- the text of a case; one that is no UTF-8 stands as hexadecimal bytes
local function text_of(case)
  return case.text or (case.hex:gsub("..", function(x) return string.char(tonumber(x, 16)) end))
end

-- ids and normal forms that a tokenizer model gives
local function tokenizer(text, result, folder)
  local file = json.decode(text)
  local pieces <close> = core.open(folder .. "/" .. file.model)
  local ids, normal = 0, 0
  for _, case in ipairs(file.cases) do
    local said = text_of(case)
    if not same(pieces:encode(said), case.ids) then
      ids = ids + 1
    end
    if case.norm and pieces:normal(said) ~= case.norm then
      normal = normal + 1
    end
  end
  result:exact("ids", ids)
  result:exact("normal forms", normal)
end

-- ids that byte pairs give, with start, end and cut
local function byte_pairs(text, result, folder)
  local file, ids = json.decode(text), 0
  local tok = token.open(folder .. "/" .. file.vocab, { max_length = file.max_length, compat = true,
    say = function() end })
  for _, case in ipairs(file.cases) do
    ids = ids + (same(tok:ids(text_of(case)), case.ids) and 0 or 1)
  end
  result:exact("ids", ids)
end

-- null and nil are one, whole numbers are whole or not
local function plain(value)
  if value == json.null then
    return "none"
  elseif type(value) ~= "table" then
    return math.type(value) and ("%.17g"):format(value) or tostring(value)
  end
  local parts = {}
  for i = 1, #value do
    parts[i] = plain(value[i])
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function given(value) return value ~= json.null and value or nil end

local function resolution(name)
  local all = require "moonreel.recipe.resolutions"
  return all[name]
end

-- lists of the file: what a case, its fields, gives; its last field is what the reference gives
local lists = {
  text_preprocessing = function(text) return clean.caption(text) end,
  parse_mask_strategy = function(text)
    local out = {}
    for i, g in ipairs(strategy.parse(text)) do
      out[i] = { g.loop, g.reference, g.from, g.to, g.length, g.edit }
    end
    return out
  end,
  split_prompt = function(text)
    local texts, loops = prompt.split(text)
    return { texts, loops or json.null }
  end,
  merge_prompt = function(text) return prompt.merge(prompt.split(text)) end,
  extract_prompts_loop = function(text, loop) return prompt.at(text, loop) end,
  extract_json_from_prompts = function(text)
    local words, fields = prompt.extract(text)
    return { words, fields.reference_path or "", fields.mask_strategy or "" }
  end,
  append_score = function(text, aes, flow, camera_motion)
    return prompt.score(text, { aes = given(aes), flow = given(flow),
      camera_motion = given(camera_motion) })
  end,
  find_nearest_point = function(place, step, frames) return strategy.snap(place, step, frames) end,
  get_num_frames = function(text) return names.frames(text) end,
  get_image_size = function(name, aspect) return { names.size(resolution(name), aspect) } end,
  dframe_to_frame = function(latent)
    return opensora_vae.new(nil, { micro_frame_size = 17 }):head(latent)
  end,
  save_path = function(how)
    local folder, name, index, text, as_path, many, k = table.unpack(how, 1, 7)
    return names.path(folder, { name = given(name), index = index, prompt = as_path and text or nil,
      many = many ~= 1, k = k })
  end,
}

-- cleaning, grammars and names
local function text_rules(text, result)
  local file = json.decode(text)
  for name, cases in pairs(file) do
    if json.is_array(cases) then
      local different = 0
      for _, case in ipairs(cases) do
        local got = lists[name](table.unpack(case, 1, #case - 1))
        different = different + (plain(got) == plain(case[#case]) and 0 or 1)
      end
      result:exact(name, different)
    end
  end
end

return {
  { "^text_rules", text_rules },
  { head = '^%s*{%s*"model"%s*:%s*"[^"/]+%.model"', tokenizer },
  { head = '"vocab"%s*:%s*"[^"]+/vocab%.json"', byte_pairs },
}
