--- Follows a page of docs/ as a reader does, by copy and paste from an empty folder: commands of
-- its indented blocks in a shell, blocks of Lua in the console that the command above them opened.
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

local page = {}

local MARK <const> = "\1"

-- the commands of a page in order, each {words, lines = of Lua below it, below = indented lines
-- that are no commands}
local function commands(path, programs)
  local list, inside = {}, false
  for line in base.read_file(path):gmatch("([^\n]*)\n") do
    local words = line:match("^    (%S.*)$")
    if line:find("^```") then
      inside = line == "```lua"
    elseif inside then
      table.insert(list[#list].lines, line)
    elseif words and programs[words:match("^%S+")] then
      list[#list + 1] = { words = words, lines = {}, below = {} }
    elseif words and list[1] then
      table.insert(list[#list].below, words)
    end
  end
  return list
end

-- is this input complete? the console asks this, too
local function complete(text)
  local _, problem = load(text)
  return load("return " .. text) or not (problem and problem:match("near '?<eof>'?$"))
end

-- Input for the console. After each complete one follows a mark that separates outputs, and the
-- traceback of the last failure, which changes when the input has failed.
local function with_marks(lines)
  local out, inputs, pending = {}, {}, nil
  for _, line in ipairs(lines) do
    local code, want = line:match("^(.-)%s*%-%->%s*(.-)%s*$")
    out[#out + 1] = code or line
    pending = pending and pending .. "\n" .. out[#out] or out[#out]
    if complete(pending) then
      inputs[#inputs + 1] = { line = line, want = want }
      out[#out + 1] = ("do io.write('%s') trace() io.write('%s') end"):format(MARK, MARK)
      pending = nil
    end
  end
  return table.concat(out, "\n") .. "\n", inputs
end

--- Follows a page.
---@param path string
---@param given table|nil  programs: first words of commands besides moonreel; env: assignments for
---   the shell; change: function(words) -> words, because this computer is not one of the page's
---@return table[] done  {words, below, output, exit, inputs = {line, want, output, failed}}
function page.follow(path, given)
  given = given or {}
  local dir <close> = folder.new()
  local programs = { moonreel = true }
  for _, name in ipairs(given.programs or {}) do
    programs[name] = true
  end
  local done = commands(path, programs)
  for _, one in ipairs(done) do
    local input, inputs = with_marks(one.lines)
    local ran = process.run({ "/bin/sh", "-c", ("cd '%s' && export NO_COLOR=1 PATH='%s':$PATH %s\n"
      .. "{ %s\n} 2>&1"):format(dir.path, process.program():match("^(.*)/"), (given.env or "")
        :gsub("@", dir.path), (given.change or function(words) return words end)(one.words)) },
        input, { deadline_s = 600, output_bytes = 1 << 24 })
    one.output, one.exit, one.inputs = ran.output, ran.exit, inputs
    local trace, at = nil, 1
    for text, stack in ran.output:gmatch("([^\1]*)\1([^\1]*)\1\n?") do
      inputs[at].output, inputs[at].failed = text, trace ~= nil and stack ~= trace
      trace, at = stack, at + 1
    end
  end
  return done
end

return page
