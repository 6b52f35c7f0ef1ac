--- The lists of breakages in scripts/mutate.d: reads one, and applies a breakage to a text.
-- scripts/README.md describes the form of a list.
local base = require "moonreel.core.base"

local breakages = {}

local KINDS = { ctest = true, lua = true, program = true }

--- Rooms with a list, in order.
---@return string[]
function breakages.rooms()
  local rooms = {}
  for _, name in ipairs(base.list_dir("scripts/mutate.d")) do
    rooms[#rooms + 1] = name:match("^(.*)%.txt$")
  end
  return rooms
end

--- The breakages of a list.
---@param text string  the list
---@param name string  its name in errors
---@return table[]  title, file, old, new (texts), specs: list of {kind = "lua", "ctest" or
---   "program", words}
function breakages.parse(text, name)
  local list, block, line_number = {}, nil, 0
  local function refuse(...)
    error(("%s:%d: %s"):format(name, line_number, string.format(...)), 0)
  end

  local function finish()
    if not block then
      return
    end
    if not block.title or not block.file or #block.old == 0 or #block.specs == 0 then
      refuse("the block before this line lacks its title, file, text or spec")
    end
    block.old, block.new = table.concat(block.old, "\n"), table.concat(block.new, "\n")
    list[#list + 1], block = block, nil
  end

  for line in (text:gsub("\n*$", "\n\n")):gmatch("([^\n]*)\n") do
    line_number = line_number + 1
    if line == "" then
      finish()
    else
      block = block or { old = {}, new = {}, specs = {} }
      local sign, rest = line:match("^([-+#]) ?(.*)$")
      local key, value = line:match("^(%a+): *(.-) *$")
      if sign == "#" then
        block.title = block.title and block.title .. " " .. rest or rest
      elseif sign then
        table.insert(sign == "-" and block.old or block.new, rest)
      elseif key == "file" then
        block.file = value
      elseif key == "spec" then
        local kind, words = value:match("^(%a+) +(.+)$")
        if not KINDS[kind] then
          refuse("spec '%s': expected lua FILE, ctest PATTERN or program NAME WORDS", value)
        end
        table.insert(block.specs, { kind = kind, words = words })
      else
        refuse("expected '# title', 'file:', '- text', '+ text' or 'spec:', got '%s'", line)
      end
    end
  end
  return list
end

--- The list of a room.
---@param room string
---@return table[]  as of breakages.parse
function breakages.read(room)
  local path = ("scripts/mutate.d/%s.txt"):format(room)
  return breakages.parse(base.read_file(path), path)
end

--- A text to which a breakage is applied.
---@param text string
---@param breakage table  of breakages.parse, or a mutant of spec/support/mutants.lua
---@return string|nil  nil unless the text to replace occurs exactly once
---@return integer     number of occurrences
function breakages.apply(text, breakage)
  local count, from, start, stop = 0, 1, breakage.first, breakage.last
  if start then
    count = 1
  end
  while not breakage.first do
    local first, last = text:find(breakage.old, from, true)
    if not first then
      break
    end
    count, from, start, stop = count + 1, first + 1, first, last
  end
  if count ~= 1 then
    return nil, count
  end
  return text:sub(1, start - 1) .. breakage.new .. text:sub(stop + 1), 1
end

return breakages
