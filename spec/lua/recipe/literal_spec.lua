--- One reader for literals of Lua, Python and JSON.
local literal = require "moonreel.recipe.literal"
local marker = require "moonreel.recipe.marker"

describe("literal.read", function()
  it("reads the three spellings of a list", function()
    for _, text in ipairs { "{4,6,6}", "[4,6,6]", "(4, 6, 6)", "[4, 6, 6,]", " { 4 ; 6 ; 6 } " } do
      assert.same({ 4, 6, 6 }, (literal.read(text)))
    end
    assert.same({}, (literal.read "{}"))
    assert.same({}, (literal.read "[]"))
  end)

  it("reads the four spellings of a table", function()
    local want = { [1] = { 1.0, 2 }, a = true }
    assert.same(want, (literal.read "{1: (1.0, 2), 'a': True}"))
    assert.same(want, (literal.read '{"a": true, 1: [1.0, 2]}'))
    assert.same(want, (literal.read "{[1] = {1.0, 2}, a = true}"))
    assert.same(want, (literal.read "{[1]={1.0,2},['a']=true}"))
  end)

  it("reads words, none and text", function()
    assert.equal(marker.none, literal.read "None")
    assert.equal(marker.none, literal.read "null")
    assert.is_false(literal.read "False")
    assert.equal("a\n'b\" ä", literal.read [["a\n'b\" \u00e4"]])
    assert.same({ { 1, marker.none } }, (literal.read "[[1, none]]"))
  end)

  it("reads numbers of the three languages", function()
    for text, value in pairs { ["+7"] = 7, ["-1"] = -1, ["1_000"] = 1000,
        ["007"] = 7, ["0x10"] = 16, ["0xf_f"] = 255, ["1_0.5e1_0"] = 10.5e10,
        ["0b11"] = 3, ["0o17"] = 15,
      ["1."] = 1.0, [".5"] = 0.5, ["-.5e-3"] = -0.0005, ["1e5"] = 1e5, [" 5 "] = 5 } do
      assert.equal(value, literal.number(text), text)
    end
    for _, text in ipairs { "1__0", "_1", "1_", "0x", "nan", "inf", "1e400",
        "1.2.3", "", "-", "1e", "1_e5", "1e_5", "1_.5", "0x_f", "0b12", "0o8", "1,5" } do
      assert.is_nil(literal.number(text), text)
    end
  end)

  it("evaluates nothing and reports where it stopped", function()
    for text, problem in pairs { ["2^10"] = "unexpected '^' at character 2",
        ["os.exit()"] = "text needs quotes: 'os.exit' at character 1",
      ["{1, 2"] = "missing } at character 6", ["{1 2}"] = "expected , or } at character 4",
        ["{a=1, a=2}"] = "key a twice",
      ['"abc'] = "text without its closing", ["[1] x"] = "unexpected 'x'",
        ["{1.5 = 2}"] = "a key is text or an integer", [""] = "a value is missing",
      ["(1, lambda: 2)"] = "text needs quotes: 'lambda'", ["{'a' 'b'}"] = "expected ," } do
      local value, found = literal.read(text)
      assert.is_nil(value)
      assert.is_truthy(found:find(problem, 1, true), text .. ": " .. tostring(found))
    end
  end)

  it("refuses nesting that would exhaust the stack", function()
    local value, problem = literal.read(("["):rep(5000))
    assert.is_nil(value)
    assert.matches("nested deeper than 32", problem)
  end)
end)
