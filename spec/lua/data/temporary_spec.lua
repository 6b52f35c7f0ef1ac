local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local temporary = require "moonreel.data.temporary"

-- the path of a folder that was closed at the end of a function
local function after(f, path)
  local made
  local good, problem = pcall(function()
    local dir <close> = temporary.folder(path)
    made = dir.path
    assert.is_true(base.exists(made .. "/."))
    f(made)
  end)
  return made, good, problem
end

describe("a temporary folder", function()
  it("is removed with all files, also after an error", function()
    local function fill(path)
      base.make_dir(path .. "/inside")
      base.replace_file(path .. "/inside/file", "text")
    end
    local made, good = after(fill)
    assert.is_true(good)
    assert.is_false(base.exists(made))
    local problem
    made, good, problem = after(function(path)
      fill(path)
      error("what passes", 0)
    end)
    assert.same({ false, "what passes", false }, { good, problem, base.exists(made) })
  end)

  it("is created in the folder that its path names", function()
    local outer <close> = folder.new()
    local made, good = after(function() end, outer.path .. "/new/one")
    assert.same({ outer.path .. "/new/one", true }, { made, good })
    assert.is_false(base.exists(made))
  end)
end)
