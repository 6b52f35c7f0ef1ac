--- What a recipe cannot do. Each attempt is baked as a user's file is: in a child process with limits.
local folder = require "spec.support.folder"
local settings = require "moonreel.settings"

-- bake in a child; gives the error text, or nil and the settings
local function attempt(dir, text)
  local path = dir:write("attack.lua", text)
  local ok, result = pcall(settings.bake, path)
  if ok then return nil, result end
  return tostring(result), result
end

-- every attempt ends with a recipe error, within a second of processor time
local function all_fail(dir, attempts)
  for _, text in ipairs(attempts) do
    local story, problem = attempt(dir, text)
    assert.is_truthy(story, "baked: " .. text)
    assert.equal(3, type(problem) == "table" and problem.exit, text .. ": " .. story)
  end
end

describe("a recipe", function()
  local dir
  setup(function()
    dir = folder.new()
    dir:write("canary.txt", "canary-content-4711")
  end)
  teardown(function() dir:remove() end)

  it("reads no file and no environment", function()
    for _, text in ipairs {
      'return recipe { name = io.open("/etc/passwd"):read("a") }',
      'for l in io.lines("/etc/passwd") do end return recipe {}',
      'return recipe { name = os.getenv("HOME") }',
      'dofile("canary.txt") return recipe {}',
      'return recipe { name = loadfile("canary.txt") and "x" }',
      'return recipe { name = require("./canary.txt") }',
      'return recipe { name = require("moonreel.core.base").read_file("/etc/passwd") }',
      'return recipe { name = require("io") and "x" }',
      'return recipe { name = package.path }',
      'return recipe { name = debug.getinfo(1).source }',
      'return recipe { name = select(2, require("/etc/passwd")) }',
    } do
      local story = attempt(dir, text)
      assert.is_truthy(story, text)
      assert.is_nil(story:find("canary-content", 1, true))
      assert.is_nil(story:find("root:", 1, true))
    end
  end)

  it("runs no bytecode and compiles nothing", function()
    all_fail(dir, {
      string.dump(function() return 1 end),
      'return recipe { name = load("return 1")() }',
      'return recipe { name = string.dump(function() end) }',
      'return recipe { name = ("x"):dump() }',
      'local f = ("").dump return recipe {}',
      'return recipe { name = loadstring and "x" }',
    })
  end)

  it("cannot reach more through the metatable of texts", function()
    all_fail(dir, {
      'return recipe { name = ("abc"):find("b") and "x" }',
      'return recipe { name = ("abc"):gsub("a", "b") }',
      'return recipe { name = ("abc"):match(".*") }',
      'return recipe { name = (""):gmatch(".")() }',
      'getmetatable("").__index = nil return recipe {}',
      'return recipe { name = string.gsub("a", "a", "b") }',
      'return recipe { name = function(r) return ("a"):rep(3):find("a") end }',
      'setmetatable({}, {}) return recipe {}',
      'return recipe { name = rawget({}, 1) }',
    })
    local _, s = attempt(dir, 'return recipe { name = ("ab"):upper():rep(2) .. ("x"):len() }')
    assert.equal("ABAB1", s.name)
  end)

  it("is stopped when it runs or grows without end", function()
    local started = os.clock()
    all_fail(dir, {
      "while true do end return recipe {}",
      "local function f() return f() end f() return recipe {}",
      "local function f() f() end f() return recipe {}",
      "return recipe { lr = function() while true do end end }",
      "local t = {} for i = 1, 1e9 do t[i] = i end return recipe {}",
      'local s = "x" while true do s = s .. s end return recipe {}',
      'return recipe { name = ("x"):rep(1e9) }',
      'return recipe { name = ("x"):rep(1e5, ("y"):rep(1e5)) }',
      'local t = {} for i = 1, 1e6 do t[i] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxx" end local s = table.concat(t) return recipe { name = s .. s .. s .. s .. s .. s .. s .. s .. s .. s }',
      "table.move({}, 1, 1e15, 2) return recipe {}",
      "return recipe { steps = select('#', table.unpack({}, 1, 1e8)) }",
      "table.concat({}, '', 1, 1e15) return recipe {}",
      "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.sort(t, function(a, b) return a > b end) end return recipe {}",
      "local t = {} for i = 1, 1e6 do table.insert(t, 1, i) end return recipe {}",
      'return recipe { name = ("%99.99f"):format(1e300):rep(1e6) }',
      "local t = {} t.user = t return recipe { user = t }",
      "local t = {} for i = 1, 1e5 do t = { t } end return recipe { user = { deep = t } }",
      'return recipe { name = ("x"):rep(20e6) }',
    })
    assert.is_true(os.clock() - started < 10)
  end)

  it("cannot swallow its budget or an error", function()
    all_fail(dir, {
      "pcall(function() while true do end end) return recipe {}",
      "xpcall(error, print) return recipe {}",
      "local co = coroutine.wrap(function() end) return recipe {}",
      "return recipe { lr = function(r) return r.steps end, steps = function(r) return r.lr end }",
      "return recipe { lr = function(r) local x = r.lr return 1 end }",
      "table.sort({ 3, 2, 1 }, function() while true do end end) return recipe {}",
      "for _ in function() return 1 end do end return recipe {}",
      "goto a ::a:: goto a return recipe {}",
      "error() return recipe {}",
      "error({}) return recipe {}",
      "error({ code = 'x' }) return recipe {}",
    })
  end)

  it("sees no address, no chance, no order of hashing", function()
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

  it("cannot change what the next one sees", function()
    all_fail(dir, { "string.format = nil return recipe {} , x.y", "recipe.none = 1 return recipe {}", "recipe.x = 1 return recipe {}" })
    attempt(dir, "math.abs = nil string.rep = nil table.insert = nil return recipe {}")
    assert.equal(3, math.abs(-3))
    dir:bake("math.abs = nil table.insert = nil return recipe {}")
    assert.equal(3, dir:bake("return recipe { steps = math.abs(-3) }").steps)
  end)

  it("of real size passes under the same limits", function()
    -- 30 recipes: 10 resolutions x 20 lengths, helpers, loops, late-bound values, 4 ancestors
    for n = 1, 30 do
      dir:write("lib/table.lua", [[
        local function entry(keep, batch) return { keep, math.max(1, batch // 1) } end
        local buckets = {}
        for i, name in ipairs { "144p", "240p", "256", "360p", "480p", "512", "720p", "1024", "1080p", "2048" } do
          buckets[name] = {}
          for frames = 1, 20 do buckets[name][frames * 17] = entry(1 / i, 400 / i / frames) end
        end
        return buckets]])
      dir:write("a.lua", 'return recipe { bucket_config = require("./lib/table"), lr = 1e-4 }')
      dir:write("b.lua", 'return recipe.extend("./a") { warmup_steps = function(r) return r.epochs * 80 end }')
      dir:write("c.lua", 'return recipe.extend("./b") { bucket_config = { ["256"] = function(r, was) for _, e in pairs(was) do e[2] = e[2] + r.seed end return was end } }')
      local story, s = attempt(dir, ('return recipe.extend("./c") { epochs = %d, seed = %d, user = { text = ("x"):rep(1000) } }'):format(n, n))
      assert.is_nil(story)
      assert.equal(n * 80, s.warmup_steps)
      assert.equal(200, (function() local c = 0 for _, m in pairs(s:get("bucket_config")) do for _ in pairs(m) do c = c + 1 end end return c end)())
    end
  end)

  it("that ships bakes in a child as it does in the program", function()
    for _, name in ipairs(require("moonreel.recipe.files").shipped_names()) do
      local base = require "moonreel.core.base"
      local path = "recipes/" .. name .. ".lua"
      if base.exists(path) and base.read_file(path):find("return recipe", 1, true) then
        assert.equal(settings.bake(name, nil, { child = false }).hash, settings.bake(path).hash, name)
      end
    end
  end)
end)

describe("environment.names", function()
  it("lists the whole allow-list and nothing that is not there", function()
    local names = table.concat(require("moonreel.recipe.environment").names(), " ")
    for _, name in ipairs { "math.abs", "string.format", "table.concat", "pairs", "recipe", "require" } do
      assert.is_truthy((" " .. names .. " "):find(" " .. name .. " ", 1, true))
    end
    for _, name in ipairs { "pcall", "load", "next", "random", "gsub", "find", "coroutine", "getmetatable", "rawget", "print" } do
      assert.is_nil(names:find(name, 1, true), name)
    end
  end)
end)
