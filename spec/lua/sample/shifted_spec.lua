--- Renderings of Open-Sora 2.0 with tiny random models: texts, seeds, conditions, guidance, and
-- what is refused. The reference values come from make golden (denoise_*, condition_infer, out).
-- Covers: lua/moonreel/sample/shifted.lua lua/moonreel/sample/given.lua
-- lua/moonreel/sample/references.lua
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local sample = require "moonreel.sample"
local settings = require "moonreel.settings"
local tiny20 = require "spec.support.tiny20"
local weights = require "datasets.demo.weights"

local RECIPE = "opensora-2.0/inference/256px"

describe("a rendering of 2.0", function()
  local dir, arguments, picture, clip
  local open = {}

  -- the sampler of a recipe, opened once
  local function sampler(name, ...)
    local key = table.concat({ name, ... }, " ")
    if not open[key] then
      local place = dir.path .. "/" .. name:match("[^/]+$")
      arguments[name] = arguments[name] or select(2, tiny20.make(name, place))
      local list = table.move(arguments[name], 1, #arguments[name], 1, {})
      table.move({ ... }, 1, select("#", ...), #list + 1, list)
      local s = settings.bake(name, list)
      if not base.exists(s.ckpt_path) then
        weights.mmdit(s.ckpt_path, s:plain "model", 9)
      end
      open[key] = sample.open(s.ckpt_path, { settings = s, ema = false, threads = 1 })
    end
    return open[key]
  end

  local function video(...) return sampler(RECIPE, ...) end

  local function asked(more)
    local o = { prompts = { "a red circle" }, seeds = { 1 }, steps = 2, frames = 9, height = 32,
      width = 48 }
    for name, value in pairs(more or {}) do
      o[name] = value
    end
    return o
  end

  -- latents before decoding, one for each rendering
  local function latents(one, more)
    local list, decode = {}, getmetatable(one.codec).__index.decode
    function one.codec.decode(codec, z, ...)
      list[#list + 1] = z:clone()
      return decode(codec, z, ...)
    end
    local clips = one:render(asked(more))
    one.codec.decode = nil
    return list, clips
  end

  -- expects an error with both values and the line
  local function refused(pattern, one, more, code)
    fails(code or "MR_E_USAGE", pattern, one.render, one, asked(more))
  end

  local function off(a, b) return (a - b):norm() / b:norm() end

  -- frames first to last of latents
  local function frames(z, first, last) return z:slice(1, first, last):clone() end

  setup(function()
    dir, arguments = folder.new(), {}
    picture, clip = dir.path .. "/still.png", dir.path .. "/clip.mp4"
    data.png(picture, string.char(200, 30, 90):rep(32 * 48), { height = 32, width = 48 })
    local shown = {}
    for i = 1, 33 do
      shown[i] = string.char(7 * i % 256):rep(3 * 32 * 48)
    end
    data.encode(clip, table.concat(shown), { frames = 33, height = 32, width = 48, fps = 24 })
  end)
  teardown(function()
    for _, one in pairs(open) do
      one:close()
    end
    dir:remove()
  end)

  it("adds frame rate and motion score to the prompt, but not to the negative prompt", function()
    local item = video():request(asked { negatives = { "blurred" } }).items[1]
    assert.equal("a red circle. 24 FPS. 4 motion score.", item.words)
    assert.equal("blurred", item.negative)
    assert.equal("", video():request(asked()).items[1].negative)
    assert.equal("a red circle", video():request(asked { plain = true }).items[1].words)
    assert.equal("a red circle. 12.5 FPS.", video("motion_score=none", "save_fps=12.5")
      :request(asked()).items[1].words)
  end)

  it("is refused lists of the other flow, and numbers of frames without latent frames", function()
    local one = video()
    refused("mask_strategy: model.type = flux does not use it; try: %-%-cond%-type",
      one, { strategies = { "0" } })
    refused("2 texts of neg for 1 prompt", one, { negatives = { "a", "b" } })
    refused("a clip of 18 frames: this autoencoder needs 4n%+1 frames; try: 17 frames", one,
      { frames = 18 })
    one = video "sampling.frames=18"
    fails("MR_E_RECIPE", "sampling.frames=18: a clip of 18 frames", one.request, one,
      { prompts = { "a" } })
  end)

  it("has consecutive seeds; under compat random ones, and 0 for each if given", function()
    local function seeds(...)
      local list = {}
      for i, item in ipairs(video(...):request({ prompts = { "a", "b" }, num_sample = 2 }).items) do
        list[i] = item.seed
      end
      return list
    end
    assert.same({ 42, 43, 42, 43 }, seeds "compat=none")
    assert.same({ 5, 6, 5, 6 }, seeds("compat=none", "sampling.seed=5"))
    assert.same({ 0, 1, 0, 1 }, seeds("compat=none", "sampling.seed=0"))
    -- Python's random.randint(0, 2^32 - 1) after seed 42
    assert.same({ 2746317213, 1181241943, 958682846, 3163119785 }, seeds())
    assert.same({ 5, 6, 5, 6 }, seeds "sampling.seed=5")
    assert.same({ 0, 0, 0, 0 }, seeds "sampling.seed=0")
    fails("MR_E_USAGE", "sampling%.seed=4294967295: .*has seed 4294967296, but under compat seeds "
      .. "have 32 bits", seeds, "sampling.seed=4294967295")
    assert.same({ 7, 8, 7, 8 }, seeds "sampling.seeds={7}")
  end)

  it("has sizes of whole tokens, by name as 2.0 defines them, width to height", function()
    local function size(one, more)
      local r = one:request { prompts = { "a" }, seeds = { 1 }, frames = 1, height = more
        and more[1], width = more and more[2] }
      return { r.height, r.width }
    end
    assert.same({ 192, 336 }, size(video()))
    assert.same({ 336, 192 }, size(video "aspect_ratio=9:16"))
    assert.same({ 48, 64 }, size(video(), { 40, 50 }))
    assert.same({ 64, 64 }, size(sampler "opensora-2.0/inference/high_compression", { 40, 50 }))
    fails("MR_E_USAGE", "sampling.aspect_ratio: 256px has no 7:5; expected WIDTH:HEIGHT, one of "
      .. "2.39:1, .*16:9", size, video "aspect_ratio=7:5")
    fails("MR_E_USAGE", "sampling.resolution: there is no resolution 'huge'", size,
      video "sampling.resolution=huge")
  end)

  it("calls the model three times with a condition, else twice, once without guidance",
    function()
    local along = video().along
    local function copies(r, any) return along.way(r, any).copies end
    local r = video("sampling.guidance_img=none"):request(asked())
    assert.same({ 1, 7.5 }, { r.guidance_img, r.guidance })
    assert.equal(3, copies({ kind = "i2v_head", method = "i2v", guidance = 7 }, true))
    assert.equal(2, copies({ kind = "i2v_head", method = "i2v", guidance = 7 }, false))
    assert.equal(3, copies { kind = "i2v_head", method = "i2v", guidance = 1 })
    assert.equal(2, copies { kind = "t2v", method = "i2v", guidance = 7 })
    assert.equal(1, copies { kind = "t2v", method = "i2v", guidance = 1 })
    assert.equal(1, copies { kind = "i2v_head", method = "distill", guidance = 7 })
  end)

  it("does not depend on other renderings of its batch, but on its negative prompt", function()
    local one = video "compat=none"
    local alone = latents(one)[1]
    local together = latents(one, { prompts = { "a red circle", "a blue square" }, batch_size = 2 })
    assert.is_true(off(together[1], alone) < 1e-5)
    assert.is_true(off(together[2], alone) > 1e-2)
    assert.is_true(off(latents(one, { negatives = { "a blue square" } })[1], alone) > 1e-4)
    -- the reference draws the noise of a batch at once
    assert.is_true(off(latents(video(), { prompts = { "a red circle", "a red circle" },
      batch_size = 2 })[2], latents(video())[1]) > 1e-2)
  end)

  it("keeps conditions in each rendering; the reference in the first of a batch", function()
    local more = { prompts = { "a red circle", "a blue square" }, references = { picture },
      batch_size = 2, cond_type = "i2v_head" }
    local function held(one)
      local list = latents(one, more)
      return off(frames(list[2], 0, 1), frames(list[1], 0, 1)), list
    end
    -- random numbers of the posterior depend on the seed, which is equal for both
    local difference, list = held(video "compat=none")
    assert.equal(0, difference)
    assert.is_true(off(frames(list[2], 1, 3), frames(list[1], 1, 3)) > 1e-3)
    assert.is_true(held(video()) > 1e-3)
  end)

  it("takes pictures at the head, the tail or both, and depends on them",
    function()
    local one = video "compat=none"
    local free = latents(one)[1]
    local function given(kind, path)
      return latents(one, { cond_type = kind, references = { path or picture } })[1]
    end
    local head, tail, loop = given "i2v_head", given "i2v_tail", given "i2v_loop"
    local still = frames(head, 0, 1)
    assert.is_true(off(frames(free, 0, 1), still) > 0.1)
    assert.is_true(off(frames(tail, 0, 1), still) > 0.1)
    assert.equal(0, off(frames(loop, 0, 1), still))
    -- each of the two has its own random numbers of the posterior
    assert.is_true(off(frames(loop, 2, 3), still) < 1.5)
    assert.is_true(off(frames(given("i2v_head", clip), 1, 3), frames(head, 1, 3)) > 1e-3)
    assert.is_true(off(frames(head, 1, 3), frames(free, 1, 3)) > 1e-3)
  end)

  it("continues a clip from its end, or ends at its beginning", function()
    local one = video "compat=none"
    local function given(kind)
      return latents(one, { frames = 41, cond_type = kind, references = { clip }, steps = 1,
        height = 16, width = 16 })[1]
    end
    local head, tail = given "v2v_head", given "v2v_tail"
    assert.same({ 16, 11, 2, 2 }, head.shape)
    assert.is_true(off(head, tail) > 1e-3)
    -- the model gets the frames of a clip, but they are not copied into the latents again
    local parts = require("moonreel.diffusion.condition").put_back
    local put = 0
    require("moonreel.diffusion.condition").put_back = function() put = put + 1 end
    local good, problem = pcall(given, "v2v_head")
    pcall(latents, one, { cond_type = "i2v_head", references = { picture }, steps = 1 })
    require("moonreel.diffusion.condition").put_back = parts
    assert.is_true(good, problem)
    assert.equal(1, put)
  end)

  it("cuts off the copies of a picture that an autoencoder makes of one latent frame", function()
    local name = "opensora-2.0/inference/high_compression"
    local one = sampler(name, "compat=none", "sampling.is_causal_vae=none")
    local function shown(kind)
      local _, clips = latents(one, { frames = 12, cond_type = kind,
        references = kind ~= "t2v" and { picture } or nil, steps = 1 })
      return clips[1].frames
    end
    assert.equal(12, shown "t2v")
    assert.equal(9, shown "i2v_head")
    assert.equal(9, shown "i2v_tail")
    assert.equal(6, shown "i2v_loop")
    -- the recipe of the reference says that it is causal, so nothing is cut off
    one = sampler(name)
    assert.equal(12, shown "i2v_head")
    refused("256px.lua:16: sampling.is_causal_vae = true, but .- is false", sampler(name,
      "compat=none"))
  end)

  it("passes guidance to a model that has an input for it", function()
    local one = video("model.guidance_embed=true", "compat=none", "cond_type=t2v",
      "model.cond_embed=false", "sampling.method=distill", "ckpt_path=" .. dir.path
      .. "/distilled.safetensors")
    local a, b = latents(one, { guidance = 4 })[1], latents(one, { guidance = 8 })[1]
    assert.is_true(off(a, b) > 1e-4)
    assert.equal(0, off(latents(one, { guidance = 4, negatives = { "blurred" } })[1], a))
  end)

  it("refuses conditions and methods that the model does not support", function()
    local plain = video("model.cond_embed=false", "cond_type=i2v_head", "ckpt_path=" .. dir.path
      .. "/plain.safetensors")
    refused("cond_type=i2v_head: sampling.cond_type = i2v_head gives the model frames, but "
      .. "model.cond_embed is false; try: sampling.cond_type = t2v", plain)
    refused("sampling.method=distill: sampling.method = distill passes a guidance of "
      .. "7.5 to the model, but model.guidance_embed is false", video "sampling.method=distill")
    refused("sampling.temporal_reduction=8: sampling.temporal_reduction = 8, but the number of "
      .. "frames in a latent frame of the autoencoder is 4", video "sampling.temporal_reduction=8")
    refused("sampling.is_causal_vae=false: sampling.is_causal_vae = false, but .- is true",
      video("sampling.is_causal_vae=false", "compat=none"))
  end)

  it("refuses text encoders of another width and weights of another depth by line",
    function()
    video()
    local t5, clip_folder = dir.path .. "/wide/t5", dir.path .. "/wide/clip"
    weights.t5(t5, 1, { d_model = 48 })
    weights.clip(clip_folder, 1, { hidden_size = 16, num_attention_heads = 2 })
    local function opens(pattern, code, ...) fails(code, pattern, video, ...) end
    opens("model.context_in_dim=32: .-model.context_in_dim is 32, but the text encoder gives 48; "
      .. "try: model.context_in_dim = 48", "MR_E_RECIPE", "text_encoder.from_pretrained=" .. t5)
    opens("model.vec_in_dim=32: .-model.vec_in_dim is 32, but the second text encoder gives "
      .. "16; try: model.vec_in_dim = 16", "MR_E_RECIPE", "clip.from_pretrained=" .. clip_folder)
    opens("model.depth", "MR_E_CKPT", "model.depth=2")
  end)

  it("refuses conditions without a reference, with a short one, or above the clip",
    function()
    local one = video "compat=none"
    refused("256px.lua:19: .-sampling.cond_type = i2v_head needs a reference, but prompt "
      .. "'a red circle' has none; try: %-%-ref FILE", one, { cond_type = "i2v_head" })
    refused("sampling.cond_type = i2v_loop gives 2 latent frames, but a clip of 5 frames has "
      .. "only 2",
      one, { cond_type = "i2v_loop", frames = 5, references = { picture } })
    refused("sampling.cond_type = v2v_head gives 9 latent frames, but a clip of 33 frames has "
      .. "only 9",
      one, { cond_type = "v2v_head", frames = 33, references = { clip } })
    refused("sampling.cond_type = v2v_tail_easy needs 65 frames of a reference, but .-clip.mp4 "
      .. "has 33; try: a longer one, or %-%-cond%-type v2v_tail", one,
      { cond_type = "v2v_tail_easy", frames = 77, references = { clip } })
    fails("MR_E_USAGE", "cond_type=v2v_half: .-expected one of \"t2v\", \"i2v_head\"",
      settings.bake, RECIPE, { "cond_type=v2v_half" })
    -- under compat there is no condition then, as in the reference
    assert.equal(0, off(latents(video(), { cond_type = "i2v_head" })[1], latents(video())[1]))
    assert.equal(0, off(latents(video(), { cond_type = "i2v_head", frames = 1,
      references = { picture } })[1], latents(video(), { frames = 1 })[1]))
  end)

  it("refuses arguments of the other flow, and a remote prompt service", function()
    refused("loop=2: sampling.loop = 2: model.type = flux does not use it; try: "
      .. "%-%-cond%-type with %-%-ref", video "loop=2")
    refused("mask_strategy=0: sampling.mask_strategy = {%s*\"0\"%s*}: model.type",
      video "mask_strategy=0")
    refused("aes=6: sampling.aes = 6", video "aes=6")
    refused("motion_score=dynamic: sampling.motion_score = dynamic: a score for each prompt "
      .. "would come from a service", video "motion_score=dynamic")
    refused("prompt_refine=true: sampling.prompt_refine: prompts would be refined by a service",
      video "prompt_refine=true")
  end)
end)
