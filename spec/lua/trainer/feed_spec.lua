local T = require "moonreel.core.tensor"
local fails = require "spec.support.fails"
local feed = require "moonreel.trainer.feed"
local pipeline = require "moonreel.models.pipeline"

local pipe = pipeline.new({vae = {type = "dct"},
  text_encoder = {type = "bytes", width = 32, rows = 64, max_length = 24, num_heads = 2},
  model = {type = "STDiT3", depth = 1, hidden_size = 32, num_heads = 2, patch_size = {1, 1, 1},
    pred_sigma = false}},
    "f32")

local function settings(change)
  local s = {seed = 9, scheduler = {sample_method = "logit-normal", use_timestep_transform = false},
    model = {class_dropout_prob = 0.5}}
  for k, v in pairs(change or {}) do
    s[k] = v
  end
  function s.plain(_, name) return s[name] end
  return s
end

local function batch(keys)
  local n, list = #keys, {keys = keys, epoch = 1, drawn = 3, weights = {}, fps = {}, captions = {}}
  for i = 1, n do
    list.weights[i], list.fps[i], list.captions[i] = 1, 24, "caption " .. keys[i]
  end
  local pixels = T.new("u8", {n, 8, 3, 16, 16})
  function list.pixels() return pixels:ptr() end
  return list
end

local function prepare(s, keys, step)
  return feed.new(s, pipe):prepare(batch(keys),
    {frames = 8, height = 16, width = 16, batch = #keys, text = 24}, step)
end

describe("trainer.feed", function()
  it("encodes clip by clip with a separate autoencoder, by each sample's random numbers", function()
    local apart = setmetatable({autoencoder = {latent = function() return {2, 1, 1, 1} end}},
      {__index = pipe})
    local codec = {}
    function codec.shared() return false end
    function codec.noise(_, ...) return {...} end
    local came = {}
    function codec.encode_into(_, clip, noise, prog, input, b)
      assert.same({8, 3, 16, 16}, clip.shape)
      came[#came + 1] = {noise[5], noise[6], prog, input, b}
    end
    local made = feed.new(settings(), apart, {codec = codec}):prepare(batch{5, 6, 7},
      {frames = 8, height = 16, width = 16, batch = 3, text = 24})
    made.encode("a program", "x0")
    assert.same({{5, 3, "a program", "x0", 0}, {6, 3, "a program", "x0", 1},
      {7, 3, "a program", "x0", 2}}, came)
    assert.is_nil(made.pixels)
  end)

  it("encodes a part on each rank that shares a batch, which one rank decodes", function()
    local text = {apart = true}
    function text.tokens(_, captions)
      local list = {}
      for i, caption in ipairs(captions) do
        list[i] = tonumber(caption:match("%d+"))
      end
      return {y = T.from({#captions, 1, 1}, list), len = T.from({#captions}, list, "i32")}
    end
    local apart = setmetatable({autoencoder = {latent = function() return {1, 1, 1, 1} end},
      text = text}, {__index = pipe})
    for _, keys in ipairs{{5, 6, 7}, {5}} do
      local B, report, encoded = #keys, {}, {}
      -- runs ranks one after the other and joins their messages; rank 0 has decoded
      for rank = 0, 1 do
        local one = batch(keys)
        one.weights[1] = rank == 0 and 0 or 1
        local pixels = (T.new("f32", {B, 8, 3, 16, 16}) + (rank + 1)):to("u8")
        local codec, calls = {}, 0
        function codec.shared() return false end
        function one.pixels() return pixels:ptr() end
        function codec.noise(_, _, _, _, _, key) return key end
        function codec.encode(_, clip, key)
          assert.equal(1, clip:max())
          encoded[#encoded + 1] = key
          return T.from({1, 1, 1, 1}, {key})
        end
        local group = {size = function() return 2 end, rank = function() return rank end}
        function group.broadcast(_, x)
          local kept = x.dtype
          report[kept] = report[kept] or x:clone()
          return report[kept]
        end
        function group.all_gather(_, x, how)
          calls = calls + 1
          assert.equal(how.rows[rank + 1], x.shape[1])
          assert.equal(B, how.rows[1] + how.rows[2])
          local name = "gathered" .. calls
          report[name] = report[name] or {}
          table.move(x:totable(), 1, x.shape[1], #report[name] + 1, report[name])
          return x.shape[1] == B and x or T.new(x.dtype, {B, table.unpack(x.shape, 2)})
        end
        local made = feed.new(settings{model = {class_dropout_prob = 0}}, apart,
          {codec = codec, mesh = {group = group}}):prepare(one,
          {frames = 8, height = 16, width = 16, batch = B, text = 24})
        assert.equal(0, made.weight[1])
        assert.equal(3, calls)
      end
      assert.same(keys, encoded)
      for call = 1, 3 do
        assert.same(keys, report["gathered" .. call])
      end
    end
  end)

  it("encodes all clips of a batch on ranks that share clips", function()
    local apart = setmetatable({autoencoder = {latent = function() return {1, 1, 1, 1} end}},
      {__index = pipe})
    local one, encoded = batch{5, 6, 7}, {}
    local pixels = T.new("u8", {3, 8, 3, 16, 16})
    function one.pixels() return pixels:ptr() end
    local codec = {shared = function() return true end}
    function codec.noise(_, _, _, _, _, key) return key end
    function codec.encode(_, _, key)
      encoded[#encoded + 1] = key
      return T.from({1, 1, 1, 1}, {key})
    end
    local group = {size = function() return 2 end, rank = function() return 1 end,
      broadcast = function(_, x) return x end}
    local made = feed.new(settings(), apart, {codec = codec, mesh = {group = group}}):prepare(one,
      {frames = 8, height = 16, width = 16, batch = 3, text = 24})
    assert.same({5, 6, 7}, encoded)
    assert.same({5, 6, 7}, made.x0:reshape{3}:totable())
  end)

  it("refuses fields that the models of a run do not use", function()
    local function check(change, of)
      local s = setmetatable(change, {__index = {model = {type = "M"}, recipe = "r.lua"}})
      function s.origin(_, path) return path end
      return feed.check(s, setmetatable(of, {__index = pipe}))
    end
    local takes = {conditions = function() return {} end}
    check({}, {})
    check({dropout_ratio = {t5 = 0.1, clip = 0.1}}, {null_encoded = true, vector = {}})
    check({mask_ratios = {}}, {})
    fails("MR_E_RECIPE", "mask_ratios: model.type = M takes no frame masks; try: condition_config",
      check, {mask_ratios = {}}, {model = takes})
    fails("MR_E_RECIPE", "dropout_ratio: model.type = M has its own null caption", check,
      {dropout_ratio = {t5 = 0.1}}, {})
    fails("MR_E_RECIPE", "dropout_ratio.clip: there is no second text encoder; try: clip.type",
      check, {dropout_ratio = {clip = 0.1}}, {null_encoded = true})
  end)

  it("draws by sample key, independent of the other samples", function()
    local a, b = prepare(settings(), {5, 6, 7, 8}), prepare(settings(), {8, 5})
    assert.equal(a.t[1], b.t[2])
    assert.equal(a.t[4], b.t[1])
    assert.equal(a.drop[1], b.drop[2])
  end)

  it("encodes an empty caption for a dropped one when the model has no null caption", function()
    local bare = setmetatable({null_encoded = true}, {__index = pipe})
    local made = feed.new(settings(), bare):prepare(batch{1, 2, 3, 4, 5, 6, 7, 8},
      {frames = 8, height = 16, width = 16, batch = 8, text = 24})
    local dropped = 0
    for i, len in ipairs(made.tokens.len:totable()) do
      dropped = dropped + (made.drop[i] and 1 or 0)
      assert.equal(made.drop[i] and 0 or #"caption 1", len)
    end
    assert.is_true(dropped > 0 and dropped < 8)
  end)

  it("drops the captions of each encoder by a share and random numbers of its own", function()
    local text = {dtype = "f32", width = 1}
    function text.tokens(_, captions)
      local list = {}
      for i, caption in ipairs(captions) do
        list[i] = caption == "" and 0 or 1
      end
      return {y = T.from({#list, 1, 1}, list)}
    end
    local both = setmetatable({null_encoded = true, vector = text}, {__index = pipe})
    local keys = {}
    for i = 1, 200 do
      keys[i] = i
    end
    local function dropped(ratio)
      local made = feed.new(settings{dropout_ratio = ratio}, both):prepare(batch(keys),
        {frames = 8, height = 16, width = 16, batch = 200, text = 24})
      local of_text, of_vector, of_both = 0, 0, 0
      for i, seen in ipairs(made.tokens.vector:totable()) do
        of_text, of_vector = of_text + (made.drop[i] and 1 or 0), of_vector + 1 - seen
        of_both = of_both + (made.drop[i] and seen == 0 and 1 or 0)
      end
      return of_text, of_vector, of_both
    end
    local of_text, of_vector, of_both = dropped{t5 = 0.3, clip = 0.7}
    assert.near(60, of_text, 20)
    assert.near(140, of_vector, 20)
    assert.near(42, of_both, 12)
    assert.same({200, 0, 0}, {dropped{t5 = 1}})
    -- the model's own share drops the same captions for both encoders
    of_text, of_vector, of_both = dropped(nil)
    assert.is_true(of_text > 60 and of_text < 140)
    assert.same({of_text, of_text}, {of_vector, of_both})
  end)

  it("gives a dropped caption all null tokens, under compat its own number of them",
    function()
    local keys = {}
    for i = 1, 64 do
      keys[i] = i
    end
    local a, c = prepare(settings(), keys), prepare(settings{compat = "opensora-1.2"}, keys)
    local len_a, len_c, dropped = a.tokens.len:totable(), c.tokens.len:totable(), 0
    for i = 1, 64 do
      if a.drop[i] then
        dropped = dropped + 1
      end
      assert.equal(a.drop[i] and 24 or #("caption " .. i), len_a[i])
      assert.equal(#("caption " .. i), len_c[i])
    end
    assert.is_true(dropped > 16 and dropped < 48)
  end)

  it("shifts times by a fixed ratio or by the size of the clip", function()
    local plain = prepare(settings(), {5}).t[1]
    local s = settings()
    s.scheduler.shift = 2
    local u = plain / 1000
    assert.near(1000 * 2 * u / (1 + u), prepare(s, {5}).t[1], 1e-9)
    s.scheduler.shift, s.scheduler.use_timestep_transform = nil, true
    local ratio = (16 * 16 / (512 * 512)) ^ 0.5 * 8 ^ 0.5
    assert.near(1000 * ratio * u / (1 + (ratio - 1) * u), prepare(s, {5}).t[1], 1e-9)
    -- the shift of training overrides both and does not affect renderings
    s.scheduler.shift, s.scheduler.train_shift = 2, 4
    assert.near(1000 * 4 * u / (1 + 3 * u), prepare(s, {5}).t[1], 1e-9)
    assert.equal(2, require("moonreel.diffusion.rflow").ratio_of(s, "f32", {}))
  end)

  it("changes the shift of times from step to step, linear in its logarithm", function()
    local plain = prepare(settings(), {5}).t[1] / 1000
    local s = settings()
    s.scheduler.train_shift, s.scheduler.train_shift_from, s.scheduler.train_shift_steps = 1, 16, 4
    for step, ratio in pairs{[0] = 16, [1] = 8, [2] = 4, [3] = 2, [4] = 1, [9] = 1} do
      local made = prepare(s, {5}, step)
      assert.near(ratio, made.train_shift, 1e-12)
      assert.near(1000 * ratio * plain / (1 + (ratio - 1) * plain), made.t[1], 1e-9)
    end
    -- without a shift of training, it ends at the shift of renderings
    s.scheduler.train_shift, s.scheduler.shift = nil, 4
    assert.near(8, prepare(s, {5}, 2).train_shift, 1e-12)
    s.scheduler.shift = nil
    assert.near(4, prepare(s, {5}, 2).train_shift, 1e-12)
    assert.equal(prepare(settings(), {5}).t[1], prepare(s, {5}, 4).t[1])
    assert.is_nil(prepare(settings(), {5}, 2).train_shift)
  end)

  it("refuses a shift that changes without a start or without steps", function()
    local check = require("moonreel.diffusion.rflow").check
    for _, case in ipairs{{{train_shift_from = 4}, "train_shift_from = 4: .* needs both"},
      {{train_shift_steps = 9}, "train_shift_steps = 9: .* needs both"},
      {{train_shift_from = 0, train_shift_steps = 9}, "train_shift_from = 0: .* above 0"},
      {{train_shift_from = 4, train_shift = 0, train_shift_steps = 9}, "train_shift = 0: "}} do
      local ok, problem = pcall(check, {scheduler = case[1]})
      assert.is_false(ok)
      assert.equal("MR_E_RECIPE", problem.code)
      assert.matches(case[2], problem.message)
    end
    check{scheduler = {train_shift_from = 4, train_shift_steps = 9}}
    local ok, problem = pcall(require("moonreel.diffusion.shifted").check,
      {scheduler = {train_shift_from = 4}, model = {type = "flux"}})
    assert.is_false(ok)
    assert.matches("scheduler.train_shift_from is 4: model.type = flux does not use it and draws "
      .. "its times from", problem.message)
  end)

  it("draws frame masks when the recipe asks for them", function()
    local a = prepare(settings{mask_ratios = {image_head = 1}}, {5, 6})
    assert.equal("0111111101111111", table.concat(a.mask))
    assert.is_nil(prepare(settings(), {5}).mask)
  end)
end)
