--- Constructors report their lines, and the code keeps its meaning.
local rewrite = require "moonreel.recipe.rewrite"

-- runs rewritten code with hooks that only pass values on
local function run(source)
  local code, constructors = rewrite.source(source)
  local env = setmetatable({
    __open = function(id) return id end,
    __key = function(_, key) return key end,
    __table = function(_, t) return t end,
  }, { __index = _G })
  return assert(load(code, "=code", "t", env))(), constructors, code
end

describe("rewrite.source", function()
  it("keeps the meaning of the code", function()
    local value = run [[
      local function f(t) return #t end
      local k = "b"
      local t = { a = { 1, 2; 3 }, [k .. k] = f{ 4, 5 }, ["c"] = f({}), function() return { 1 }, 2 end, ({ 7 })[1],
        d = k == "b" and { x = 1 } or { x = 2 }, "{", [ [=[z]=] ] = 1, f { 1 }, }
      if #t > 0 then t.e = { } end
      for i = 1, 2 do t[i + 100] = { i } end
      return t
    ]]
    assert.same({ 1, 2, 3 }, value.a)
    assert.equal(2, value.bb)
    assert.equal(0, value.c)
    assert.equal(7, value[2])
    assert.equal("{", value[3])
    assert.equal(1, value[4])
    assert.equal(1, value.d.x)
    assert.equal(1, value.z)
    assert.same({ 2 }, value[102])
    assert.same({ { 1 }, 2 }, { value[1]() })
  end)

  it("does not take a constructor after another argument for a call with one argument", function()
    local value = run [=[
      local function f(a) return function(b) return { a, b } end end
      return { f "x" { 1 }, f 'x' { 2 }, f [[x]] { 3 }, f { 4 } { 5 }, f { 6 } "x" }
    ]=]
    assert.same({ { "x", { 1 } }, { "x", { 2 } }, { "x", { 3 } }, { { 4 }, { 5 } },
      { { 6 }, "x" } }, value)
  end)

  it("moves no code to another line", function()
    local source = "local a = {\n  1,\n  x = { 2 },\n}\nreturn a\n"
    local _, _, code = run(source)
    assert.equal(select(2, source:gsub("\n", "")), select(2, code:gsub("\n", "")))
  end)

  it("reports line and key of each item, also after functions that contain commas", function()
    local _, constructors = run("return {\n  a = 1,\n  [\"b c\"] = function(x, y)\n    local p, q "
      .. "= x, y\n    return p\n  end,\n  5, [3] = 1,\n  [1 + 1] = 0,\n}")
    local items = constructors[1].items
    assert.same({ { line = 2, key = "a" }, { line = 3, key = "b c" },
      { line = 7, positional = true }, { line = 7, key = 3 },
      { line = 8, computed = true } }, items)
  end)

  it("handles a final call or ... that returns any number of values", function()
    local _, constructors = run("local function f() end local t = { f() } local u = { 1 } return { "
      .. "t, u, { select(2, 1) } }")
    assert.is_true(constructors[1].items[1].open_ended)
    assert.is_nil(constructors[2].items[1].open_ended)
  end)
end)
