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

  it("reports the line of what it cannot read", function()
    for text, message in pairs {
      ["# a\nfile: b\nold text\n"] = "LIST:3: expected .* got 'old text'",
      ["# a\nfile: b\n- c\nspec: make test\n"] = "LIST:4: spec 'make test': expected",
      ["# a\nfile: b\n- c\n\n"] = "LIST:4: the block before this line lacks",
      ["# a\n- c\nspec: lua d\n"] = "LIST:4: the block before this line lacks",
    } do
      local ok, problem = pcall(breakages.parse, text, "LIST")
      assert.is_false(ok)
      assert.matches(message, problem)
    end
  end)

  it("applies when its text occurs exactly once", function()
    local block = { old = "a.b(", new = "c(" }
    assert.equal("x = c(1)", breakages.apply("x = a.b(1)", block))
    assert.same({ nil, 0 }, { breakages.apply("x = a_b(1)", block) })
    assert.same({ nil, 2 }, { breakages.apply("a.b(a.b(1))", block) })
    -- occurrences may overlap
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
          -- a filter that no title contains would run nothing
          local filter = spec.words:match "%-%-filter=(%S+)"
          local text = filter and base.read_file(spec.words:match(PATHS.lua))
          assert.is_truthy(not filter or text:find('it%(+%s*"[^"\n]*' .. filter), name)
        end
      end
    end)
  end
end)

describe("mutants of a source", function()
  -- the mutants of a text, by kind; a tab stands for the end of a line
  local function all(text, language)
    local made = {}
    for _, mutant in ipairs(mutants.of(text, language)) do
      local changed = breakages.apply(text, mutant)
      assert.not_equal(text, changed)
      changed = changed:gsub("\n", "\t")
      made[changed] = mutant.kind
    end
    return made
  end

  local function makes(text, language, wanted)
    local made = all(text, language)
    for changed, kind in pairs(wanted) do
      assert.equal(kind, made[changed], changed)
    end
  end

  it("change operators, constants, conditions, operands and statements of Lua", function()
    makes("if a < 3 and not b then f(x) end", "lua", {
      ["if a <= 3 and not b then f(x) end"] = "operator",
      ["if a ~= 3 and not b then f(x) end"] = "operator",
      ["if a < 3 or not b then f(x) end"] = "operator",
      ["if a < 3 and  b then f(x) end"] = "operator",
      ["if a < 4 and not b then f(x) end"] = "constant",
      ["if a < 2 and not b then f(x) end"] = "constant",
      ["if a < 0 and not b then f(x) end"] = "constant",
      ["if not (a < 3 and not b) then f(x) end"] = "condition",
      ["if false then f(x) end"] = "operand",
      ["if true and not b then f(x) end"] = "operand",
      ["if a < 3 then f(x) end"] = "operand",
      ["if not b then f(x) end"] = "operand",
      ["if a < 3 and not b then  end"] = "statement",
      ["if a < 3 and not b then x end"] = "operand",
      [""] = "statement",
    })
    makes("return a == 0 and 'b'", "lua", { ["return a == 1 and 'b'"] = "constant",
      ["return a ~= 0 and 'b'"] = "operator", ["return a == 0"] = "operand" })
    makes("f(a)\nlocal t = { b * (c + 1), true }\nreturn x - 1", "lua", {
      ["\tlocal t = { b * (c + 1), true }\treturn x - 1"] = "statement",
      ["f(a)\tlocal t = {  true }\treturn x - 1"] = "statement",
      ["f(a)\tlocal t = { b * (c + 1) }\treturn x - 1"] = "statement",
      ["f(a)\tlocal t = { b * (c + 1), false }\treturn x - 1"] = "operand",
      ["f(a)\tlocal t = { b * c, true }\treturn x - 1"] = "operand",
      ["f(a)\tlocal t = { (c + 1), true }\treturn x - 1"] = "operand",
      ["f(a)\tlocal t = { b + 1 * (c + 1), true }\treturn x - 1"] = "operand",
      ["f(a)\tlocal t = { b * (c + 1), true }\treturn x"] = "operand",
      ["f(a)\tlocal t = { b * (c + 1), true }\treturn nil"] = "operand",
      ["f(a)\tlocal t = { b * (c + 1), true }\t"] = "statement",
    })
  end)

  it("make the same changes in C and CUDA", function()
    makes("int f(void) { if (a && !b) return E(x); c->d += 7; return p ? q : 1u; }", "c", {
      ["int f(void) { if (a || !b) return E(x); c->d += 7; return p ? q : 1u; }"] = "operator",
      ["int f(void) { if (a && b) return E(x); c->d += 7; return p ? q : 1u; }"] = "operator",
      ["int f(void) { if (a && !b) return E(x); c->d -= 7; return p ? q : 1u; }"] = "operator",
      ["int f(void) { if (a && !b) return E(x); c->d += 8; return p ? q : 1u; }"] = "constant",
      ["int f(void) { if (a && !b) return E(x); c->d += 7; return p ? q : 2; }"] = "constant",
      ["int f(void) { if (!(a && !b)) return E(x); c->d += 7; return p ? q : 1u; }"] = "condition",
      ["int f(void) { if (!a && !b) return E(x); c->d += 7; return p ? q : 1u; }"] = "condition",
      ["int f(void) { if (1) return E(x); c->d += 7; return p ? q : 1u; }"] = "operand",
      ["int f(void) { if (!b) return E(x); c->d += 7; return p ? q : 1u; }"] = "operand",
      ["int f(void) { if (a && !b) return 0; c->d += 7; return p ? q : 1u; }"] = "operand",
      ["int f(void) { if (a && !b) return E(x); c->d += 7; return q; }"] = "operand",
      ["int f(void) { if (a && !b) ; c->d += 7; return p ? q : 1u; }"] = "statement",
      ["int f(void) {  c->d += 7; return p ? q : 1u; }"] = "statement",
      ["int f(void) { if (a && !b) return E(x);  return p ? q : 1u; }"] = "statement",
    })
  end)

  it("keep comments, strings, declarations, pointers and assertions", function()
    assert.same({}, all("-- 1 + 2\nlocal x <const>\n--[==[ a = 1\n]] ]==]\nlocal y", "lua"))
    assert.same({}, all("#define N 3 \\\n  + 4\n/* 1 + 2 */\nstruct x *y;\n// a = 1;\n"
      .. "void f(const char *x, int y);\nstatic_assert(N == 3);", "c"))
    -- no spec compiles code that only nvcc compiles
    for _, head in ipairs { "#ifdef __CUDACC__", "#if defined(__CUDACC__) && N >= 890" } do
      head = head .. "\n#pragma unroll\na += 1;\n#else\n"
      assert.same({ [(head .. "b--;\n#endif"):gsub("\n", "\t")] = "operator" },
        all(head .. "b++;\n#endif", "c"))
    end
    assert.is_nil(all("int f(void) { return a; }", "c")["int f(void) {  }"])
    for _, mutant in ipairs(mutants.of([[g("a \\" < \"b", 'c + 1', [=[d = 1]=])]], "lua")) do
      assert.matches('^g?%(?"?', mutant.new)
    end
  end)

  it("are programs, with few exceptions", function()
    local text = base.read_file "lua/moonreel/plan/search.lua"
    local list, loaded = mutants.of(text, "lua"), 0
    for i = 1, #list, 20 do
      loaded = loaded + (load(breakages.apply(text, list[i])) and 20 or 0)
    end
    assert.is_true(#list > 1000 and loaded > 0.95 * #list)
  end)

  it("are drawn by a seed, each once, and each kind as often", function()
    local list = mutants.of("return 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 < 9", "lua")
    local function drawn(seed)
      local order = {}
      for mutant in mutants.draws(list, seed) do
        order[#order + 1] = mutant
      end
      return order
    end
    local order, seen, constants = drawn(3), {}, 0
    assert.same(order, drawn(3))
    assert.not_same(order, drawn(4))
    for i, mutant in ipairs(order) do
      assert.is_nil(seen[mutant])
      seen[mutant] = true
      constants = constants + (i <= 24 and mutant.kind == "constant" and 1 or 0)
    end
    assert.equal(#list, #order)
    assert.is_true(constants > 4)
  end)

  it("are compared with another change, in spite of spaces", function()
    local text = "if (a && b) /* why */\n    f(1);"
    for changed, kind in pairs {
      ["if (a)\n    f(1);"] = "operand",
      ["if ( a||b ) f(1);"] = "operator",
      ["if (false) f(1);"] = "operand",
      ["if (a && b) f(3);"] = "none",
      ["if (b && a) f(1);"] = "none",
    } do
      assert.equal(kind, (mutants.same(text, changed, "c") or { kind = "none" }).kind, changed)
    end
    -- two changes are no mutant
    assert.is_nil(mutants.same("f(1 + x)\ng(3)", "f(x)\ng(7)", "lua"))
    assert.is_nil(mutants.same("f(1)\ng(3 + x)", "f(7)\ng(3)", "lua"))
    -- of equal statements any may be the one that is removed
    assert.equal("statement", mutants.same("f()\nf()\ng()", "f()\ng()", "lua").kind)
  end)
end)

describe("scripts/mutate random", function()
  local dir = folder.new()
  teardown(function() dir:remove() end)

  local function run(words)
    local done = process.run({ "/bin/sh", "-c", ("cd '%s' && PATH=\"$PWD/bin:$PATH\" '%s' "
      .. "scripts/mutate.lua %s 2>&1"):format(dir.path, process.program(), words) }, "",
      { deadline_s = 60 })
    return done.exit, done.output
  end

  -- a tree with a room of two functions, one of which has a spec, and a program that runs specs
  setup(function()
    for _, path in ipairs { "scripts/mutate.lua", "spec/support/breakages.lua",
      "spec/support/covers.lua", "spec/support/mutants.lua", "spec/support/sources.lua",
      "spec/support/tokens.lua" } do
      dir:write(path, base.read_file(path))
    end
    dir:write("lua/moonreel/tiny/init.lua", "local tiny = {}\ntiny.a, tiny.b, tiny.c = 1, 2, 3\n\n"
      .. "function tiny.is_held(x)\n"
      .. "  return x > 3\nend\n\nfunction tiny.is_free(x)\n  return x > 4\nend\n\n"
      .. "return tiny\n")
    dir:write("spec/lua/tiny/init_spec.lua", "local tiny = dofile 'lua/moonreel/tiny/init.lua'\n"
      .. "for x = 1, 5 do assert(tiny.is_held(x) == (x > 3)) end")
    dir:write("spec/core/none", "")
    dir:write("spec/cuda/none", "")
    dir:write("bin/cmake", "#!/bin/sh\n")
    dir:write("Makefile", "build/cpu/moonreel:\n\tmkdir -p build/cpu\n"
      .. "\techo core/tiny/built.c >build/cpu/build.ninja\n\tprintf '#!/bin/sh\\n"
      .. "exec env -u MOONREEL_LUA %s spec/lua/tiny/init_spec.lua\\n' '" .. process.program()
      .. "' >$@\n\tchmod +x $@\n")
    dir:write(".gitignore", "/build/\n")
    assert(os.execute(("cd '%s' && chmod +x bin/cmake && git init -q"):format(dir.path)))
  end)

  it("reports which mutants a spec kills, the same for a seed", function()
    local exit, said = run "random lua/moonreel/tiny 12 7"
    assert.equal(1, exit, said)
    assert.matches("^lua/moonreel/tiny: %d+ mutants %(seed 7%)\n", said)
    local killed, survived = 0, 0
    for verdict, line in said:gmatch "(%a+) +lua/moonreel/tiny/init.lua:(%d+): %a+\n" do
      killed = killed + (verdict == "killed" and 1 or 0)
      survived = survived + (verdict == "SURVIVED" and 1 or 0)
      assert.is_true(verdict == "killed" or tonumber(line) == 2
        or tonumber(line) >= 8, said)
    end
    assert.is_true(killed > 0 and survived > 0, said)
    assert.equal(12, killed + survived)
    assert.matches("\n    %- [^\n]+\n    %+ [^\n]+\n    by lua spec/lua/tiny/init_spec.lua\n", said)
    assert.matches(("\n%d of 12 killed, %%d were no program\n$"):format(killed), said)
    assert.equal(said, select(2, run "random lua/moonreel/tiny 12 7"))
    assert.not_equal(said, select(2, run "random lua/moonreel/tiny 12 8"))
    -- a mutant that does not compile is drawn but not counted
    local _, of_all = run "random lua/moonreel/tiny 999 7"
    local made = tonumber(of_all:match "(%d+) mutants")
    local total, none = of_all:match "%d+ of (%d+) killed, (%d+) were no program"
    assert.is_true(tonumber(none) > 0)
    assert.equal(made, total + none)
    assert.equal(tonumber(total), select(2, of_all:gsub("init.lua:%d+: ", "")))
  end)

  it("skips C sources that are not built here", function()
    for _, path in ipairs { "core/tiny/built.c", "core/tiny/other.c", "spec/core/tiny/none" } do
      dir:write(path, "int f = 1;\n")
    end
    assert.equal(("core/tiny: %d mutants (seed 7)"):format(#mutants.of("int f = 1;\n", "c")),
      select(2, run "random core/tiny 1 7"):match "^[^\n]+")
  end)

  it("stops at a spec that fails without any mutant", function()
    dir:write("spec/lua/tiny/init_spec.lua", "error 'is red'")
    local exit, said = run "random lua/moonreel/tiny 1 7"
    assert.equal(1, exit)
    assert.matches("init_spec.lua is red without any breakage:\n.*is red", said)
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

  it("prints its usage without a build", function()
    local exit, said = mutate "--help"
    assert.same({ 0, "usage: scripts/mutate ROOM [N] | all | random FOLDER [COUNT [SEED]] "
      .. "| made [ROOM]" }, { exit, said:match "^[^\n]+" })
    assert.matches("\nrooms with a list: bench bind .* trainer watch\n$", said)
  end)

  it("refuses unknown words without a build", function()
    for words, message in pairs {
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
      assert.equal(message, said:sub(1, #message))
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
