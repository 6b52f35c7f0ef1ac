--- Reads the prompts of a rendering: from the command line, from a recipe, from a file with one
-- prompt per line, or from a table with more columns for each prompt. Ref: opensora-2.0.md 16.2.
-- @module moonreel.sample.prompts
local base = require "moonreel.core.base"
local csv = require "moonreel.text.csv"
local grammar = require "moonreel.caption.prompt"

local prompts = {}

local MARK = "^\xEF\xBB\xBF" -- some editors write this mark at the beginning of a text

-- the prompts of a file with one per line, without surrounding spaces
local function lines_of(path)
  local rows, number = {}, 0
  for line in (base.read_file(path):gsub(MARK, "") .. "\n"):gmatch "([^\n]*)\n" do
    number = number + 1
    local text = line:match "^%s*(%S.-)%s*$"
    if not utf8.len(line) then
      base.raise("MR_E_DATA", ("%s:%d: '%s' is not UTF-8; expected a text per line; try: iconv -f "
        .. "latin1 -t utf-8"):format(path, number, base.printable(line:sub(1, 80))))
    end
    rows[#rows + 1] = text and { text = text } or nil
  end
  return rows
end

local function table_of(path)
  local content = base.read_file(path)
  if not utf8.len(content) then
    base.raise("MR_E_DATA", path .. ": is not UTF-8; try: iconv -f latin1 -t utf-8")
  end
  local rows, columns = csv.rows(content, path)
  if not columns.text then
    base.raise("MR_E_DATA", ("%s: there is no column 'text'; expected text and optionally ref, "
      .. "neg, name"):format(path))
  end
  return rows
end

-- the rows of a file, and its name without the extension
local function of_file(path)
  local stem = path:match "([^/]+)$":gsub("%.[^.]*$", "")
  local rows = path:find "%.csv$" and table_of(path) or lines_of(path)
  if #rows == 0 then
    base.raise("MR_E_DATA", path .. ": has no prompt; expected a text per line, or a row per text")
  end
  return rows, stem
end

--- Refuses a text that cannot be a prompt: not UTF-8, or with invalid JSON in braces.
---@param text string
function prompts.check(text)
  if not utf8.len(text) then
    base.raise("MR_E_USAGE", ("prompt '%s' is not UTF-8; try: a terminal with a UTF-8 locale")
      :format(base.printable(text:sub(1, 80))))
  end
  grammar.extract(text)
end

local function of_texts(texts)
  local rows = {}
  for i, text in ipairs(texts) do
    prompts.check(text)
    rows[i] = { text = text }
  end
  return rows, "prompt"
end

--- Finds the prompts.
---@param given string[]|nil  from the command line
---@param s table             settings
---@return table              rows: {text; ref, neg, name: texts, if the table has them}, from
---   start_index on; first: number of the first, from 0; stem: name of the file, "prompt" for other
---   sources
function prompts.read(given, s)
  local texts = given or s:plain "sampling.prompts"
  local path = s.sampling.prompt_path or s.dataset.type == "text" and s.dataset.data_path or nil
  local all, stem = {}, "prompt"
  if texts then
    all, stem = of_texts(texts)
  elseif path then
    all, stem = of_file(path)
  end
  local first, many = s.sampling.start_index or 0, s.sampling.num_samples
  local stop = s.sampling.end_index or many and first + many or #all
  local rows = table.move(all, first + 1, math.min(stop, #all), 1, {})
  if #rows == 0 then
    base.raise("MR_E_USAGE", (#all == 0
      and 'there is no prompt; try: --prompt "a red circle going up"'
      or ("there is no prompt with an index from %d to below %d; there are %d prompts, counted "
      .. "from 0"):format(first,
        stop, #all)))
  end
  return { rows = rows, first = first, stem = stem }
end

-- a column of rows; nil if no row has it
local function column(rows, name)
  local list, any = {}, false
  for i, row in ipairs(rows) do
    list[i] = row[name] or ""
    any = any or row[name] ~= nil
  end
  return any and list or nil
end

--- The prompts as options of sampler:render.
---@param rows table[]
---@return table  prompts; references, negatives: nil if no row has one
function prompts.options(rows)
  return { prompts = column(rows, "text"), references = column(rows, "ref"),
    negatives = column(rows, "neg") }
end

return prompts
