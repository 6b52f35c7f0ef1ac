--- Questions about rows.
local expression = require "moonreel.data.expression"

local row = { path = "a/b.mp4", text = "a red ball", frames = 51, height = 360, width = 640,
  fps = 23.976, duration_ms = 2127, bytes = 90000, codec = "h264", image = false, flags = 5,
  key = ("0"):rep(32), file = "/x/a/b.mp4", columns = { aesthetic = 5.5 } }
local columns = { "aesthetic", "flow" }

local function value(text) return expression.compile(text, columns)(row) end
local function problem(text, pattern)
  local ok, story = pcall(value, text)
  assert.is_false(ok)
  assert.matches(pattern, tostring(story))
  assert.equal("MR_E_USAGE", story.code)
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

  it("says which value a row lacks", function()
    local got, why = value("aesthetic > 5 and flow > 0.5")
    assert.is_nil(got)
    assert.equal("no value of flow", why)
  end)

  it("refuses what is no expression, unknown names and failures", function()
    problem("fps >", "expression 'fps >': unexpected symbol")
    problem("asthetic > 5",
      "no field 'asthetic', did you mean 'aesthetic'%?; it has path, text, .*flow")
    problem("text + 1", "'text %+ 1': a/b%.mp4: attempt to add a 'string' with a 'number'")
    problem("(function() x = 1 end)()", "'x' cannot be set")
    problem("(function() string.rep = nil end)()", "'rep' cannot be set")
    problem("(function() math.huge = 1 end)()", "'huge' cannot be set")
    problem("os.exit(0)", "no field 'os'")
    problem("load('return 1')", "no field 'load'")
  end)

  it("ends what does not end", function()
    problem("(function() while true do end end)()", "does not end within %d+ instructions")
    -- and counts each row for itself
    expression.budget = 4000
    local test = expression.compile("(function() local n = 0 for i = 1, 500 do n = n + i end "
      .. "return n end)()", columns)
    for _ = 1, 20 do
      assert.equal(125250, test(row))
    end
    expression.budget = 1000 * 1000
  end)
end)
