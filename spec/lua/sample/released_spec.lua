--- Released weights in the folder of Open-Sora 2.0, found by their names. loops_spec.lua tests the
-- folder of 1.2, found by config.json.
local base = require "moonreel.core.base"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local override = require "moonreel.recipe.override"
local released = require "moonreel.sample.released"
local sample = require "moonreel.sample"
local settings = require "moonreel.settings"
local tiny20 = require "spec.support.tiny20"

describe("released weights of 2.0", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  it("select the recipe of their name, and the files that it names in their folder", function()
    dir:write("Open_Sora_v2.safetensors", "")
    local path = dir.path .. "/Open_Sora_v2.safetensors"
    assert.equal(path, released.file_of(dir.path))
    assert.equal(path, released.file_of(dir.path .. "/"))
    assert.equal(path, released.file_of(path))
    assert.equal("outputs/1", released.file_of "outputs/1")
    local s = released.settings({ path = path }, { override.parse "resolution=768px" })
    local same = settings.bake("opensora-2.0/inference/256px", { "resolution=768px" })
    assert.same({ dir.path .. "/hunyuan_vae.safetensors", dir.path .. "/google/t5-v1_1-xxl",
      dir.path .. "/openai/clip-vit-large-patch14", path }, { s.vae.from_pretrained,
      s.text_encoder.from_pretrained, s.clip.from_pretrained, s.ckpt_path })
    assert.same(same:plain "sampling", s:plain "sampling")
    assert.same(same:plain "model", s:plain "model")
    s = released.settings({ path = "x/Open_Sora_v2_Video_DC_AE.safetensors" }, {})
    assert.same({ "dc_ae", "x/F32T4C128_AE.safetensors", "x/flux1-dev.safetensors", 1 },
      { s.vae.type, s.vae.from_pretrained, s.img_flux.from_pretrained, s.model.patch_size })
  end)

  it("are rendered, and config.json decides when the folder has one", function()
    local name = "opensora-2.0/inference/256px"
    local s, arguments = tiny20.make(name, dir.path)
    local list = {}
    for _, text in ipairs(arguments) do
      local one = override.parse(text)
      -- only sizes: paths are those of the folder
      list[#list + 1] = not text:find "from_pretrained" and not text:find "ckpt_path" and one or nil
    end
    for from, to in pairs { ["model.safetensors"] = "Open_Sora_v2.safetensors",
        ["vae.safetensors"] = "hunyuan_vae.safetensors", t5 = "google/t5-v1_1-xxl",
        clip = "openai/clip-vit-large-patch14" } do
      base.make_dir((dir.path .. "/" .. to):match "^(.*)/")
      assert(os.rename(dir.path .. "/" .. from, dir.path .. "/" .. to))
    end
    local sampler <close> = sample.open(dir.path, { overrides = list, threads = 1 })
    assert.equal(s.model.hidden_size, sampler.settings.model.hidden_size)
    local clip = sampler:render { prompts = { "a" }, seeds = { 1 }, steps = 1, frames = 5,
      height = 32, width = 32 }[1]
    assert.equal(5 * 3 * 32 * 32, #clip.pixels)
    -- a folder with config.json is not searched for these names
    dir:write("config.json", "{}")
    assert.equal(dir.path, released.file_of(dir.path))
    fails("MR_E_USAGE", "other.safetensors: this file has weights, but no settings",
      released.settings, { path = dir.path .. "/other.safetensors" }, {})
  end)
end)
