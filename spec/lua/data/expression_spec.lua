--- Lua expressions over index rows.
local expression = require "moonreel.data.expression"

local row = { path = "a/b.mp4", text = "a red ball", frames = 51, height = 360, width = 640,
  fps = 23.976, duration_ms = 2127, bytes = 90000, codec = "h264", image = false, flags = 5,
  key = ("0"):rep(32), file = "/x/a/b.mp4", columns = { aesthetic = 5.5 } }
local columns = { "aesthetic", "flow" }

local function value(text) return expression.compile(text, columns)(row) end
local function problem(text, pattern)
  local ok, message = pcall(value, text)
  assert.is_false(ok)
  assert.matches(pattern, tostring(message))
  assert.equal("MR_E_USAGE", message.code)
end

describe("data.expression", function()
  it("is Lua over the fields and columns of a row", function()
    for text, want in pairs { ["num_frames >= 51 and frames == num_frames"] = true,
      ["resolution"] = 640 * 360, ["aspect_ratio"] = 0.5625, ["seconds > 2.1"] = true,
      ["#text"] = 10, ["text_bytes"] = 10, ["text:find('red') ~= nil"] = true,
      ["path:match('%.(%w+)$')"] = "mp4", ["vfr and interlaced"] = true, ["image"] = false,
      ["max(aesthetic, 2) + floor(fps)"] = 28.5, ["math.type(bytes)"] = "integer",
      ["flow == nil or flow > 1"] = true } do
      assert.equal(want, value(text), text)
    end
  end)

  it("names the value that a row lacks", function()
    local got, why = value("aesthetic > 5 and flow > 0.5")
    assert.is_nil(got)
    assert.equal("no value of flow", why)
  end)

  it("refuses syntax errors, unknown names and failures", function()
    problem("fps >", "expression 'fps >': unexpected symbol")
    problem("asthetic > 5",
      "no field 'asthetic', did you mean 'aesthetic'%?; expected one of path, text, .*flow")
    problem("text + 1", "'text %+ 1': a/b%.mp4: attempt to add a 'string' with a 'number'")
    problem("(function() x = 1 end)()", "'x' cannot be set")
    problem("(function() string.rep = nil end)()", "'rep' cannot be set")
    problem("(function() math.huge = 1 end)()", "'huge' cannot be set")
    problem("os.exit(0)", "no field 'os'")
    problem("load('return 1')", "no field 'load'")
    problem(" ", "expression ' ': is empty; try: 'fps >= 23")
  end)

  it("reports the expression's file and line, not a position inside the expression", function()
    for _, text in ipairs { "asthetic > 5", "fps >", "text + 1" } do
      local _, message = pcall(value, text)
      assert.is_nil(tostring(message):find("[string", 1, true))
    end
  end)

  it("proposes the Lua form of operators of other languages", function()
    for text, try in pairs { ["fps > 3 && image"] = "'and' instead of '&&'",
      ["fps > 3 || image"] = "'or' instead of '||'", ["fps != 24"] = "'~=' instead of '!='",
      ["fps <> 24"] = "'~=' instead of '<>'", ["!image"] = "'not' instead of '!'",
      ["fps > 3 AND image"] = "'and' instead of 'AND'", ["NOT image"] = "'not' instead of 'NOT'",
      ["text = 'red'"] = "'==' instead of '='", ["flow is NULL"] = "'FIELD == nil' "
        .. "instead of 'is null'",
      ["flow IS NOT NULL"] = "'FIELD ~= nil' instead of 'is not null'",
      ["text LIKE '%red%'"] = "'text:find('words')' instead of 'like'",
      ["fps BETWEEN 2 AND 3"] = "instead of 'between'", ["fps in (24, 25)"] = "instead of 'in'",
      } do
      problem(text, "; try: .*" .. try:gsub("%p", "%%%0") .. "$")
    end
    -- no proposal for quoted text or for other errors
    problem("text == 'a && b' fps", "expected near 'fps'$")
    problem("fps >= ", "near <eof>$")
  end)

  it("stops an expression that does not end", function()
    problem("(function() while true do end end)()", "does not end within %d+ instructions")
    -- the limit counts for each row
    expression.budget = 4000
    local test = expression.compile("(function() local n = 0 for i = 1, 500 do n = n + i end "
      .. "return n end)()", columns)
    for _ = 1, 20 do
      assert.equal(125250, test(row))
    end
    expression.budget = 10 * 1000 * 1000
    -- also inside library functions
    local slow = setmetatable({ text = ("a"):rep(2000) }, { __index = row })
    assert.is_nil(expression.compile("text:find('.-.-.-.-.-.-b')", columns)(slow))
    assert.is_nil(expression.compile("string.find(text, '.-.-.-.-.-.-b')", columns)(slow))
    problem("text:rep(1e9)", "a/b%.mp4: string%.rep: the text would pass 1048576 bytes")
    problem("text:find('(a)%1')", "a/b%.mp4: pattern '%(a%)%%1': '%%1' is not supported")
    assert.equal(1, (("a"):find("a")))
  end)
end)
