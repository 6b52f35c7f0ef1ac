--- The grammar of mask_strategy, its effect on latents, and errors with their group;
-- spec/golden/mask_strategy.safetensors has the reference's own cases.
local T = require "moonreel.core.tensor"
local strategy = require "moonreel.diffusion.strategy"

local function message(f, ...)
  local good, err = pcall(f, ...)
  assert.is_false(good)
  assert.equal("MR_E_USAGE", err.code)
  return err.message
end

-- latents [1, frames, 1, 1] whose values are first, first + 1, ...
local function clip(frames, first)
  local values = {}
  for i = 1, frames do
    values[i] = first + i - 1
  end
  return T.from({ 1, frames, 1, 1 }, values)
end

local function applied(text, frames, options)
  local z = clip(frames, 0)
  options.loop = options.loop or 0
  local mask = strategy.apply(z, strategy.parse(text), options)
  return z:totable(), mask:totable()
end

describe("mask_strategy", function()
  it("fills missing fields from the right with defaults", function()
    local g = strategy.parse "0;1, 2,-5,3,2,0.4"
    assert.same({ 0, 0, 0, 0, 1, 0 }, { g[1].loop, g[1].reference, g[1].from, g[1].to, g[1].length,
      g[1].edit })
    assert.same({ 1, 2, -5, 3, 2, 0.4 }, { g[2].loop, g[2].reference, g[2].from, g[2].to,
      g[2].length, g[2].edit })
    assert.same({}, strategy.parse "")
    assert.same({}, strategy.parse(nil))
  end)

  it("reports the group and the field that are wrong", function()
    assert.matches("^.*mask_strategy, group 2 '0,x': reference is 'x'; expected a whole number",
      message(strategy.parse, "0;0,x"))
    assert.matches("group 1 '0,,1': reference is ''", message(strategy.parse, "0,,1"))
    assert.matches("reference start is '1.5'; expected a whole number",
      message(strategy.parse, "0,0,1.5"))
    assert.matches("group 2 '': loop is ''", message(strategy.parse, "0;"))
    assert.matches("more than 6 fields", message(strategy.parse, "0,0,0,0,1,0,7"))
    assert.matches("length 0; expected 1 or more", message(strategy.parse, "0,0,0,0,0"))
    assert.matches("edit 2.0; expected 0", message(strategy.parse, "0,0,0,0,1,2"))
    assert.matches("edit is 'nan'; expected a number", message(strategy.parse, "0,0,0,0,1,nan"))
    assert.matches("loop %-1; expected 0 or more", message(strategy.parse, "-1"))
    assert.matches("reference %-2; expected 0 or more", message(strategy.parse, "0,-2"))
  end)

  it("copies frames of references and sets how much of them is kept", function()
    local z, mask = applied("0,0,1,2,2;0,1,0,-1,1,0.5", 6,
      { references = { clip(4, 100), clip(1, 200) } })
    assert.same({ 0, 1, 101, 102, 4, 200 }, z)
    assert.same({ 1, 1, 0, 0, 1, 0.5 }, mask)
  end)

  it("copies no more frames than target and reference have", function()
    assert.same({ 0, 1, 2, 3, 103, 104 },
      (applied("0,0,3,4,9", 6, { references = { clip(9, 100) } })))
    assert.same({ 0, 101, 2, 3 }, (applied("0,0,-1,1,9", 4, { references = { clip(2, 100) } })))
  end)

  it("writes groups in their order, only those of the loop", function()
    local z, mask = applied("0,0,0,0,2;1,0,0,3,1;0,1,0,1,1,1", 4,
      { references = { clip(4, 100), clip(1, 200) } })
    assert.same({ 100, 200, 2, 3 }, z)
    assert.same({ 0, 1, 1, 1 }, mask)
  end)

  it("moves starts to multiples of align", function()
    assert.equal(5, strategy.snap(3, 5, 15))
    assert.equal(0, strategy.snap(2, 5, 15))
    assert.equal(10, strategy.snap(14, 5, 15))
    assert.equal(0, strategy.snap(2, 4, 12))
    local z = applied("0,0,1,8,5", 15, { references = { clip(5, 100) }, align = 5 })
    assert.same({ 9, 100, 104 }, { z[10], z[11], z[15] })
  end)

  it("refuses indices out of range", function()
    local one = { references = { clip(4, 100) } }
    assert.matches("group 2 '0,1': reference 1, but there are only 1, counted from 0",
      message(applied, "0;0,1", 4, one))
    assert.matches("group 1 '0,0,4': reference start 4 lies outside 4 latent frames",
      message(applied, "0,0,4", 4, one))
    assert.matches("reference start %-5 lies outside 4", message(applied, "0,0,-5", 4, one))
    assert.matches("target start 9 lies outside 4", message(applied, "0,0,0,9", 4, one))
    assert.matches("align 5 does not divide 12 latent frames",
      message(applied, "0", 12, { references = one.references, align = 5 }))
  end)

  it("continues from the end of the clip before", function()
    local g = strategy.continue(2, 1, 5, 0.25)
    assert.same({ 2, 1, -5, 0, 5, 0.25 }, { g.loop, g.reference, g.from, g.to, g.length, g.edit })
  end)
end)
