--- scripts/lint on a small tree: the words and lines that it refuses.
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

local HEADER <const> = "/* a: a room.\n *\n * Threads: any.\n * Licence: Apache-2.0 */\n"
local FILES <const> = { "core/a/b.c", "cuda/a.cuh", "lua/a.lua", "datasets/b.lua", "docs/a.md" }

-- in two parts each, because lint reads this file too
local REFUSED <const> = {
  { "of so", " many ranks", "a riddle" },
  { "an index that is", " none", "a riddle" },
  { "a row is read ane", "w", "an old idiom" },
  { "bytes are copied as they", " lie", "an old idiom" },
  { "a block is read where it", " lies", "an old idiom" },
  { "texts one behind", " the other", "an old idiom" },
  { "equal to the last", " bit", "an old idiom" },
  { "here no", "body waits", "nobody: say which" },
}

describe("scripts/lint", function()
  local tree
  before_each(function()
    tree = folder.new()
    tree:write("scripts/lint", base.read_file("scripts/lint"))
    -- substitutes for the programs that check the form of C and Lua
    tree:write("bin/clang-format", "#!/bin/sh\n")
    tree:write("bin/luacheck", "#!/bin/sh\n")
    tree:write("core/include/moonreel/a.h", HEADER)
    for _, room in ipairs { "cuda", "lua", "recipes", "spec", "datasets", "machines",
        "examples" } do
      tree:write(room .. "/README.md", "# A room\n")
    end
    os.execute(("chmod +x '%s'/scripts/lint '%s'/bin/*"):format(tree.path, tree.path))
  end)
  after_each(function() tree:remove() end)

  local function lint()
    local done = process.run({ "/bin/sh", "-c",
      ("cd '%s' && PATH=$PWD/bin:$PATH scripts/lint 2>&1"):format(tree.path) }, "",
      { deadline_s = 60 })
    return done.output, done.exit
  end

  it("passes a tree that follows the style", function()
    tree:write("lua/a.lua", "-- Each rank reads its part again, and no rank waits.\nreturn {}\n")
    local output, code = lint()
    assert.equal(0, code, output)
  end)

  for _, row in ipairs(REFUSED) do
    it("refuses '" .. row[1] .. row[2] .. "' in code and pages", function()
      for _, file in ipairs(FILES) do
        tree:write(file, "\n" .. (file:find "lua$" and "-- " or "// ") .. row[1] .. row[2] .. "\n")
      end
      local output, code = lint()
      assert.equal(1, code, output)
      assert.is_truthy(output:find("lint: " .. row[3], 1, true), output)
      for _, file in ipairs(FILES) do
        assert.is_truthy(output:find(file .. ":2:", 1, true), output)
      end
    end)
  end

  it("refuses translated idioms in comments and titles, but not in names and strings", function()
    tree:write("lua/a.lua", 'local tol' .. 'd = { besid' .. 'e = "goes on" }\nreturn tol' .. "d\n")
    tree:write("core/a/b.c", "int besid" .. 'e; /* a rank */\nchar *p = "--somebod' .. 'y";\n')
    assert.equal(0, select(2, lint()))
    local refused = { ["core/a/b.c"] = "/* ranks\n * besid" .. "e each other */\n",
      ["cuda/a.cuh"] = "int a; // whoeve" .. "r waits\n",
      ["lua/a.lua"] = "return {} -- a rank is tol" .. "d the reason\n",
      ["spec/a_spec.lua"] = '  it("goes' .. ' on", function() end)\n',
      ["spec/b_spec.lua"] = 'it(("tell' .. 's of %s"):format(1), function() end)\n' }
    for file, text in pairs(refused) do
      tree:write(file, text)
    end
    local output, code = lint()
    assert.equal(1, code, output)
    assert.is_truthy(output:find("lint: a translated idiom", 1, true), output)
    for file in pairs(refused) do
      assert.is_truthy(output:find(file .. ":", 1, true), file .. "\n" .. output)
    end
  end)

  it("refuses doc comments with a tag that nothing reads", function()
    tree:write("lua/a.lua", "--- Twice.\n---@param n number\n---@return number\nreturn {}\n")
    assert.equal(0, select(2, lint()))
    tree:write("lua/a.lua", "--- Twice.\n---@rows of an index\nreturn {}\n")
    local output, code = lint()
    assert.equal(1, code, output)
    assert.is_truthy(output:find("lua/a.lua:2:---@rows of an index", 1, true), output)
    assert.is_truthy(output:find("lint: an unknown tag", 1, true), output)
  end)

  it("refuses lines of Markdown beyond 120 columns, but not tables and code", function()
    local long = ("word "):rep(25)
    tree:write("docs/a.md", ("| %s |\n\n    %s\n\n```\n%s\n```\n"):format(long, long, long))
    assert.equal(0, select(2, lint()))
    tree:write("docs/a.md", "a line\n" .. long .. "\n")
    local output, code = lint()
    assert.equal(1, code, output)
    assert.is_truthy(output:find("docs/a.md:2: 125 columns", 1, true), output)
  end)
end)
