--- Visual conditions: the frames that they give, for which clips, and how they are drawn. Reference
-- values: make golden (condition_*).
-- Covers: lua/moonreel/diffusion/condition.lua
local T = require "moonreel.core.tensor"
local condition = require "moonreel.diffusion.condition"
local fails = require "spec.support.fails"

describe("visual conditions", function()
  local function text(name, latent, frames, causal)
    local out = {}
    for i, part in ipairs(condition.parts(name, latent, frames, 4, causal)) do
      out[i] = ("%d+%d<%d+%d%s"):format(part.at, part.n, part.first, part.frames,
        part.slice and "s" or "")
    end
    return table.concat(out, " ")
  end

  it("give frames at the ends of a clip", function()
    assert.equal("", text("t2v", 9, 33, true))
    assert.equal("0+1<0+1", text("i2v_head", 9, 33, true))
    assert.equal("8+1<32+1", text("i2v_tail", 9, 33, true))
    assert.equal("0+1<0+1 8+1<32+1", text("i2v_loop", 9, 33, true))
    assert.equal("0+9<0+33", text("v2v_head", 18, 69, true))
    assert.equal("9+9<36+33", text("v2v_tail", 18, 69, true))
    assert.equal("1+17<4+65", text("v2v_tail_easy", 18, 69, true))
    -- of an autoencoder that is not causal are part of the clip's latent
    assert.equal("0+8<0+32s", text("v2v_head", 18, 72, false))
    assert.equal("17+1<71+1", text("i2v_tail", 18, 72, false))
  end)

  it("are left out when a clip is too short, without a change of the recipe", function()
    local all = { { "t2v", 1 }, { "v2v_head", 3 }, { "v2v_tail_easy", 4 } }
    local function left(latent, causal)
      local names = {}
      for i, row in ipairs(condition.fitting(all, latent, 4, causal)) do
        names[i] = row[1]
      end
      return table.concat(names, " ")
    end
    assert.equal("t2v", left(9, true))
    assert.equal("t2v v2v_head", left(10, true))
    assert.equal("t2v v2v_head", left(17, true))
    assert.equal("t2v v2v_head v2v_tail_easy", left(18, true))
    assert.equal("t2v v2v_head", left(9, false))
    assert.equal(3, #all)
  end)

  it("are drawn by weight in the order of the recipe", function()
    local weights = { { "t2v", 1 }, { "i2v_head", 5 }, { "i2v_loop", 2 } }
    for u, name in pairs { [0] = "t2v", [0.124] = "t2v", [0.125] = "i2v_head",
        [0.74] = "i2v_head", [0.75] = "i2v_loop", [0.9999] = "i2v_loop" } do
      assert.equal(name, condition.draw(weights, u))
    end
    assert.is_nil(condition.draw({}, 0.5))
  end)

  it("exclude given ends from a loss, unless they continue inside", function()
    local function counted(row)
      local mask, out = {}, {}
      for i = 1, #row do
        mask[i] = row:sub(i, i) == "x"
      end
      for i, yes in ipairs(condition.counted(mask)) do
        out[i] = yes and "1" or "0"
      end
      return table.concat(out)
    end
    assert.equal("0111", counted "x...")
    assert.equal("1110", counted "...x")
    assert.equal("0110", counted "x..x")
    assert.equal("1111", counted "xx..")
    assert.equal("1111", counted "..xx")
    assert.equal("1111", counted "....")
  end)

  it("are joined with their mask in all copies but the third, and are put back", function()
    local dims = { 2, 1, 3, 1, 2 }
    local given = { { { at = 2, z = T.from({ 1, 1, 1, 2 }, { 7, 8 }) } }, {} }
    local function rows(copies)
      local all, out = condition.of_copies(dims, given, copies):totable(), {}
      for i = 1, #all, 6 do
        out[#out + 1] = table.concat(table.move(all, i, i + 5, 1, {}), " ")
      end
      return out
    end
    local nothing, mask, latent = "0.0 0.0 0.0 0.0 0.0 0.0", "0.0 0.0 0.0 0.0 1.0 1.0",
      "0.0 0.0 0.0 0.0 7.0 8.0"
    assert.same({ mask, latent, nothing, nothing }, rows(1))
    assert.same({ mask, latent, nothing, nothing, mask, latent, nothing, nothing }, rows(2))
    local three = rows(3)
    assert.equal(12, #three)
    assert.same({ mask, latent, nothing, nothing, nothing, nothing, nothing, nothing },
      table.move(three, 5, 12, 1, {}))
    local z = T.new("f32", dims) + 1
    condition.put_back(z, 1, given[1])
    assert.same({ 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7, 8 }, z:totable())
  end)

  it("are found by name", function()
    assert.equal(8, #condition.names())
    fails("MR_E_RECIPE", "condition_config: 'v2v_half' is not a kind of condition; expected one "
      .. "of i2v_head, i2v_loop, i2v_tail, t2v, v2v_head, v2v_head_easy, v2v_tail, v2v_tail_easy",
      condition.length, "v2v_half", 4, true)
  end)
end)
