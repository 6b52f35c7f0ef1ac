--- Each room has a README, which names its files and only files that exist.
local base = require "moonreel.core.base"

local rooms = {}
for _, above in ipairs { "core", "lua/moonreel", "lua/moonreel/models", "datasets" } do
  for _, name in ipairs(base.list_dir(above)) do
    local room = above .. "/" .. name
    if room ~= "core/include" and base.exists(room .. "/.") then
      rooms[#rooms + 1] = room
    end
  end
end

describe("a room's README", function()
  for _, room in ipairs(rooms) do
    local text = base.exists(room .. "/README.md") and base.read_file(room .. "/README.md")

    it("exists and fits a screen: " .. room, function()
      assert.is_truthy(text)
      assert.is_true(select(2, text:gsub("\n", "")) <= 60)
    end)

    it("names each file: " .. room, function()
      -- rooms of ops need no list, because each file is an op
      if room == "core/op" then
        return
      end
      for _, file in ipairs(base.list_dir(room)) do
        local stem, ending = file:match("^(.*)%.([%a]+)$")
        if ending == "c" or ending == "h" or ending == "lua" or ending == "py" then
          local group = stem:match("_fields$") and "*_fields.lua"
          local here = text:find(stem .. ".", 1, true) or text:find("`" .. stem .. "`", 1, true)
            or group and text:find(group, 1, true)
          assert.is_truthy(here, ("%s/README.md does not name %s"):format(room, file))
        end
      end
    end)

    it("names only files that exist: " .. room, function()
      for path in text:gmatch("spec/[%w_/]+%.?[%w]*") do
        path = path:gsub("%.$", "")
        assert.is_true(base.exists(path), ("%s/README.md: no %s"):format(room, path))
      end
    end)
  end
end)
