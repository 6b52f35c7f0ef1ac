--- Lists of breakages: how they are read, and that each still applies to the sources.
local base = require "moonreel.core.base"
local breakages = dofile "spec/support/breakages.lua"
local folder = require "spec.support.folder"
local mutants = dofile "spec/support/mutants.lua"
local process = require "moonreel.core.process"

local LIST = [[
# two lines become one
file: core/x.c
- a = 1;
-   b = 2;
+ a = 2;
spec: ctest core/x
spec: lua spec/lua/x_spec.lua --filter=b

# a text goes
file: lua/y.lua
- , 7
spec: lua spec/lua/y_spec.lua
spec: program core/x y
]]

-- names of specs among the words of one; a pattern of ctest may have several, as a|b
local PATHS = { lua = "%S*spec/%S+", ctest = "[^|]+", program = "^%S+" }

describe("a list of breakages", function()
  it("is read block by block", function()
    local list = breakages.parse(LIST, "LIST")
    assert.same({ {
      title = "two lines become one", file = "core/x.c", old = "a = 1;\n  b = 2;", new = "a = 2;",
      specs = { { kind = "ctest", words = "core/x" },
        { kind = "lua", words = "spec/lua/x_spec.lua --filter=b" } },
    }, {
      title = "a text goes", file = "lua/y.lua", old = ", 7", new = "",
      specs = { { kind = "lua", words = "spec/lua/y_spec.lua" },
        { kind = "program", words = "core/x y" } },
    } }, list)
  end)

  it("names the line of what it cannot read", function()
    for text, story in pairs {
      ["# a\nfile: b\nold text\n"] = "LIST:3: expected .* got 'old text'",
      ["# a\nfile: b\n- c\nspec: make test\n"] = "LIST:4: spec 'make test': expected",
      ["# a\nfile: b\n- c\n\n"] = "LIST:4: the block before this line lacks",
      ["# a\n- c\nspec: lua d\n"] = "LIST:4: the block before this line lacks",
    } do
      local ok, problem = pcall(breakages.parse, text, "LIST")
      assert.is_false(ok)
      assert.matches(story, problem)
    end
  end)

  it("applies where its text stands exactly once", function()
    local block = { old = "a.b(", new = "c(" }
    assert.equal("x = c(1)", breakages.apply("x = a.b(1)", block))
    assert.same({ nil, 0 }, { breakages.apply("x = a_b(1)", block) })
    assert.same({ nil, 2 }, { breakages.apply("a.b(a.b(1))", block) })
    -- places may overlap
    assert.same({ nil, 2 }, { breakages.apply("aaa", { old = "aa", new = "" }) })
  end)

  for _, room in ipairs(breakages.rooms()) do
    it("still applies to the sources: " .. room, function()
      for i, block in ipairs(breakages.read(room)) do
        local name = ("%s %d (%s)"):format(room, i, block.title)
        local _, count = breakages.apply(base.read_file(block.file), block)
        assert.equal(1, count, ("%s: times that its text stands in %s"):format(name, block.file))
        for _, spec in ipairs(block.specs) do
          for word in spec.words:gmatch(PATHS[spec.kind]) do
            local path = spec.kind == "lua" and word or "spec/" .. word:gsub("[%^%$]", "")
            assert.is_true(base.exists(path) or base.exists(path .. ".c")
              or base.exists(path .. ".cpp"), name .. ": " .. path)
          end
        end
      end
    end)
  end
end)

describe("mutants of a source", function()
  local function all(text, language)
    local list = {}
    for _, mutant in ipairs(mutants.of(text, language)) do
      list[#list + 1] = ("%d %s"):format(mutant.line, mutant.now)
      assert.equal(breakages.apply(text, mutant):match(("[^\n]*\n?"):rep(mutant.line - 1)
        .. "([^\n]*)"), mutant.now)
    end
    return list
  end

  it("change an operator, a number, a condition or a statement of Lua", function()
    assert.same({ "2   if not (a < 3) then", "2   if a <= 3 then", "2   if a < 4 then",
      "3     ", "3     b = f(a) - -1", "3     b = f(a) + -2" }, all([[
-- 1 + 2
  if a < 3 then
    b = f(a) + -1
  end
  local text = "1 < 2" .. [=[3 and
4]=]
]], "lua"))
  end)

  it("change the same of C, and leave declarations and pointers", function()
    assert.same({ "4   if (!(a && *b))", "4   if (a || *b)", "5     ;", "5     c->d -= 7;",
      "5     c->d += 8;" }, all([[
#define N 3
/* 1 + 2
   3 */
  if (a && *b)
    c->d += 7;
  return f("1 < 2", '+', &c);
  struct x *y = z;
]], "c"))
  end)

  it("load where they are of Lua", function()
    local path = "lua/moonreel/plan/search.lua"
    local text = base.read_file(path)
    local list = mutants.of(text, "lua")
    assert.is_true(#list > 100)
    for _, mutant in ipairs(list) do
      assert(load(breakages.apply(text, mutant)))
    end
  end)

  it("are picked by a seed, each once", function()
    local list, seen = mutants.of("return 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8", "lua"), {}
    local picked = mutants.pick(list, 10, 3)
    assert.same(picked, mutants.pick(list, 10, 3))
    assert.not_same(picked, mutants.pick(list, 10, 4))
    for _, mutant in ipairs(mutants.pick(list, 99, 3)) do
      seen[#seen + 1] = not seen[mutant] or nil
      seen[mutant] = true
    end
    assert.equal(#list, #seen)
  end)
end)

describe("scripts/mutate", function()
  local dir = folder.new()
  teardown(function() dir:remove() end)

  -- with a make that fails, so that nothing is built or broken here
  local function mutate(words)
    local make = dir:write("make", "#!/bin/sh\nexit 9\n")
    local done = process.run({ "/bin/sh", "-c", ("chmod +x '%s'; PATH='%s':$PATH scripts/mutate %s "
      .. "2>&1"):format(make, dir.path, words) }, "", { deadline_s = 60 })
    return done.exit, done.output
  end

  it("tells how it is called, without a build", function()
    local exit, said = mutate "--help"
    assert.same({ 0, "usage: scripts/mutate ROOM [N] | all | random FOLDER [COUNT [SEED]]" },
      { exit, said:match "^[^\n]+" })
    assert.matches("\nrooms with a list: bench bind .* trainer watch\n$", said)
  end)

  it("refuses words that it does not know, without a build", function()
    for words, story in pairs {
      [""] = "mutate: expected a room\n",
      nothing = "mutate: nothing: expected a room with a list\n",
      ["all 3"] = "mutate: all: expected a room with a list\n",
      ["run 999"] = "mutate: 999: expected the number of a breakage of scripts/mutate.d/run.txt, ",
      ["run 0"] = "mutate: 0: expected the number",
      ["run x"] = "mutate: x: expected the number",
      random = "mutate: random: expected a room with a list\n",
      ["random lua/nothing"] = "mutate: lua/nothing: expected a folder of sources",
      ["random lua/moonreel/plan x"] = "mutate: x: expected a number of breakages, and a seed\n",
      ["random lua/moonreel/plan 3 1.5"] = "mutate: 1.5: expected a number of breakages, and a",
      ["run 1 2"] = "mutate: run 1 2: expected a room, and the number of a breakage at most\n",
    } do
      local exit, said = mutate(words)
      assert.equal(2, exit, words)
      assert.equal(story, said:sub(1, #story))
      assert.matches("usage: ", said)
    end
  end)

  it("builds for a room, and for all", function()
    for _, words in ipairs { "run", "run 1", "all", "random lua/moonreel/plan 3 7" } do
      local exit = mutate(words)
      assert.equal(1, exit, words)
    end
  end)
end)
