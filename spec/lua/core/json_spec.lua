--- JSON binding: values survive a round trip, and errors have a place.
-- Covers: core/bind/json.c
local json = require "moonreel.core.json"

local function fails(f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  return err
end

describe("json.decode", function()
  it("keeps integers integers and floats floats", function()
    local v = json.decode('{"i": 9007199254740993, "f": 3.0, "e": 1e2, "n": -7}')
    assert.equal("integer", math.type(v.i))
    assert.equal(9007199254740993, v.i)
    assert.equal("float", math.type(v.f))
    assert.equal("float", math.type(v.e))
    assert.equal(-7, v.n)
  end)

  it("distinguishes arrays from objects and null from nil", function()
    local v = json.decode('{"a": [], "o": {}, "n": null, "l": [1, null, "x"]}')
    assert.is_true(json.is_array(v.a))
    assert.is_false(json.is_array(v.o))
    assert.equal(json.null, v.n)
    assert.equal(3, #v.l)
    assert.equal(json.null, v.l[2])
    assert.equal('{"a":[],"l":[1,null,"x"],"n":null,"o":{}}', json.encode(v))
  end)

  it("accepts any value at the top", function()
    assert.equal(12, json.decode("12"))
    assert.equal("a\0b", json.decode('"a\\u0000b"'))
    assert.is_true(json.decode(" true "))
  end)

  it("reports file, line and column of an error", function()
    local err = fails(json.decode, '{\n  "a": 1,\n  "b": ]\n}', "settings.json")
    assert.equal("MR_E_DATA", err.code)
    assert.matches("settings%.json: line 3, column %d+: ", tostring(err))
  end)

  it("refuses duplicate keys, incomplete or trailing text and integers too large", function()
    assert.matches("duplicate", tostring(fails(json.decode, '{"a":1,"a":2}')))
    for _, text in ipairs { '{"a":', "", "[1,2", "[1] x", '"\\ud800"', "99999999999999999999",
        "nan" } do
      assert.equal("MR_E_DATA", fails(json.decode, text).code)
    end
  end)

  it("refuses nesting that would exhaust the stack", function()
    assert.matches("nested deeper", tostring(fails(json.decode, ("["):rep(500) .. ("]"):rep(500))))
    assert.equal("MR_E_DATA", fails(json.decode, ("["):rep(100000)).code)
  end)
end)

describe("json.encode", function()
  it("sorts keys, so that equal tables give equal text", function()
    assert.equal('{"a":1,"b":{"x":true,"y":false},"c":[1,2]}',
      json.encode { c = { 1, 2 }, b = { y = false, x = true }, a = 1 })
  end)

  it("indents on request", function()
    assert.equal('{\n  "a": [\n    1\n  ],\n  "b": {}\n}',
      json.encode({ a = { 1 }, b = {} }, { indent = 2 }))
  end)

  it("writes floats that are read back to the same bits", function()
    local seed = 12345
    print("json spec seed " .. seed)
    math.randomseed(seed)
    for _ = 1, 2000 do
      local x = string.unpack("d", string.pack("j", math.random(0)))
      if x == x and math.abs(x) ~= math.huge then
        local back = json.decode(json.encode(x))
        assert.equal(string.pack("d", x), string.pack("d", back))
        assert.equal("float", math.type(back))
      end
    end
    assert.equal("0.1", json.encode(0.1))
    assert.equal("3.0", json.encode(3.0))
    assert.equal("-0.0", json.encode(-0.0))
  end)

  it("keeps the smallest and the largest integer", function()
    for _, i in ipairs { math.maxinteger, math.mininteger, 0 } do
      assert.equal(i, json.decode(json.encode(i)))
    end
  end)

  it("escapes what must be escaped and nothing else", function()
    local text = 'a"b\\c\n\t\1\127/ä€😀'
    assert.equal('"a\\"b\\\\c\\n\\t\\u0001\\u007f/ä€😀"', json.encode(text))
    assert.equal(text, json.decode(json.encode(text)))
  end)

  it("reports the path of a value that JSON cannot express", function()
    assert.matches("value%.a%[2%]%.loss: NaN",
      tostring(fails(json.encode, { a = { 1, { loss = 0 / 0 } } })))
    assert.matches("value%.x: infinity", tostring(fails(json.encode, { x = math.huge })))
    assert.matches("value%.f: a function", tostring(fails(json.encode, { f = print })))
    assert.matches("value%.t: text is not UTF%-8", tostring(fails(json.encode, { t = "\xff" })))
    assert.matches("UTF%-8", tostring(fails(json.encode, "\xc0\x80")))
    assert.matches("UTF%-8", tostring(fails(json.encode, "\xed\xa0\x80")))
    assert.matches("both list entries and names", tostring(fails(json.encode, { 1, 2, x = 3 })))
    assert.matches("holes", tostring(fails(json.encode, { [1] = 1, [5] = 2 })))
    local loop = {}
    loop.loop = loop
    assert.matches("inside itself", tostring(fails(json.encode, loop)))
  end)

  it("writes an empty marked table as a list", function()
    assert.equal("[]", json.encode(json.array()))
    assert.equal("{}", json.encode {})
    assert.equal("null", json.encode(json.null))
  end)
end)
