--- What a recipe cannot do. Each attempt is baked like a user's file, in a child process with
-- limits. It ends with a recipe error (exit 3), within a second of processor time and 256 MiB, and
-- reads no canary file.
-- Covers: lua/moonreel/settings/child.lua
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

local MIB = 1024 * 1024
-- sanitizers (make asan) take time and memory of their own
local OWN, OWN_MEMORY = 1, 1
if os.getenv("ASAN_OPTIONS") then
  OWN, OWN_MEMORY = 4, 8
end

local attempts = {
  ["files"] = {
    'return recipe { name = io.open("CANARY"):read("a") }',
    'for line in io.lines("CANARY") do error(line) end return recipe {}',
    'dofile("CANARY") return recipe {}',
    'return recipe { name = loadfile("CANARY") and "x" }',
    'return recipe { name = require("./canary.txt") }',
    'return recipe { name = require("CANARY") }',
    'return recipe.extend("./canary.txt") {}',
    'return recipe { name = require("moonreel.core.base").read_file("CANARY") }',
    'return recipe { name = package.searchpath("canary", "./?.txt") }',
    'return recipe { name = require("/proc/self/environ") }',
    'return recipe { name = recipe.none.x.y }',
  },
  ["the environment"] = {
    'return recipe { name = os.getenv("CANARY_VARIABLE") }',
    'return recipe { name = _G.os and "x" }',
    'return recipe { name = _ENV._G }',
    'return recipe { name = package.loaded.os.getenv("CANARY_VARIABLE") }',
    'return recipe { name = debug.getregistry()[2] }',
    'return recipe { name = debug.getinfo(1).source }',
    'local _ENV = { recipe = recipe } return recipe { name = os.time() }',
    'return recipe { name = require("os").getenv("CANARY_VARIABLE") }',
    'os.execute("cat CANARY") return recipe {}',
    'x = 1 return recipe {}',
  },
  ["bytecode"] = {
    string.dump(function() return 1 end),
    "#!x\n" .. string.dump(function() return 1 end),
    'return recipe { name = load("return 1")() }',
    'return recipe { name = load("\\27Lua", "x", "b") }',
    'return recipe { name = string.dump(function() end) }',
    'return recipe { name = ("x"):dump() }',
    'return recipe { name = loadstring and "x" }',
    'return recipe { name = require("./code") }',
  },
  ["the metatable of texts"] = {
    'getmetatable("").__index = nil return recipe {}',
    'setmetatable("", { __index = {} }) return recipe {}',
    'return recipe { name = debug.setmetatable("", nil) and "x" }',
    'local f = ("").dump return recipe {}',
    'return recipe { name = ("x").find }',
    'rawset(string, "find", 1) return recipe {}',
    'return recipe { name = function(r) return r.outputs:gsub("o", "x") end }',
    'return recipe { name = (("x").rep.y) }',
    'setmetatable({}, {}) return recipe {}',
  },
  ["patterns"] = {
    'return recipe { name = ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"):find((".-"):rep(30) .. "b") }',
    'return recipe { name = string.find("a", "a") }',
    'return recipe { name = ("abc"):gsub("a", "b") }',
    'return recipe { name = string.gsub("a", "a", "b") }',
    'return recipe { name = ("abc"):match(".*") }',
    'return recipe { name = (""):gmatch(".")() }',
    'return recipe { name = function(r) return ("a"):rep(3):find("a") end }',
    'return recipe { name = string.format("%99999999999d", 1) }',
  },
  ["repetition"] = {
    'return recipe { name = ("x"):rep(1e9) }',
    'return recipe { name = ("x"):rep(20e6) }',
    'return recipe { name = ("x"):rep(1e5, ("y"):rep(1e5)) }',
    'return recipe { name = string.rep("", 1e15, "x") }',
    'local s = "x" while true do s = s .. s end return recipe {}',
    'local t = {} for i = 1, 1e9 do t[i] = ("x"):rep(1e6) .. i end return recipe {}',
    'return recipe { name = ("%99.99f"):format(1e300):rep(1e6) }',
    'local t = {} for i = 1, 1e9 do t[i] = i end return recipe {}',
    "return recipe { steps = select('#', table.unpack({}, 1, 1e8)) }",
    "table.move({}, 1, 1e15, 2) return recipe {}",
    "local t = {} for i = 1, 1e6 do table.insert(t, 1, i) end return recipe {}",
  },
  ["sort and concat"] = {
    "table.concat({}, '', 1, 1e15) return recipe {}",
    'local t = {} for i = 1, 1e6 do t[i] = ("x"):rep(100) end return recipe { name = table.concat(t) }',
    'local t = {} for i = 1, 9e5 do t[i] = "x" end return recipe { name = table.concat(t, ("y"):rep(1e6)) }',
    "table.sort({ 3, 2, 1 }, function() while true do end end) return recipe {}",
    "table.sort({ 3, 2, 1, 5, 4 }, function() return true end) return recipe {}",
    "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.sort(t, function(a, b) return a > b end) end return recipe {}",
    "local t = {} for i = 1, 1e6 do t[i] = i % 7 end while true do table.sort(t) end return recipe {}",
    "table.sort({ 1, 'a', {} }) return recipe {}",
    "table.concat({ {} }) return recipe {}",
  },
  ["error handlers"] = {
    "pcall(function() while true do end end) return recipe {}",
    "xpcall(error, print) return recipe {}",
    "local co = coroutine.wrap(function() end) return recipe {}",
    "local t <close> = setmetatable({}, { __close = function() while true do end end }) return recipe {}",
    "debug.sethook() return recipe {}",
    "error() return recipe {}",
    "error({}) return recipe {}",
    "error({ code = 'x' }) return recipe {}",
    "error(setmetatable({}, { __tostring = function() while true do end end }))",
    "assert(false, { code = 'MR_OK', exit = 0 }) return recipe {}",
    "for _ in function() error('again') end do end return recipe {}",
  },
  ["late-bound loops"] = {
    "return recipe { lr = function() while true do end end }",
    "return recipe { lr = function(r) return r.steps end, steps = function(r) return r.lr end }",
    "return recipe { lr = function(r) local x = r.lr return 1 end }",
    "return recipe { lr = function() return function() return 1 end end }",
    "return recipe { user = { a = function(r) return r.user.b end, b = function(r) return r.user.a end } }",
    "return recipe { bucket_config = function(r) return r.bucket_config end }",
    "return recipe { steps = function(r) local n = 0 for i = 1, 1e9 do n = n + r.seed end return n end }",
    "return recipe { outputs = function(r) local s = r.name or 'x' while true do s = s .. s end end }",
    "return recipe { betas = { function(r) return r.betas[2] end, function(r) return r.betas[1] end } }",
  },
  ["deep nesting"] = {
    "local t = {} t.user = t return recipe { user = t }",
    "local t = {} for i = 1, 1e5 do t = { t } end return recipe { user = { deep = t } }",
    "local t = {} for i = 1, 1e5 do t = { a = t } end return recipe { user = t }",
    "return recipe { user = { x = " .. ("{"):rep(300) .. ("}"):rep(300) .. " } }",
    "return recipe { name = " .. ("("):rep(300) .. "'x'" .. (")"):rep(300) .. " }",
    "local function f() return 1 + f() end f() return recipe {}",
    "local function f() return f() end f() return recipe {}",
    "local function f(...) return f(1, ...) end f() return recipe {}",
    "return recipe { user = { x = function(r) local t = {} for i = 1, 1e5 do t = { t } end return t end } }",
    "return recipe.replace(recipe.replace(recipe.replace {}))",
  },
}

describe("a recipe's attempt on", function()
  local dir
  setup(function()
    dir = folder.new()
    dir:write("canary.txt", "canary-content-4711")
    dir:write("code.lua", string.dump(function() return "canary-content-4711" end))
  end)
  teardown(function() dir:remove() end)

  -- bakes texts; returns the output and the resources of each child
  local function bake(texts)
    local words = { process.program(), "spec/support/attempts.lua" }
    for i, text in ipairs(texts) do
      words[i + 2] = dir:write(("attempt%d.lua"):format(i),
        (text:gsub("CANARY%f[^%u_]", dir.path .. "/canary.txt")))
    end
    local done = process.run(words, "", { deadline_s = 600 })
    assert.equal(0, done.exit)
    return json.decode(done.output)
  end

  for what, list in pairs(attempts) do
    it(what .. " fails within its limits of time and memory", function()
      assert.is_true(#list >= 6)
      for i, done in ipairs(bake(list)) do
        local text = list[i]
        assert.equal(3, done.exit, text .. ": " .. tostring(done.message))
        assert.is_nil((done.message .. done.output):find("canary-content", 1, true), text)
        assert.is_true(done.cpu_s < 1 * OWN, ("%.2f s: %s"):format(done.cpu_s, text))
        assert.is_true(done.peak_bytes < 256 * MIB * OWN_MEMORY,
          ("%d MiB: %s"):format(done.peak_bytes // MIB, text))
      end
    end)
  end

  it("a busy machine does not count against the recipe", function()
    local child = require "moonreel.settings.child"
    local allowed = child.deadline_s
    finally(function() child.deadline_s = allowed end)
    child.deadline_s = 0.001
    local path = dir:write("slow.lua", "return recipe {}")
    fails("MR_E_RECIPE", "slow%.lua: stopped: no settings after 0.001 s; this host is busy",
      require("moonreel.settings").bake, path, {})
  end)

  it("a child that was killed is not called a recipe with a loop", function()
    local run, came = process.run, nil
    finally(function() process.run = run end)
    process.run = function() return came end
    local path = dir:write("slow.lua", "return recipe {}")
    for signal, text in pairs { [9] = "the process that bakes it was ended by signal 9; try: again",
        [27] = "stopped: more than 0.9 s of work; a recipe is data" } do
      came = { signal = signal }
      fails("MR_E_RECIPE", "slow%.lua: " .. text, require("moonreel.settings").bake, path, {})
    end
  end)

  it("no limit stops 30 legal recipes of real size", function()
    -- 10 resolutions x 20 lengths, helpers, loops, late-bound values, 4 ancestors
    dir:write("lib/table.lua", [[
      local function entry(keep, batch) return { keep, math.max(1, batch // 1) } end
      local buckets = {}
      for i, name in ipairs { "144p", "240p", "256", "360p", "480p", "512", "720p", "1024", "1080p", "2048" } do
        buckets[name] = {}
        for frames = 1, 20 do buckets[name][frames * 17] = entry(1 / i, 400 / i / frames) end
      end
      return buckets]])
    dir:write("a.lua", 'return recipe { bucket_config = require("./lib/table"), lr = 1e-4 }')
    dir:write("b.lua", 'return recipe.extend("./a") { warmup_steps = function(r) return r.epochs * '
      .. '80 end }')
    dir:write("c.lua", [[return recipe.extend("./b") {
      bucket_config = { ["256"] = function(r, was) for _, e in pairs(was) do e[2] = e[2] + r.seed end return was end } }]])
    local legal = {}
    for n = 1, 30 do
      legal[n] = ('return recipe.extend("./c") { epochs = %d, seed = %d, user = { text = '
        .. '("x"):rep(1000) } }'):format(n, n)
    end
    for n, done in ipairs(bake(legal)) do
      assert.equal(n * 80, done.settings.warmup_steps)
      local count = 0
      for _, lengths in pairs(done.settings.bucket_config) do
        for _ in pairs(lengths) do
          count = count + 1
        end
      end
      assert.equal(200, count)
      assert.is_true(done.cpu_s < 0.5 * OWN and done.peak_bytes < 64 * MIB * OWN_MEMORY,
        ("%.2f s, %d MiB"):format(done.cpu_s, done.peak_bytes // MIB))
    end
  end)
end)
