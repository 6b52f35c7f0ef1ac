local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local bytes = require "moonreel.models.bytes"

describe("models.bytes", function()
  local encoder = bytes.new(G.params("f32"),
    {width = 16, rows = 32, ngrams = 3, max_length = 5, num_heads = 2})

  it("returns bytes and the n-grams that end at each of them", function()
    local t = encoder:tokens{"ab", "", "abcdefgh"}
    assert.same({2, 0, 5}, t.len:totable())
    local ids, grams = t.ids:totable(), t.grams:totable()
    assert.same({97, 98, -1, -1, -1}, table.move(ids, 1, 5, 1, {}))
    -- the first byte ends a 1-gram only, the second also a 2-gram
    assert.is_true(grams[1] >= 0 and grams[2] == -1 and grams[3] == -1)
    assert.is_true(grams[4] >= 0 and grams[5] >= 0 and grams[6] == -1)
    -- equal beginnings have equal n-grams
    assert.equal(grams[5], grams[2 * 15 + 5])
  end)

  it("refuses heads that do not divide the width", function()
    assert.matches("width 16 is not an even multiple of num_heads 3",
      tostring(select(2, pcall(bytes.new, G.params("f32"), {width = 16, num_heads = 3}))))
  end)

  -- features of two captions; `change` may write other tokens
  local function features(change)
    local params = G.params("f32")
    local one = bytes.new(params, {width = 16, rows = 32, ngrams = 3, max_length = 5,
      num_heads = 2})
    params:seal()
    local run = E.new(E.device("cpu", 1), params, {})
    run:init(1)
    local g = G.graph(params)
    g:output("y", one:forward(g, one:inputs(g, 2)))
    g:finish()
    local prog, tokens = run:compile(g), one:tokens{"ab", "abcd"}
    if change then
      change(tokens)
    end
    one:set(prog, tokens)
    prog:run()
    return prog:get("y")
  end

  local function equal(a, b, sample, first, last)
    local function part(t) return t:slice(0, sample, sample + 1):slice(1, first, last):clone() end
    return part(a):bytes() == part(b):bytes()
  end

  it("reads no token after the end of a caption", function()
    local plain = features()
    local longer = features(function(tokens)
      local ids = tokens.ids:totable()
      -- after the end of the first caption, and inside the second
      ids[3], ids[9] = 120, 120
      tokens.ids = T.from({2, 5, 1}, ids, "i32")
    end)
    assert.is_true(equal(plain, longer, 0, 0, 2))
    assert.is_false(equal(plain, longer, 1, 0, 2))
  end)
end)
