--- Kinds of JSON reference files about texts: {pattern over the stem, or over the text as `head`,
-- function(text, check, folder)}.
-- @module moonreel.golden.texts
local json = require "moonreel.core.json"
local core = require "moonreel.core.token"

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

return {
  { head = '^%s*{%s*"model"%s*:%s*"[^"/]+%.model"', tokenizer },
}
