local base = require "moonreel.core.base"
local data = require "moonreel.data"
local measure = require "datasets.demo.measure"
local world = require "datasets.demo.world"

describe("datasets.demo.build", function()
  local folders = {}

  local function build(...)
    local out = os.tmpname()
    os.remove(out)
    folders[#folders + 1] = out
    local outer, print_outer = _G.arg, _G.print
    _G.arg, _G.print = { [0] = "datasets/demo/build.lua", out, ... }, function() end
    local ok, err = pcall(dofile, "datasets/demo/build.lua")
    _G.arg, _G.print = outer, print_outer
    if not ok then
      error(err, 0)
    end
    return out
  end

  -- names of the files that differ between two folders
  local function differences(a, b)
    assert.same(base.list_dir(a), base.list_dir(b))
    local out = {}
    for _, name in ipairs(base.list_dir(a)) do
      if base.read_file(a .. "/" .. name) ~= base.read_file(b .. "/" .. name) then
        out[#out + 1] = name
      end
    end
    return out
  end

  teardown(function()
    for _, folder in ipairs(folders) do
      if base.exists(folder) then
        for _, name in ipairs(base.list_dir(folder)) do
          os.remove(folder .. "/" .. name)
        end
        os.remove(folder)
      end
    end
  end)

  it("writes only the motion as caption on request, for clips that show it", function()
    local out, n = build("1", "4", "motion"), 0
    for line in base.read_file(out .. "/demo.csv"):gmatch "clip%-[^\n]+" do
      local name, words, direction = line:match "^([^,]+),([%a ]+) (%a+),4,"
      assert.is_truthy(words == "it moves" or words == "moving" or words == "it drifts")
      if n % 25 == 0 then
        local pixels, facts = data.decode(out .. "/" .. name)
        assert.equal(direction, measure.find(pixels, facts.frames, 32, 32).direction)
      end
      n = n + 1
    end
    assert.equal(250, n)
    assert.is_false((pcall(build, "1", "4", "words")))
  end)

  it("writes the same bytes from the same seed, and each clip shows its caption",
    function()
    local first, second = build("1"), build("1")
    assert.same({}, differences(first, second))
    local kinds, right, lines = {}, 0, 0
    for line in base.read_file(first .. "/demo.csv"):gmatch("[^\n]+") do
      local name, text = line:match('^([^,]+),"?([^"]*)"?,%d')
      if name then
        lines = lines + 1
        kinds[name:match("%w+$")] = (kinds[name:match("%w+$")] or 0) + 1
        local pixels, facts = data.decode(first .. "/" .. name)
        assert.same({ 32, 32 }, { facts.height, facts.width })
        local found = measure.find(pixels, facts.frames, 32, 32)
        local words = {}
        for word in text:gmatch("%a+") do
          words[word] = true
        end
        local direction
        for _, row in ipairs(world.directions) do
          if words[row[1]] then
            direction = row[1]
          end
        end
        assert.equal(direction and 6 or 1, facts.frames)
        if found and words[found.colour] and found.direction == direction then
          right = right + 1
        end
      end
    end
    assert.same({ mp4 = 125, webm = 125, png = 50 }, kinds)
    -- the measurement is right on each clip, in spite of codec losses
    assert.equal(lines, right)
  end)

  it("requires a folder and a whole number", function()
    local ok, err = pcall(build, "1.5")
    assert.is_false(ok)
    assert.matches("expected OUT %[SEED %[FRAMES %[motion%]%]%], a folder, an integer, a number of "
      .. "frames", tostring(err))
  end)
end)
