--- Visual conditions of a batch. The reference values come from make golden (condition_train,
-- train_i2v).
-- Covers: lua/moonreel/trainer/conditions.lua lua/moonreel/trainer/share.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local conditions = require "moonreel.trainer.conditions"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local pipeline = require "moonreel.models.pipeline"
local settings = require "moonreel.settings"
local share = require "moonreel.trainer.share"
local weights = require "datasets.demo.weights"

-- an autoencoder of 4 pixels a side and 4 frames a latent frame; the first has one frame
local causal = { apart = true, step = 4 }
-- each latent frame has four frames
local grouped = { apart = true, step = 4, grouped = true }
-- an autoencoder inside the step that encodes each frame by itself
local inside = {}

local SIZE <const>, FRAMES <const> = { 2, 3, 4, 4 }, 9
local SHAPE <const> = { frames = FRAMES, height = 16, width = 16, batch = 2 }

local function of(config, autoencoder, from, seed)
  local s = { seed = seed or 3, condition_config = config,
    plain = function(self, name) return self[name] end }
  return conditions.new(s, { autoencoder = autoencoder, takes = function() return true end },
    from or {})
end

local function batch_of(keys)
  local batch = { keys = keys, epoch = 2, drawn = 1, weights = {}, starts = {} }
  for b = 1, #keys do
    batch.weights[b], batch.starts[b] = 1, 5 * b
  end
  return batch
end

-- clips of two samples: frame f of sample b has the value 10 b + f
local function pixels()
  local x = T.new("u8", { 2, FRAMES, 3, 16, 16 })
  for b = 0, 1 do
    for f = 0, FRAMES - 1 do
      x:slice(0, b, b + 1):slice(1, f, f + 1):copy_from((T.new("f32", { 1, 1, 3, 16, 16 })
        + (10 * b + f)):to "u8")
    end
  end
  return x
end

-- a codec whose latents hold a clip's first pixel, and a list of the calls to it
local function noting()
  local codec, calls = {}, {}
  function codec.noise(_, ...) return { ... } end
  local function note(clip, noise, ...)
    local value = clip:clone():totable()[1]
    calls[#calls + 1] = { clip.shape[1], value, noise, ... }
    return value
  end
  function codec.encode(_, clip, noise)
    return T.new("f32", { 2, 1, 4, 4 }) + note(clip, noise)
  end
  function codec.encode_into(_, clip, noise, ...) note(clip, noise, ...) end
  return codec, calls
end

describe("conditions of a batch", function()
  it("are encoded from the clip's own frames, with random numbers of their own", function()
    local codec, calls = noting()
    local out = of({ i2v_loop = 1 }, causal, { codec = codec }):prepare(batch_of { 7, 8 }, SHAPE,
      SIZE, pixels())
    assert.same({ 1, 0, 1, 1, 0, 1 }, out.given:totable())
    assert.same({ true, false, true, true, false, true }, out.apart:totable())
    local skipped, prog = {}, {}
    function prog.skip(_, input, at, n)
      skipped[#skipped + 1] = { input, at // 32, n // 32 }
    end
    out.encode(prog, "given_z")
    assert.same({ { "given_z", 0, 0 }, { "given_z", 1, 1 }, { "given_z", 3, 0 },
      { "given_z", 4, 1 }, { "given_z", 6, 0 } }, skipped)
    local expected = {}
    for i, row in ipairs { { 0, 7, "head", 0, 0 }, { 8, 7, "tail", 0, 2 }, { 10, 8, "head", 1, 0 },
        { 18, 8, "tail", 1, 2 } } do
      local value, key, part, b, at = table.unpack(row)
      expected[i] = { 1, value, { 1, 16, 16, 3, key, 1, part }, prog, "given_z", b,
        { at = at, frames = 3 } }
    end
    assert.same(expected, calls)
  end)

  it("are slices of the clip's latent when its encoder sees no other frames", function()
    local codec, calls = noting()
    local frames = { frames = 36, height = 16, width = 16, batch = 1 }
    local clip = T.new("u8", { 1, 36, 3, 16, 16 })
    local long = of({ v2v_head = 1 }, grouped, { codec = codec }):prepare(batch_of { 7 }, frames,
      { 2, 9, 4, 4 }, clip)
    local prog = {}
    function prog.skip(_, input, at, n)
      assert.same({ "given_z", 0, 9 * 32 }, { input, at, n })
      prog.skipped = true
    end
    long.encode(prog, "given_z")
    assert.is_true(prog.skipped)
    assert.same({ 1, 1, 1, 1, 1, 1, 1, 1, 0 }, long.given:totable())
    assert.equal(0, long.apart:to("f32"):sum())
    local still = of({ i2v_tail = 1 }, inside):prepare(batch_of { 7, 8 }, SHAPE, { 2, 9, 4, 4 },
      pixels())
    assert.is_nil(still.apart)
    assert.equal(1, still.given:totable()[9])
    assert.equal(2, still.given:sum())
    assert.same({}, calls)
  end)

  it("are empty for a still and without a field of the recipe", function()
    local still = { frames = 1, height = 16, width = 16, batch = 1 }
    local config = { i2v_head = 1 }
    assert.equal(0, of(config, inside):prepare(batch_of { 7 }, still, { 2, 1, 4, 4 }).given:sum())
    local clips, latent = batch_of { 7, 8 }, { 2, 9, 4, 4 }
    assert.equal(2, of(config, inside):prepare(clips, SHAPE, latent).given:sum())
    assert.equal(0, of(nil, inside):prepare(clips, SHAPE, latent).given:sum())
    local plain = of(config, inside, { plain = true })
    assert.equal(0, plain:prepare(clips, SHAPE, latent).given:sum())
  end)

  it("are drawn by weight from seed, sample and epoch, of types that fit the clip",
    function()
    local one = of({ t2v = 1, i2v_head = 3, v2v_head = 100 }, causal)
    local heads, other_seed, other_epoch = 0, 0, 0
    local two = of({ t2v = 1, i2v_head = 3, v2v_head = 100 }, causal, nil, 4)
    for key = 1, 400 do
      local parts = #one:drawn(key, 2, 3, 9)
      assert.equal(parts, #one:drawn(key, 2, 3, 9))
      heads = heads + parts
      other_seed = other_seed + (parts ~= #two:drawn(key, 2, 3, 9) and 1 or 0)
      other_epoch = other_epoch + (parts ~= #one:drawn(key, 3, 3, 9) and 1 or 0)
    end
    -- three of four; independent draws differ in 3 of 8
    assert.near(300, heads, 40)
    assert.near(150, other_seed, 45)
    assert.near(150, other_epoch, 45)
  end)

  it("list each part that is encoded separately once", function()
    local one, list = of({ i2v_head = 1, i2v_loop = 2, v2v_tail = 1 }, causal), {}
    for i, part in ipairs(one:encoded(18, 69)) do
      list[i] = { part.first, part.frames }
    end
    assert.same({ { 0, 1 }, { 68, 1 }, { 36, 33 } }, list)
    assert.same({}, one:encoded(1, 1))
  end)

  it("report how often parts of a clip are encoded separately", function()
    local one = of({ t2v = 1, i2v_head = 4, i2v_loop = 2, v2v_tail = 1 }, causal)
    function one.auto.latent(_, frames) return { 2, (frames + 3) // 4, 1, 1 } end
    assert.same({ [1] = 8 / 7 }, one:shares(33))
    assert.same({ [1] = 1, [33] = 1 / 8 }, one:shares(69))
    assert.same({}, one:shares(1))
  end)

  it("come from a cache, or are encoded by ranks that share a batch", function()
    local held = {}
    function held.given(_, batch, shape, b, part, size)
      assert.equal(FRAMES, shape.frames)
      return T.new("f32", { size[1], part.n, size[3], size[4] }) + (batch.keys[b] + part.first)
    end
    local function places(z)
      local out = {}
      for b = 0, 1 do
        for f = 0, 2 do
          out[#out + 1] = z:slice(0, b, b + 1):slice(2, f, f + 1):clone():totable()[1]
        end
      end
      return out
    end
    local cached = of({ i2v_loop = 1 }, causal, { latents = held }):prepare(batch_of { 70, 80 },
      SHAPE, SIZE)
    assert.same({ 70, 0, 78, 80, 0, 88 }, places(cached.z))
    -- the second of two ranks has the second sample
    local codec, calls, sent = noting()
    local group = { size = function() return 2 end, rank = function() return 1 end }
    function group.all_gather(_, x, how)
      sent = { x.shape[1], how.rows }
      return G.concat({ T.new("f32", x.shape), x }, 0)
    end
    local shared = of({ i2v_loop = 1 }, causal, { codec = codec, mesh = { group = group } })
      :prepare(batch_of { 7, 8 }, SHAPE, SIZE, pixels())
    assert.same({ 1, { 1, 1 } }, sent)
    assert.equal(2, #calls)
    assert.same({ 0, 0, 0, 10, 0, 18 }, places(shared.z))
  end)

  it("exclude the frames that they give from a loss", function()
    local mask = T.from({ 3, 4 }, { 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0 })
    assert.same({ false, true, true, false, true, true, true, true, true, true, true, true },
      conditions.counted { given = mask })
  end)

  it("are divided evenly among ranks", function()
    local group = { size = function() return 3 end, rank = function() return 1 end }
    assert.same({ 3, 4, { 2, 2, 1 } }, { share.of(group, 5) })
    assert.same({ 1, 5 }, { share.of(nil, 5) })
  end)
end)

describe("the condition of a step", function()
  -- mask and latent of two samples of one cell and three frames
  local function nodes(auto, given)
    local g = G.graph()
    local x0 = g:const(T.from({ 2, 1, 3, 1, 1 }, { 1, 2, 3, 4, 5, 6 }))
    g:output("cond", conditions.nodes(g, auto, x0))
    g:finish()
    local prog = E.new(E.device("cpu", 1), nil, {}):compile(g)
    conditions.set(prog, given)
    prog:run()
    return prog:get("cond"):totable()
  end
  local mask = T.from({ 2, 3 }, { 1, 0, 1, 0, 0, 1 })

  it("has the mask, then the part of the clip's latent that the mask selects", function()
    assert.same({ 1, 0, 1, 1, 0, 3, 0, 0, 1, 0, 0, 6 }, nodes(inside, { given = mask }))
  end)

  it("uses what was encoded separately in place of the clip's latent", function()
    local z = T.from({ 2, 1, 3, 1, 1 }, { 10, 20, 30, 40, 50, 60 })
    assert.same({ 1, 0, 1, 10, 0, 3, 0, 0, 1, 0, 0, 60 }, nodes(causal, { given = mask,
      apart = T.from({ 2, 3 }, { 1, 0, 0, 0, 0, 1 }, "bool"), z = z }))
  end)
end)

describe("a recipe's conditions", function()
  local dir, clip
  setup(function()
    dir, clip = folder.around(weights.clip, 1)
  end)
  teardown(function() dir:remove() end)

  local function check(change)
    local path = dir:write("i2v.lua", ([[return recipe {
      resolutions = { ["32px"] = { pixels = 1024, aspects = { { 1.0, 32, 32 } } } },
      bucket_config = { ["32px"] = { [1] = { 1.0, 8 },
        [6] = { 1.0, 4 } } },
      vae = { type = "dct" }, text_encoder = { type = "bytes" },
      clip = { type = "clip", from_pretrained = %q },
      model = { type = "flux", depth = 1, depth_single_blocks = 0, hidden_size = 16, num_heads = 1,
        axes_dim = { 4, 6, 6 }, patch_size = 1, in_channels = 24, context_in_dim = 128,
        vec_in_dim = 32, cond_embed = true },
      condition_config = {
        t2v = 1, i2v_head = 5 },
    }]]):format(clip))
    local s = settings.bake(path, change or {})
    conditions.check(s, pipeline.of(s, "f32"))
  end

  it("are accepted when model, autoencoder and clips support them", function()
    check()
    check { "condition_config.i2v_head=0" }
  end)

  it("are refused with their line when unsupported or when none can be drawn", function()
    for _, case in ipairs {
      { "i2v%.lua:11: condition_config: model%.type = flux takes no visual condition with "
        .. "model%.cond_embed = false; try: condition_config = recipe%.none",
        "model.cond_embed=false" },
      { "model%.cond_embed is true and condition_config is not set, so no frame would be "
        .. "given; try: condition_config = { t2v = 1 }", "condition_config=none" },
      { "condition_config: all weights are 0", "condition_config.t2v=0",
        "condition_config.i2v_head=0" },
      { "condition_config%.v2v_head=2: condition_config%.v2v_head needs 33 frames, but the longest "
        .. "clips of bucket_config have 6; try: longer clips", "condition_config.v2v_head=2" },
      { "i2v%.lua:4: bucket_config%.32px%.6: clips of 6 frames are too short for all kinds in "
        .. "condition_config; try: condition_config%.t2v = 1", "condition_config.t2v=0",
        "condition_config.i2v_head=0", "condition_config.v2v_head=2" },
    } do
      fails("MR_E_RECIPE", case[1], check, table.move(case, 2, #case, 1, {}))
    end
  end)
end)
