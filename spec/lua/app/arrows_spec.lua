--- Rooms use only rooms to their left: no cycles, and no names of missing rooms.
local base = require "moonreel.core.base"
local files = require("spec.support.sources").files

-- lines of a file, with numbers
local function lines(path)
  local at, text = 0, base.read_file(path)
  local next_line = text:gmatch("([^\n]*)\n?")
  return function()
    at = at + 1
    local line = next_line()
    if line then
      return at, line
    end
  end
end

-- is there a path along the arrows?
local function reaches(arrows, from, to, seen)
  if from == to then
    return true
  end
  seen = seen or {}
  seen[from] = true
  for other in pairs(arrows[from] or {}) do
    if not seen[other] and reaches(arrows, other, to, seen) then
      return true
    end
  end
  return false
end

-- the arrows of a cycle, with the lines that contain them
local function circles(arrows)
  local out = {}
  for room, needs in pairs(arrows) do
    for other, place in pairs(needs) do
      if reaches(arrows, other, room) then
        out[#out + 1] = ("%s -> %s at %s"):format(room, other, place)
      end
    end
  end
  table.sort(out)
  return table.concat(out, "\n")
end

describe("a cycle", function()
  it("is found, with the lines that close it", function()
    assert.equal("", circles { a = { b = "a:1", c = "a:2" }, b = { c = "b:1" }, c = {} })
    assert.equal("a -> b at a:1\nb -> a at b:1",
      circles { a = { b = "a:1" }, b = { a = "b:1", c = "b:2" }, c = {}, d = { a = "d:1" } })
  end)
end)

describe("Lua rooms", function()
  local arrows, missing = {}, {}
  for _, room in ipairs(base.list_dir("lua/moonreel")) do
    arrows[room] = {}
  end
  for _, path in ipairs(files("lua/moonreel", "%.lua$")) do
    local room = path:match("^lua/moonreel/([^/]+)/")
    for at, line in lines(path) do
      -- names are also passed as text to code that requires them later
      for module in line:gmatch('"moonreel%.([%w_.]+)"') do
        local other = module:match("^[^.]+")
        local file = "lua/moonreel/" .. module:gsub("%.", "/")
        local whole = module:sub(-1) ~= "."
        if arrows[other] and other ~= room then
          arrows[room][other] = arrows[room][other] or path .. ":" .. at
        end
        if arrows[other] and whole and not base.exists(file .. ".lua")
            and not base.exists(file .. "/init.lua") then
          missing[#missing + 1] = ("%s:%d: no module moonreel.%s"):format(path, at, module)
        end
      end
    end
  end

  it("depend on each other in one direction", function() assert.equal("", circles(arrows)) end)
  it("require modules that exist", function() assert.equal("", table.concat(missing, "\n")) end)
end)

describe("C rooms", function()
  -- links of each room and the plug-ins, from CMakeLists.txt
  local links, plugins, text = {}, {}, base.read_file("CMakeLists.txt")
  for kind, room, words in text:gmatch("\nmr_(%l*_?%l+)%((%l+) LINK ([^)]*)%)") do
    -- a plug-in takes base from the program that opens it
    plugins[room] = kind == "plugin"
    links[room] = kind == "plugin" and { base = "CMakeLists.txt" } or {}
    for other in words:gmatch("mr_(%l+)") do
      links[room][other] = "CMakeLists.txt"
    end
  end
  -- op.h and collective.h declare functions of core/cpu and functions that other rooms provide;
  -- transport.h declares what the MPI plug-in provides
  local owner = { op = "cpu", collective = "cpu",
    transport = "mpi", random_inline = "base", f8_inline = "tensor", status = "base",
    bucket = "data", subset = "data", order = "data", position = "data", blend = "data",
    generator = "data" }
  -- rooms with headers for others in addition to the public ones
  local lent = { base = true, cpu = true }
  local arrows, unlinked, foreign = {}, {}, {}
  for _, path in ipairs(files("core", "%.[ch]$")) do
    local room = path:match("^core/(%l+)/")
    local header = path:match("^core/include/moonreel/([%w_]+)")
    if header then
      room = owner[header] or header
    end
    arrows[room] = arrows[room] or {}
    for at, line in lines(path) do
      local folder, name = line:match('^%s*#%s*include "([%l_]+)/([%w_]+)%.')
      local other = folder == "moonreel" and (owner[name] or name) or folder
      if other and other ~= room then
        arrows[room][other] = arrows[room][other] or path .. ":" .. at
        if folder ~= "moonreel" and not lent[folder] then
          foreign[#foreign + 1] = ("%s:%d: the inside of core/%s"):format(path, at, other)
        end
        if links[room] and not plugins[other] and not reaches(links, room, other) then
          unlinked[#unlinked + 1] = ("%s:%d: mr_%s does not link mr_%s"):format(path,
            at, room, other)
        end
      end
    end
  end

  it("are in CMakeLists.txt", function()
    for room in pairs(arrows) do
      assert.is_true(links[room] ~= nil or room == "app", room)
    end
  end)
  it("depend on each other in one direction", function()
    assert.equal("", circles(arrows))
    assert.equal("", circles(links))
  end)
  it("include only linked rooms", function() assert.equal("", table.concat(unlinked, "\n")) end)
  it("do not include private headers of others", function()
    assert.equal("", table.concat(foreign, "\n"))
  end)
end)

describe("CUDA rooms", function()
  -- headers of a room for rooms on its left: the driver's table, the table of kernels
  local owner = { ["rt/driver"] = "driver", ["kernels/table"] = "table",
    ["kernels/kernel_call"] = "table", ["kernels/pieces"] = "table" }
  local function room_of(folder, name)
    return owner[folder .. "/" .. name] or folder
  end

  local arrows, missing = {}, {}
  for _, path in ipairs(files("cuda", "%.[ch]%w*$")) do
    local room = room_of(path:match("^cuda/(%l+)/([%w_]+)%."))
    arrows[room] = arrows[room] or {}
    for at, line in lines(path) do
      local name = line:match('^%s*#%s*include "(cuda/[%w_/.]+)"')
      local other = name and room_of(name:match("^cuda/(%l+)/([%w_]+)%."))
      if other and other ~= room then
        arrows[room][other] = arrows[room][other] or path .. ":" .. at
      end
      if name and not base.exists(name) then
        missing[#missing + 1] = ("%s:%d: no file %s"):format(path, at, name)
      end
    end
  end

  it("depend on each other in one direction", function() assert.equal("", circles(arrows)) end)
  it("include files that exist", function() assert.equal("", table.concat(missing, "\n")) end)
end)
