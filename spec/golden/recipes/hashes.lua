--- Prints the hash of every shipped recipe, as in hashes.txt beside it. A hash changes when a
-- recipe's meaning does, or the default of a field that affects the run; then look at the
-- difference and write the file again:
--   build/cpu/moonreel spec/golden/recipes/hashes.lua > spec/golden/recipes/hashes.txt
local app = require "moonreel.app"
local files = require "moonreel.recipe.files"
local settings = require "moonreel.settings"

local lines = {}
for _, name in ipairs(files.shipped_names()) do
  if app.embedded("recipes/" .. name .. ".lua"):find("return recipe", 1, true) then
    lines[#lines + 1] = settings.bake(name).hash .. "  " .. name
  end
end
table.sort(lines, function(a, b) return a:sub(35) < b:sub(35) end)
print(table.concat(lines, "\n"))
