--- Patterns without an exponential number of ways to match.
local pattern = require "moonreel.text.pattern"

-- the result of a function, or that it refuses
local function answer(f, ...)
  local list = table.pack(pcall(f, ...))
  return list[1] and list or { false, n = 1 }
end

-- each match of gmatch, in lists
local function all(gmatch, ...)
  local list = {}
  for a, b in gmatch(...) do
    list[#list + 1] = { a, b }
  end
  return list
end

local pieces = { "a", "b", ".", "%a", "%d", "[ab]", "[^a]", "[a-c]", "[]]", "[%]b]", "%.", "%%",
  "-", "^", "$", "(", ")", "()", "%f[a]", "%f[%A]", "%f[^b]", "\0", "\xc3", "[\xc3\xa4]" }
local times = { "", "", "", "*", "+", "-", "?" }
local letters = { "a", "a", "b", "c", "1", ".", "%", "-", "]", "^", "\0", "\xc3\xa4", "(" }

local function drawn(list, most)
  local out = {}
  for i = 1, math.random(0, most) do
    out[i] = list[math.random(#list)]
  end
  return out
end
local function drawn_pattern()
  local list = drawn(pieces, 5)
  for i, piece in ipairs(list) do
    list[i] = piece .. times[math.random(#times)]
  end
  return (math.random(4) == 1 and "^" or "") .. table.concat(list)
    .. (math.random(4) == 1 and "$" or "")
end

describe("text.pattern", function()
  it("returns what Lua returns", function()
    math.randomseed(20)
    local matched = 0
    for _ = 1, 800 do
      local text, p = table.concat(drawn(letters, 8)), drawn_pattern()
      local init, plain = math.random(-3, 5), math.random(8) == 1
      -- Lua reports an error of a pattern only where it reaches it
      local good = pcall(pattern.match, "", p)
      if good then
        local case = ("%q %q %d"):format(text, p, init)
        matched = matched + (text:find(p) and 1 or 0)
        assert.same(answer(string.find, text, p, init, plain),
          answer(pattern.find, text, p, init, plain), case)
        assert.same(answer(string.match, text, p, init), answer(pattern.match, text, p, init), case)
        assert.same(answer(all, string.gmatch, text, p), answer(all, pattern.gmatch, text, p),
          case)
        for _, by in ipairs { "<%0>", "%%%1", { a = "x", b = false }, string.upper } do
          local most = math.random(3) == 1 and math.random(0, 2) or nil
          assert.same(answer(string.gsub, text, p, by, most),
            answer(pattern.gsub, text, p, by, most), case)
        end
      end
    end
    assert.is_true(matched > 150)
  end)

  it("ends although there are exponentially many ways", function()
    local text = ("a"):rep(300)
    for _, p in ipairs { ("a?"):rep(300) .. ("a"):rep(301), (".-"):rep(20) .. "b",
      ("a*"):rep(40) .. "b", ("[ab]+"):rep(20) .. "c", "(.-)(.-)(.-)(.-)(.-)(.-)b" } do
      assert.is_nil(pattern.find(text, p))
      assert.is_nil(pattern.match(text, p))
      assert.equal(0, select(2, pattern.gsub(text, p, "")))
    end
    assert.equal(300, select(2, pattern.find(text, ("a?"):rep(30) .. ("a"):rep(300))))
  end)

  it("refuses captures that depend on the way, and invalid patterns", function()
    for p, problem in pairs { ["(a)%1"] = "'%%1' is not supported; expected Lua's patterns "
      .. "without",
      ["%b()"] = "'%%b' is not supported", ["a%"] = "ends with '%%'", ["[a"] = "missing '%]'",
      ["(a"] = "unfinished capture", ["a)."] = "'%)' without '%('", ["%fa"] = "missing '%['" } do
      local ok, message = pcall(pattern.find, "a", p)
      assert.is_false(ok)
      assert.matches(problem, message)
    end
    assert.matches("argument #1 to 'find' %(text expected, got nil%)",
      select(2, pcall(pattern.find, nil, "a")))
    assert.matches("argument #3 to 'gsub'", select(2, pcall(pattern.gsub, "a", "a", nil)))
    assert.matches("invalid use of '%%'", select(2, pcall(pattern.gsub, "a", "a", "%2")))
  end)
end)
