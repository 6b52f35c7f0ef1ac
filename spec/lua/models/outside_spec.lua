--- Two families in a folder outside the source tree: an autoencoder with state between its calls,
-- whose first frame is separate, and a text encoder of one vector. A run with both trains, resumes
-- bit for bit, caches, is planned and renders. Without the folder, an error names the family.
-- Covers: lua/moonreel/models/features.lua lua/moonreel/cache/about.lua
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = require "spec.support.demo_data"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local weights = require "datasets.demo.weights"

local MODELS = "spec/support/models"
local RECIPE = [[
return recipe.extend("tiny/demo") {
  vae = recipe.replace { type = "carry", from_pretrained = "OUT/vae" },
  text_encoder = recipe.replace { type = "mean", from_pretrained = "OUT/text" },
  model = { depth = 1, hidden_size = 32, num_heads = 2, in_channels = 8, caption_channels = 16,
    model_max_length = 1 },
  bucket_config = recipe.replace { ["32px"] = { [1] = { 1.0, 8 }, [5] = { 1.0, 4 } } },
  -- a family from outside says no matrices
  optim = { type = "adamw" },
  steps = 4, num_workers = 0, threads = 1, ckpt_every = 2, keep_n_latest = -1, outputs = "OUT",
}
]]

describe("families outside the tree", function()
  local out = demo_data.scratch()
  teardown(function()
    base.remove_dir(out)
    demo_data.remove()
  end)

  local function write(folder, name, tensor)
    base.make_dir(out .. "/" .. folder)
    local rows = {}
    for i, one in ipairs { { name, tensor }, folder == "vae" and { "back.weight",
        T.new("f32", { 192, 8 }):fill_normal(2, "w") } or nil } do
      local values = one[2]:bytes()
      rows[i] = { name = one[1], dtype = "f32", shape = one[2].shape, ptr = values,
        bytes = #values }
    end
    ckpt.write(out .. "/" .. folder .. "/model.safetensors", rows)
  end

  setup(function()
    write("vae", "proj.weight", T.new("f32", { 8, 192 }):fill_normal(1, "w") * 0.1)
    write("text", "bytes.weight", T.new("f32", { 32, 16 }):fill_normal(3, "w"))
    base.replace_file(out .. "/text/alphabet.txt", "abcdefghijklmnopqrstuvwxyz ")
    base.replace_file(out .. "/toys.lua", (RECIPE:gsub("OUT", out)))
  end)

  -- the program's output and exit code, with the folder or without
  local function run(words, without)
    local done = process.run({ "/usr/bin/env", "MOONREEL_MODELS=" .. (without and "" or MODELS),
      "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', process.program(), table.unpack(words) }, "",
      { deadline_s = 300, output_bytes = 1 << 22 })
    return done.output, done.exit
  end

  local function train(name, ...)
    local text, exit = run { "train", out .. "/toys.lua", "name=" .. name,
      "dataset.data_path=" .. demo_data.path(), ... }
    assert.equal(0, exit, text)
    return demo_data.run_dir(out, name), text
  end

  local function same(a, b)
    local one <close> = ckpt.open(a)
    local two <close> = ckpt.open(b)
    assert.same(one:names(), two:names())
    for _, name in ipairs(one:names()) do
      assert.equal(0, one:compare(two, name).differing, name)
    end
  end

  local whole

  it("train, and resume bit for bit", function()
    whole = train "whole"
    local again = train("again", "load=" .. whole .. "@2")
    assert.not_equal(whole, again)
    same(ckpt.dir(whole, 4), ckpt.dir(again, 4))
  end)

  it("fill a cache, and train from it as without", function()
    local text, exit = run { "train", out .. "/toys.lua", "job=extract", "epochs=1",
      "save_text_features=true", "cache=" .. out .. "/cache", "dataset.data_path="
      .. demo_data.path() }
    assert.equal(0, exit, text)
    local cached = train("cached", "cached=true", "cache=" .. out .. "/cache")
    same(ckpt.dir(whole, 4), ckpt.dir(cached, 4))
    -- a file that the family names determines the features of a caption
    base.replace_file(out .. "/text/alphabet.txt", "zyxwvutsrqponmlkjihgfedcba ")
    text, exit = run { "train", out .. "/toys.lua", "steps=2", "cached=true",
      "cache=" .. out .. "/cache", "dataset.data_path=" .. demo_data.path() }
    base.replace_file(out .. "/text/alphabet.txt", "abcdefghijklmnopqrstuvwxyz ")
    assert.is_true(exit ~= 0)
    assert.matches("text features were made with a model whose hash", text)
  end)

  -- the same with T5 for features, the toy's vector, and a model that takes both
  local function both(name, ...)
    return train(name, "model.type=vector_dit", "model.model_max_length=20",
      "model.caption_channels=32", "clip.type=mean", "clip.from_pretrained=" .. out .. "/text",
      "text_encoder=recipe.replace{type='t5',from_pretrained='" .. out
        .. "/t5',model_max_length=20}", "model.class_dropout_prob=0.5", ...)
  end

  it("work with a second text encoder: a vector, and encoded null captions", function()
    weights.t5(out .. "/t5", 1)
    local made = both "both"
    local again = both("both_again", "load=" .. made .. "@2")
    same(ckpt.dir(made, 4), ckpt.dir(again, 4))
    local cache = { "save_text_features=true", "cache=" .. out .. "/both_cache" }
    both("made_of", "job=extract", "epochs=1", table.unpack(cache))
    same(ckpt.dir(made, 4), ckpt.dir(both("both_cached", "cached=true", cache[2]), 4))
    -- another vector makes another run
    local other = both("other", "clip.bytes=1")
    local one <close> = ckpt.open(ckpt.dir(made, 4))
    local two <close> = ckpt.open(ckpt.dir(other, 4))
    assert.is_true(one:compare(two, "vector.weight").differing > 0)
    local text, exit = run { "sample", made, "--prompt", "a red circle", "--frames", "1", "--seed",
      "1", "--steps", "2", "--guidance", "2", "--out", out .. "/both" }
    assert.equal(0, exit, text)
    -- captions and null captions in their places, for both encoders
    local code = [[
      local sampler <close> = require("moonreel.sample").open("RUN")
      local pipe = sampler.pipe
      local function rows(t) return { t.y:slice(0, 0, 1):clone():bytes(), t.y:slice(0, 1, 2)
        :clone():bytes(), t.vector:slice(0, 0, 1):clone():bytes(), t.vector:slice(0, 1, 2)
        :clone():bytes() } end
      local want, guided = rows(pipe:tokens { "a red", "" }), rows(pipe:guided_tokens({ "a red" }, 2))
      local gone = { false, true }
      local dropped = rows(pipe:tokens({ "a red", "blue" }, gone, gone))
      for i = 1, 4 do assert(want[i] == guided[i] and want[i] == dropped[i], i) end
      assert(want[1] ~= want[2] and want[3] ~= want[4])
      assert(#pipe:guided_tokens({ "a red" }, 1).len:totable() == 1)
      print "good"
    ]]
    assert.matches("\ngood\n$", "\n" .. run { "-e", (code:gsub("RUN", made)) })
    text, exit = run { "train", out .. "/toys.lua", "clip.type=mean", "clip.from_pretrained=" .. out
      .. "/text", "dataset.data_path=" .. demo_data.path() }
    assert.is_true(exit ~= 0)
    assert.matches("clip%.type = mean: model%.type = STDiT3 does not use a vector of a caption",
      text)
  end)

  it("are planned: the bytes of their weights and of their calls", function()
    local code = [[
      local settings, encoders = require "moonreel.settings", require "moonreel.trainer.encoders"
      local s = settings.bake("OUT/toys.lua", {})
      local pipe = require("moonreel.models.pipeline").of(s, "f32")
      local device = require("moonreel.core.exec").device("cpu", 1)
      local e = encoders.new(pipe, { facts = device:facts(), memory_bytes = 1 << 30,
        seconds = function() return 1 end })
      local clip = { frames = 5, height = 32, width = 32, batch = 4 }
      local seconds, bytes = e:batch(clip)
      pipe.config.vae.from_pretrained = "OUT/vae"
      local codec <close> = require("moonreel.codec").new(pipe, nil, device)
      local text <close> = require("moonreel.embed").new(pipe.text, device, true)
      local working = require("moonreel.encoder").working_bytes
      local there = working(codec:encoders(5, 32, 32)) + working(e.texts[1]:encoders(4))
      print(require("moonreel.core.json").encode { weights = e.weights, seconds = seconds,
        has = codec:weight_bytes() + text.encoder:weight_bytes(), bytes = bytes, there = there })
      e:close()
    ]]
    local text, exit = run { "-e", (code:gsub("OUT", out)) }
    assert.equal(0, exit, text)
    local said = json.decode(text)
    assert.is_true(said.weights >= 4 * (2 * 8 * 192 + 32 * 16), text)
    assert.equal(said.has, said.weights)
    assert.equal(said.there, said.bytes)
    -- three calls for each of four clips, one for their captions
    assert.equal(4 * 3 + 1, said.seconds)
    text, exit = run { "plan", out .. "/toys.lua" }
    assert.equal(0, exit, text)
    text, exit = run { "train", out .. "/toys.lua", "steps=1", "dataset.data_path="
      .. demo_data.path(), "bucket_config=" .. 'recipe.replace{["32px"]={[4]={1.0,4}}}' }
    assert.is_true(exit ~= 0)
    assert.matches("bucket_config%.32px%.4: clips have 4 frames, but vae%.type = carry needs "
      .. "2n%+1; try: 3", text)
  end)

  it("are opened in the console by the contents of their files", function()
    local code = [[
      local codec, T = require "moonreel.codec", require "moonreel.core.tensor"
      local vae <close> = codec.open("OUT/vae")
      local grey = {}
      for i = 0, 5 * 768 - 1 do grey[i + 1] = 40 * (i // 768) end
      local clip = T.from({ 5, 3, 16, 16 }, grey, "u8")
      local z = vae:encode(clip)
      local text <close> = require("moonreel.embed").open("OUT/text")
      print(table.concat(z.shape, " "), table.concat(vae:decode(z).shape, " "),
        table.concat(text("a cab").shape, " "), tostring(text))
      print(table.concat(z:slice(2, 0, 1):slice(3, 0, 1):slice(0, 0, 1):clone():totable(), " "))
      print(table.concat(text("ab"):totable(), " "))
    ]]
    local text, exit = run { "-e", (code:gsub("OUT", out)) }
    assert.equal(0, exit, text)
    local head, cells, vector = text:match "^(.-)\n(.-)\n(.-)\n$"
    assert.equal("8 3 2 2\t5 3 16 16\t1 16\tmr.Embedder: " .. out .. "/text, a toy, f32, all in "
      .. "memory", head)
    -- computed here: sums of weights times grey, and half of the latent frame before
    local file <close> = ckpt.open(out .. "/vae")
    local w, sum = T.new("f32", { 8, 192 }), 0
    file.handle:read_f32("proj.weight", w)
    for i = 1, 192 do
      sum = sum + w:totable()[i]
    end
    local function grey(v) return v / 127.5 - 1 end
    local z = { sum * grey(0) }
    z[2] = sum * (grey(40) + grey(80)) / 2 + z[1] / 2
    z[3] = sum * (grey(120) + grey(160)) / 2 + z[2] / 2
    local i = 0
    for number in cells:gmatch "%S+" do
      i = i + 1
      assert.near(z[i], tonumber(number), 1e-4)
    end
    assert.equal(3, i)
    local rows = T.new("f32", { 32, 16 })
    local words <close> = ckpt.open(out .. "/text")
    words.handle:read_f32("bytes.weight", rows)
    assert.near((rows:totable()[17] + rows:totable()[33]) / 2, tonumber(vector:match "%S+"), 1e-5)
  end)

  it("render from a checkpoint, and are named when they are missing", function()
    local words = { "sample", whole, "--prompt", "a red circle", "--num-frames", "5",
      "--steps", "2", "--out", out .. "/clips" }
    local text, exit = run(words)
    assert.equal(0, exit, text)
    -- one for each seed
    assert.equal(4, #base.list_dir(out .. "/clips"))
    text, exit = run(words, true)
    assert.is_true(exit ~= 0)
    assert.matches("%.type = '%a+': this build has no such family; try: MOONREEL_MODELS=FOLDER",
      text)
  end)
end)
