--- Separate guidance by text and by image. Reference values: make golden (denoise_*).
-- Covers: lua/moonreel/diffusion/guide.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local guide = require "moonreel.diffusion.guide"

describe("guidance", function()
  local o = { guidance = 7, guidance_img = 3, text_osci = true, image_osci = true,
    scale_temporal_osci = true }

  it("is 1 at each other step from the eleventh on, when it oscillates", function()
    assert.same({ 7, 3 }, { guide.scales(o, 9) })
    assert.same({ 7, 3 }, { guide.scales(o, 10) })
    assert.same({ 1, 1 }, { guide.scales(o, 11) })
    assert.same({ 7, 1 }, { guide.scales({ guidance = 7, guidance_img = 3, image_osci = true },
      11) })
  end)

  it("grows over the frames of a clip that an image begins, less with each step", function()
    assert.same({ 1, 2, 3 }, guide.image(o, "i2v_head", 0, 10, 3))
    assert.same({ 1, 1.5, 2 }, guide.image(o, "i2v_head", 5, 10, 3))
    assert.same({ 3, 3, 3 }, guide.image(o, "t2v", 0, 10, 3))
    assert.same({ 3, 3 }, guide.image(o, "v2v_head", 0, 10, 2))
    assert.same({ 1, 1 }, guide.image(o, "i2v_loop", 11, 20, 2))
    assert.same({ 1 }, guide.image(o, "i2v_head", 0, 10, 1))
  end)

  it("mixes three predictions", function()
    local params = G.params("f32"):seal()
    local run <close>, g = E.new(E.device("cpu", 1), params, {}), G.graph(params)
    local v = g:input("v", "f32", { 3, 1, 2, 1, 1 })
    g:output("mixed", guide.mix(v, g:input("text", "f32", { 1 }), g:input("image", "f32", { 2 })))
    g:finish()
    local prog = run:compile(g)
    prog:set("v", T.from({ 3, 1, 2, 1, 1 }, { 10, 20, 4, 6, 1, 2 }))
    prog:set("text", T.from({ 1 }, { 2 }))
    prog:set("image", T.from({ 2 }, { 3, 0.5 }))
    prog:run()
    -- 1 + 3 (4 - 1) + 2 (10 - 4), 2 + (6 - 2) / 2 + 2 (20 - 6)
    assert.same({ 22, 32 }, prog:get("mixed"):totable())
  end)

  it("mixes two predictions without a condition", function()
    local params = G.params("f32"):seal()
    local run <close>, g = E.new(E.device("cpu", 1), params, {}), G.graph(params)
    local v = g:input("v", "f32", { 2, 1, 2, 1, 1 })
    g:output("mixed", guide.mix(v, g:input("text", "f32", { 1 })))
    g:finish()
    local prog = run:compile(g)
    prog:set("v", T.from({ 2, 1, 2, 1, 1 }, { 10, 20, 4, 6 }))
    prog:set("text", T.from({ 1 }, { 2 }))
    prog:run()
    -- 4 + 2 (10 - 4), 6 + 2 (20 - 6)
    assert.same({ 16, 34 }, prog:get("mixed"):totable())
  end)
end)
