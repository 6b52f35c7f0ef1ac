--- Names of rendered files: by our own rule, or by that of Open-Sora 2.0, in a folder per
-- resolution, with the text in a file next to each. Ref: opensora-1.2.md 3.2, opensora-2.0.md 16.2.
-- @module moonreel.sample.naming
local names = require "moonreel.sample.names"

local naming = {}

local Naming = {}
Naming.__index = Naming

-- a prompt as a file name, within the limits of file systems; nil if no character can be used
local function name_of(prompt)
  local name = prompt:gsub("[/%c]", "-")
  -- no character is cut in two
  local stop = #name <= 200 and #name or 200
  while name:find("^[\x80-\xBF]", stop + 1) do
    stop = stop - 1
  end
  return stop > 0 and name:sub(1, stop) or nil
end

-- the rules for the names of each prompt's renderings; a prompt may only have one name
local function rules(found, s)
  local used, list, prefix = {}, {}, s.sampling.save_prefix
  for i, row in ipairs(found.rows) do
    local own = s.sampling.prompt_as_path and name_of(row.text) or nil
    local name = row.name ~= "" and row.name and name_of(row.name) or nil
    list[i] = { index = found.first + i - 1, name = name, prefix = prefix, stem = found.stem,
      prompt = not (own and used[own]) and own or nil }
    used[own or false] = true
  end
  return list
end

--- The names of the renderings of prompts.
---@param found table     from moonreel.sample.prompts
---@param s table         settings: sampling, compat
---@param request table   from moonreel.sample.request: items, frames, loop
---@return mr.Naming      stem(item), files(), folder, text
function naming.new(found, s, request)
  local theirs = s.compat == "opensora-2.0"
  local still = request.frames * request.loop == 1
  return setmetatable({ theirs = theirs, items = request.items, list = rules(found, s),
    ending = still and ".png" or ".mp4", sample_name = s.sampling.sample_name,
    folder = theirs and ("%s_%s"):format(still and "image" or "video", s.sampling.resolution
      or ("%dx%d"):format(request.height, request.width)) or nil, text = theirs }, Naming)
end

--- The path of a rendering below the folder, without its extension.
---@param item table  an item of the request
---@return string
function Naming:stem(item)
  local how = setmetatable({ k = item.number, many = item.many },
    { __index = self.list[item.index + 1] })
  if self.theirs then
    return names.path20(self.folder, how)
  end
  if how.name and not how.prompt then
    how.prompt = how.name
  end
  how.name = self.sample_name
  return (how.prefix or "") .. names.path("", how):sub(2)
end

--- All files that the rendering will write.
---@return string[]
function Naming:files()
  local all = {}
  for i, item in ipairs(self.items) do
    all[i] = self:stem(item) .. self.ending
  end
  return all
end

return naming
