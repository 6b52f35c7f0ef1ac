--- What a recipe can access. Each text is baked like a user's file, in a child process;
-- sandbox_spec.lua has attacks.
local folder = require "spec.support.folder"
local settings = require "moonreel.settings"

-- bakes in a child; returns the error text, or nil and the settings
local function attempt(dir, text)
  local path = dir:write("attack.lua", text)
  local ok, result = pcall(settings.bake, path)
  if ok then
    return nil, result
  end
  return tostring(result), result
end

-- each attempt ends with a recipe error
local function all_fail(dir, attempts)
  for _, text in ipairs(attempts) do
    local message, problem = attempt(dir, text)
    assert.is_truthy(message, "baked: " .. text)
    assert.equal(3, type(problem) == "table" and problem.exit, text .. ": " .. message)
  end
end

describe("a recipe", function()
  local dir
  setup(function()
    dir = folder.new()
  end)
  teardown(function() dir:remove() end)

  it("may use the allowed methods of strings", function()
    local _, s = attempt(dir, 'return recipe { name = ("ab"):upper():rep(2) .. ("x"):len() }')
    assert.equal("ABAB1", s.name)
  end)

  it("has no addresses, random numbers or order of hash tables", function()
    all_fail(dir, {
      'return recipe { name = tostring({}) }',
      'return recipe { name = tostring(print) }',
      'return recipe { name = ("%p"):format({}) }',
      'return recipe { name = string.format("%s", {}) }',
      'return recipe { name = string.format("%-20p", "x") }',
      'return recipe { steps = math.random(5) }',
      'return recipe { name = next({ a = 1 }) }',
      'math.randomseed(1) return recipe {}',
      'return recipe { steps = os.time() }',
      'print("x") return recipe {}',
      'for k in pairs({ [{}] = 1 }) do end return recipe {}',
    })
    local _, s = attempt(dir, [[local n = "" local t = {} for i = 1, 20 do t["k" .. i % 7 .. i] = i end t[3] = 1 t[1] = 2 t[true] = 3
      for k in pairs(t) do n = n .. tostring(k) .. " " end return recipe { name = n }]])
    assert.equal("1 3 k014 k07 k11 k1", s.name:sub(1, 19))
  end)

  it("gets errors with the line of what is refused", function()
    for text, want in pairs {
      ["local n = 0\nwhile true do n = n + 1 end"] = "attack.lua:2: more than 20000000 ",
      ["return recipe { lr =\nfunction() while true do end end }"] = "attack.lua:2: more than",
      ["local t = {}\nfor k in pairs({ [t] = 1 }) do end"] = "attack.lua:2: pairs: a key of type",
      ["\nreturn recipe { name = table.concat({}, '', 1, 1e8) }"] =
        "attack.lua:2: table.concat: more than 1000000 elements",
      ["\nreturn recipe { seed = #('x'):rep(1 << 25) }"] =
        "attack.lua:2: string.rep: the text would pass 16 MiB",
      ["\nreturn recipe { name = table.concat({ {} }) }"] = "attack.lua:2: invalid value",
      ["\nreturn recipe { seed = #table.pack(table.unpack({}, 1, 1e6)) }"] =
        "attack.lua:2: table.unpack: more than 100000 elements",
      ["\nreturn recipe { name = ('%d'):format('x') }"] = "attack.lua:2: bad argument",
      ["\nreturn recipe { lr = function() error({}) end }"] =
        "attack.lua:2: optim.lr: error: expected a text, got a table",
      ["error({ code = 'MR_E_USAGE', exit = 0 })"] =
        "attack.lua: error: expected a text, got a table",
      ["error(recipe)"] = "attack.lua: error: expected a text, got a table",
      ["local s = 'x'\nfor i = 1, 100 do s = s .. s end"] = "attack.lua: out of memory",
    } do
      local message, problem = attempt(dir, text)
      assert.equal(3, problem.exit, text)
      assert.is_truthy(message:find("/" .. want, 1, true), text .. ": " .. message)
    end
  end)

  it("cannot change what the next recipe gets", function()
    all_fail(dir, { "string.format = nil return recipe {} , x.y",
      "recipe.none = 1 return recipe {}", "recipe.x = 1 return recipe {}" })
    attempt(dir, "math.abs = nil string.rep = nil table.insert = nil return recipe {}")
    assert.equal(3, math.abs(-3))
    dir:bake("math.abs = nil table.insert = nil return recipe {}")
    assert.equal(3, dir:bake("return recipe { steps = math.abs(-3) }").steps)
  end)

  it("of ours bakes the same in a child as in the program", function()
    for _, name in ipairs(require("moonreel.recipe.files").shipped_names()) do
      local base = require "moonreel.core.base"
      local path = "recipes/" .. name .. ".lua"
      if base.exists(path) and base.read_file(path):find("return recipe", 1, true) then
        assert.equal(settings.bake(name, nil, { child = false }).hash, settings.bake(path).hash,
          name)
      end
    end
  end)
end)

describe("environment.names", function()
  it("lists the whole allow-list and no name that does not exist", function()
    local names = table.concat(require("moonreel.recipe.environment").names(), " ")
    for _, name in ipairs { "math.abs", "string.format", "table.concat",
        "pairs", "recipe", "require" } do
      assert.is_truthy((" " .. names .. " "):find(" " .. name .. " ", 1, true))
    end
    for _, name in ipairs { "pcall", "load", "next", "random", "gsub", "find",
        "coroutine", "getmetatable", "rawget", "print" } do
      assert.is_nil(names:find(name, 1, true), name)
    end
  end)
end)
