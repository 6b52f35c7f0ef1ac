--- Rooms know their left neighbours alone: no circle between them, and nothing named that is not there.
local base = require "moonreel.core.base"

-- files below a folder with an ending, as paths
local function files(folder, ending, into)
  into = into or {}
  for _, name in ipairs(base.list_dir(folder)) do
    local path = folder .. "/" .. name
    if base.exists(path .. "/.") then files(path, ending, into)
    elseif name:match(ending) then into[#into + 1] = path end
  end
  return into
end

-- lines of a file, numbered
local function lines(path)
  local at, text = 0, base.read_file(path)
  local next_line = text:gmatch("([^\n]*)\n?")
  return function()
    at = at + 1
    local line = next_line()
    if line then return at, line end
  end
end

-- what is left when rooms that need nobody are taken away again and again: circles and those who lean on them
local function circles(arrows)
  local left = {}
  for room, needs in pairs(arrows) do left[room] = needs end
  local found
  repeat
    found = false
    for room, needs in pairs(left) do
      local free = true
      for other in pairs(needs) do free = free and not left[other] end
      if free then
        left[room], found = nil, true
        break
      end
    end
  until not found
  local out = {}
  for room, needs in pairs(left) do
    for other, place in pairs(needs) do
      if left[other] then out[#out + 1] = ("%s -> %s at %s"):format(room, other, place) end
    end
  end
  table.sort(out)
  return table.concat(out, "\n")
end

describe("a circle", function()
  it("is found, with the lines that close it", function()
    assert.equal("", circles { a = { b = "a:1", c = "a:2" }, b = { c = "b:1" }, c = {} })
    assert.equal("a -> b at a:1\nb -> a at b:1", circles { a = { b = "a:1" }, b = { a = "b:1", c = "b:2" }, c = {} })
  end)
end)

describe("Lua rooms", function()
  local arrows, missing = {}, {}
  for _, room in ipairs(base.list_dir("lua/moonreel")) do arrows[room] = {} end
  for _, path in ipairs(files("lua/moonreel", "%.lua$")) do
    local room = path:match("^lua/moonreel/([^/]+)/")
    for at, line in lines(path) do
      -- names are also handed on, as texts, to what requires them later
      for module in line:gmatch('"moonreel%.([%w_.]+)"') do
        local other = module:match("^[^.]+")
        local file = "lua/moonreel/" .. module:gsub("%.", "/")
        local whole = module:sub(-1) ~= "."
        if arrows[other] and other ~= room then arrows[room][other] = arrows[room][other] or path .. ":" .. at end
        if arrows[other] and whole and not base.exists(file .. ".lua") and not base.exists(file .. "/init.lua") then
          missing[#missing + 1] = ("%s:%d: no module moonreel.%s"):format(path, at, module)
        end
      end
    end
  end

  it("need each other one way", function() assert.equal("", circles(arrows)) end)
  it("name modules that are there", function() assert.equal("", table.concat(missing, "\n")) end)
end)
