--- The first frame of a clip, rendered by an image model: the model and the request to it. The
-- command is tested in spec/recipes/opensora20_inference_spec.lua.
local fails = require "spec.support.fails"
local first_frame = require "moonreel.sample.first_frame"
local settings = require "moonreel.settings"

local PLACE <const> = "opensora-2.0/inference/"

describe("a first frame", function()
  it("is refused without an image model, for other conditions and without a size", function()
    local s = settings.bake(PLACE .. "256px", { "use_t2i2v=true" })
    fails("MR_E_RECIPE", "use_t2i2v=true: sampling.use_t2i2v = true, but img_flux",
      first_frame.settings, s)
    s = settings.bake(PLACE .. "t2i2v_256px")
    fails("MR_E_USAGE", "cond_type is v2v_head; try: %-%-cond%-type i2v_head", first_frame.check, s,
      "v2v_head", false)
    fails("MR_E_USAGE", "has its own references; try: sampling%.use_t2i2v=false",
      first_frame.check, s, "i2v_head", true)
    first_frame.check(s, "i2v_head", false)
    fails("MR_E_USAGE", "model%.cond_embed=false: .*takes no first frame", first_frame.check,
      settings.bake(PLACE .. "t2i2v_256px", { "model.cond_embed=false" }), "t2v", false)
    s = settings.bake(PLACE .. "t2i2v_256px", { "img_resolution=huge" })
    fails("MR_E_USAGE", "sampling.img_resolution = huge: there is no size of 16:9",
      first_frame.options, s, {}, 16)
  end)

  it("is requested with the image model's settings, half of them under compat", function()
    local function size(cell, ...)
      local o = first_frame.options(settings.bake(PLACE .. "t2i2v_256px", { ... }), {}, cell)
      return { o.height, o.width }
    end
    assert.same({ 576, 1024 }, size(16))
    assert.same({ 288, 512 }, size(32))
    assert.same({ 576, 1024 }, size(32, "compat=none"))
    -- only the model of clips gets rate and motion score
    assert.is_true(first_frame.options(settings.bake(PLACE .. "t2i2v_256px"), {}, 16).plain)
    local own, path = first_frame.settings(settings.bake(PLACE .. "t2i2v_256px"))
    assert.same({ "flux", true, true, false, "autoencoder_2d", "./ckpts/flux1-dev.safetensors" },
      { own.model.type, own.model.guidance_embed, own.model.fused_qkv, own.model.cond_embed,
      own.vae.type, path })
    assert.is_nil(own.ckpt_path)
  end)

  it("reports errors of the image model by the lines and arguments of the recipe", function()
    local blame = require "moonreel.settings.blame"
    local base = require "moonreel.core.base"
    local own = first_frame.settings(settings.bake(PLACE .. "t2i2v_256px",
      { "img_flux.hidden_size=33", "sampling.seed=5" }))
    assert.equal("img_flux.hidden_size=33", own:origin "model.hidden_size")
    assert.matches("^recipes/opensora%-2.0/inference/plugins/t2i2v.lua:5$",
      own:origin "model.guidance_embed")
    assert.equal("default", own:origin "model.depth")
    assert.equal("sampling.seed=5", own:origin "sampling.seed")
    assert.matches("^recipes/opensora%-2.0/inference/.*t2i2v_256px.lua$", own.recipe)
    fails("MR_E_RECIPE", "^img_flux.hidden_size=33: .-img_flux: hidden_size 33 and img_flux.depth, "
      .. "img_flux_ae.type, ./model.safetensors\n  img_flux.depth", blame.renamed, own,
      first_frame.moved, blame.record, own, "model", function()
        base.raise("MR_E_RECIPE", "model: hidden_size 33 and model.depth, vae.type, "
          .. "./model.safetensors\n  model.depth")
      end)
  end)
end)
