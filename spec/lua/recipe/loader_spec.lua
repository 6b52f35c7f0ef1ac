--- Files, parents, and errors that plain Lua would ignore.
-- Covers: lua/moonreel/recipe/fault.lua lua/moonreel/recipe/files.lua
-- lua/moonreel/recipe/place.lua
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

describe("recipe files", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  it("merge parents below the child, later parents over earlier ones", function()
    dir:write("a.lua", "return recipe { lr = 1, seed = 1, epochs = 1 }")
    dir:write("b.lua", "return recipe { lr = 2, seed = 2 }")
    local s = dir:bake('return recipe.extend("./a", "./b.lua") { lr = 3 }')
    assert.same({ 3.0, 2, 1 }, { s.optim.lr, s.seed, s.epochs })
  end)

  it("are merged once each, after their own ancestors", function()
    -- A diamond: left sets seed. Right inherits seed from the root and must not bring back the
    -- root's value.
    dir:write("root.lua", "return recipe { seed = 1, epochs = 1 }")
    dir:write("left.lua", 'return recipe.extend("./root") { seed = 2 }')
    dir:write("right.lua", 'return recipe.extend("./root") { epochs = 3 }')
    local s = dir:bake('return recipe.extend("./left", "./right") {}')
    assert.same({ 2, 3 }, { s.seed, s.epochs })
    assert.equal(3, #s:chain("epochs"))
  end)

  it("are found from the file that names them, and identified by their real path", function()
    dir:write("x/base.lua", 'return recipe.extend("../top") { seed = 5 }')
    dir:write("top.lua", "return recipe { seed = 4, epochs = 9 }")
    dir:write("lib/n.lua", "return { nine = 9 }")
    os.execute(("ln -s '%s/x' '%s/y'"):format(dir.path, dir.path))
    local s = dir:bake('return recipe.extend("./top", "./x/base", "./y/base") { steps = '
      .. 'require("./lib/n").nine }')
    assert.same({ 5, 9, 9 }, { s.seed, s.epochs, s.steps })
    -- one file under two paths is one ancestor
    assert.equal(3, #s:chain("seed"))
  end)

  it("get private copies of the files that they require", function()
    dir:write("lib.lua", "local t = { lr = 1, betas = { 0.5, 0.5 } }\n"
      .. "return { optim = t, change = function(x) t.lr = x end }")
    dir:write("base.lua", 'local lib = require("./lib")\nlib.optim.betas[1] = 0.25\nlib.change(2)\n'
      .. "return recipe { optim = lib.optim }")
    dir:write("other.lua", 'local lib = require("./lib")\nreturn recipe { optim = lib.optim, '
      .. 'name = require("./lib").optim == lib.optim and "one" or "two" }')
    local s = dir:bake('return recipe.extend("./base", "./other") {}')
    assert.same({ 1.0, 0.5, "one" }, { s.optim.lr, s.optim.betas[1], s.name })
    local chain = s:chain("lr")
    assert.equal("other.lua:2 (built at lib.lua:1)", chain[#chain].at:gsub(dir.path .. "/", ""))
    assert.equal("2.0", chain[#chain - 1].value)
  end)

  it("that form a cycle are refused with the cycle", function()
    dir:write("a.lua", 'return recipe.extend("./b") {}')
    dir:write("b.lua", 'return recipe.extend("./a") {}')
    local code, fault = dir:fault('return recipe.extend("./a") {}')
    assert.equal(3, code)
    assert.equal("b.lua:1: recipes extend each other in a circle: a.lua -> b.lua -> a.lua", fault)
    dir:write("r.lua", 'return require("./r")')
    code, fault = dir:fault('return recipe { steps = require("./r") }')
    assert.equal(3, code)
    assert.matches("files require each other in a circle: r%.lua %-> r%.lua", fault)
  end)

  it("that ask for opposite orders are refused", function()
    dir:write("a.lua", "return recipe {}")
    dir:write("b.lua", "return recipe {}")
    dir:write("ab.lua", 'return recipe.extend("./a", "./b") {}')
    dir:write("ba.lua", 'return recipe.extend("./b", "./a") {}')
    local code, fault = dir:fault('return recipe.extend("./ab", "./ba") {}')
    assert.equal(3, code)
    assert.matches("in opposite orders", fault)
  end)

  it("with the name of a shipped one are read from a path, if that is given", function()
    dir:write("recipes/tiny/demo.lua", "return recipe { lr = 0.25 }")
    for _, name in ipairs { "recipes/tiny/demo", "recipes/tiny/demo.lua", "./recipes/tiny/demo",
        dir.path .. "/recipes/tiny/demo" } do
      local out, err = folder.moonreel("why " .. name .. " lr", "cd '" .. dir.path .. "' &&")
      assert.matches("\n +0%.25 +[^\n]*recipes/tiny/demo%.lua:1", out, err)
    end
    for _, name in ipairs { "./recipes/tiny/demo", dir.path .. "/recipes/tiny/demo",
        "../recipes/tiny/demo" } do
      local _, err, code = folder.moonreel("why " .. name .. " lr", "mkdir -p '" .. dir.path
        .. "/x/y' && rm -rf '" .. dir.path .. "/recipes' && cd '" .. dir.path .. "/x/y' &&")
      assert.equal(3, code)
      assert.matches("^moonreel: there is no file .*recipes/tiny/demo%.lua; ", err)
    end
  end)

  it("that do not exist are named, with the searched path and the nearest name", function()
    local code, fault = dir:fault('return recipe.extend("./nothing") {}')
    assert.equal(3, code)
    assert.matches("main%.lua:1: there is no file nothing%.lua; '%./' and '%.%./' are relative to "
      .. "the recipe's own folder", fault)
    code, fault = dir:fault('return recipe.extend("tiny/demoo") {}')
    assert.equal(3, code)
    assert.matches("main%.lua:1: no recipe 'tiny/demoo', did you mean 'tiny/demo'%?", fault)
  end)

  it("that return no recipe are refused", function()
    local _, fault = dir:fault("return { lr = 1 }")
    assert.equal("main.lua: a recipe returns `recipe {...}` or `recipe.extend(...) {...}`; this "
      .. "file returns something else", fault)
    _, fault = dir:fault("return recipe 5")
    assert.matches("recipe: expected a table, got number",
      (dir:fault("return recipe(5)") and select(2, dir:fault("return recipe(5)"))))
    assert.matches("main%.lua:1:", fault)
  end)

  it("may begin with a byte order mark, and are UTF-8 where settings store them", function()
    local function shows(exit, text, ...)
      local done = process.run({ "/bin/sh", "-c", 'exec "$0" show "$@" 2>&1', process.program(),
        ... }, "", { deadline_s = 60 })
      assert.equal(exit, done.exit)
      assert.matches("moonreel: " .. text, done.output, 1, true)
    end
    assert.equal(3, dir:bake("\xEF\xBB\xBFreturn recipe { epochs = 3 }").epochs)
    for text, problem in pairs {
      ['return recipe { name = "\xff" }'] = ':1: name: expected text, or none, got text that is '
        .. 'not UTF-8: "\\xff"',
      ['return recipe { ["\xff"] = 1 }'] = ":1: \\xff is not a field",
      ['return recipe { bucket_config = { ["\xff"] = { [1] = { 1.0, 2 } } } }'] =
        ':1: bucket_config: the key "\\xff" is not UTF-8',
      ['error("a\\nb\xff")'] = ":1: a\nb\\xff",
      ["\27Lua"] = ": attempt to load a binary chunk",
    } do
      local path = dir:write("r.lua", text)
      shows(3, path .. problem, path)
    end
    dir:write("f.lua/inner", "a folder")
    shows(8, dir.path .. "/f.lua: is not a regular file", dir.path .. "/f")
    local path = dir:write("s\xff.lua", "return recipe {}")
    for _, words in ipairs { { path, "recipe '" .. dir.path .. "/s\\xff.lua' is not UTF-8" },
        { "tiny/demo", "argument 'name=\\xff' is not UTF-8", "name=\xff" } } do
      shows(2, words[2], words[1], words[3])
    end
  end)
end)

describe("recipe tables", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  it("refuse a field whose value is nil", function()
    local code, fault = dir:fault("return recipe {\n  seed = 1,\n  steps = ({}).x,\n}")
    assert.equal(3, code)
    assert.matches(
      "^main%.lua:3: 'steps' is nil, which Lua drops silently; try: recipe%.none", fault)
  end)

  it("refuse a list element whose value is nil, at both ends", function()
    local _, fault = dir:fault("local a\nreturn recipe { optim = { betas = {\n a and 1, 0.9 } } }")
    assert.matches("^main%.lua:3: element %[1%] is nil", fault)
    _, fault = dir:fault("local a\nreturn recipe { optim = { betas = { 0.9,\n a } } }")
    assert.matches("^main%.lua:3: element %[2%] is nil", fault)
  end)

  it("refuse a duplicate key, also a computed one", function()
    local _, fault = dir:fault("return recipe {\n  seed = 1,\n  lr = 2,\n  seed = 3 }")
    assert.matches("^main%.lua:4: 'seed' is written twice in one table, first at line 2", fault)
    _, fault = dir:fault('return recipe {\n  seed = 1,\n  ["se" .. "ed"] = 3 }')
    assert.matches("^main%.lua:3: 'seed' is written twice", fault)
  end)

  it("refuse undefined names and new globals", function()
    local _, fault = dir:fault("return recipe {\n  seed = sead }")
    assert.matches("^main%.lua:2: 'sead' is not defined here", fault)
    _, fault = dir:fault("seed = 3\nreturn recipe {}")
    assert.matches("^main%.lua:1: 'seed' is assigned as a global; try: local seed", fault)
  end)

  it("report syntax errors at their own line", function()
    local code, fault = dir:fault("return recipe {\n  seed = = 3 }")
    assert.equal(3, code)
    assert.matches("^main%.lua:2: unexpected symbol near '='", fault)
  end)

  it("report an error of their own with its line", function()
    local code, fault = dir:fault("local n = 1\nassert(n == 2, 'n must be 2')\nreturn recipe {}")
    assert.equal(3, code)
    assert.matches("n must be 2", fault)
  end)
end)

describe("places of values", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  local function origin(s, path)
    return (s:origin(path):gsub("^.*/(main%.lua)", "%1"):gsub("at /.-/(lib)", "at %1"))
  end

  it("are those of the key, whatever surrounds it", function()
    local s = dir:bake("return recipe {\n  seed = 1, epochs = 2,\n  optim = {\n    lr = 1,\n    "
      .. "betas = {\n      0.9,\n      0.99 },\n  },\n}")
    assert.equal("main.lua:2", origin(s, "epochs"))
    assert.equal("main.lua:4", origin(s, "optim.lr"))
    assert.equal("main.lua:5", origin(s, "optim.betas"))
  end)

  it("of keys that code sets are the line of the constructor", function()
    local s = dir:bake("local t = {\n  lr = 1,\n  eps = 2 }\nt.lr = 5\nt.weight_decay = "
      .. "0.1\nreturn recipe {\n  optim = t }")
    assert.equal("main.lua:1", origin(s, "optim.lr"))
    assert.equal("main.lua:3", origin(s, "optim.eps"))
    assert.equal("main.lua:1", origin(s, "optim.weight_decay"))
  end)

  it("of tables that a helper file built are both lines", function()
    dir:write("lib/b.lua", 'return {\n  small = {\n    ["256"] = {\n      [1] = { 1.0, 4 } } } }')
    local s = dir:bake('return recipe {\n  seed = 1,\n  bucket_config = require("./lib/b").small }')
    assert.equal("main.lua:3 (built at lib/b.lua:4)", origin(s, "bucket_config.256.1"))
  end)
end)
