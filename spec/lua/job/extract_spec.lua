--- A cache of latents and text features. Training from it has the same bits as training with the
-- encoders; killed extractions resume to the same values; caches that do not match a run are
-- reported.
-- Covers: lua/moonreel/job/extract.lua lua/moonreel/job/init.lua lua/moonreel/cache/init.lua
-- lua/moonreel/cache/about.lua lua/moonreel/trainer/feed.lua lua/moonreel/trainer/setup.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local data = require "moonreel.data"
local fails = require "spec.support.fails"
local job = require "moonreel.job"
local process = require "moonreel.core.process"
local settings = require "moonreel.settings"
local small_mmdit_run = require "spec.support.small_mmdit_run"
local small_set = require "spec.support.small_set"
local store = require "moonreel.core.store"
local trainer = require "moonreel.trainer"
local weights = require "datasets.demo.weights"

-- extracts like the command, with a commit for each batch; killed after the n-th one
local KILLER = [[
local extract, Store = require "moonreel.job.extract", require "moonreel.core.store"
extract.commit_bytes = 1
local left = math.tointeger(os.getenv("MOONREEL_SPEC_COMMITS"))
local create = Store.create
function Store.create(path)
  local real = create(path)
  return setmetatable({}, { __index = function(_, name)
    return function(_, ...)
      if name == "commit" then
        left = left - 1
        if left == 0 then io.popen("kill -KILL $PPID"):close() end
      end
      return real[name](real, ...)
    end
  end })
end
return require("moonreel.cli.dispatch").run(arg)
]]

describe("a cache of features", function()
  local dir, recipe, words
  setup(function()
    dir, words = small_set.new()
    recipe = dir.path .. "/small.lua"
    -- a clip that has become unreadable
    base.replace_file(dir.path .. "/clip-06.mp4", "no clip")
  end)
  teardown(function() dir:remove() end)

  local function all_words(...)
    local list = table.move(words, 1, #words, 1, {})
    for _, word in ipairs { ... } do
      list[#list + 1] = word
    end
    return list
  end

  local function extract(...)
    local lines = {}
    assert.equal(0, (job.run(settings.bake(recipe, all_words("job=extract",
      "save_text_features=true", ...)), { write = function(line) lines[#lines + 1] = line end })))
    return table.concat(lines, "\n")
  end

  local function train(name, ...)
    local lines = {}
    assert.equal(0, (trainer.run(settings.bake(recipe, all_words("name=" .. name, ...)),
      { write = function(line) lines[#lines + 1] = line end })))
    for _, entry in ipairs(base.list_dir(dir.path .. "/runs")) do
      if entry:match("^%d+%-(.*)$") == name then
        return dir.path .. "/runs/" .. entry, table.concat(lines, "\n")
      end
    end
  end

  local function refused(pattern, ...)
    return fails("MR_E_DATA", pattern, train, "refused", ...)
  end

  -- loss and gradient norm of each step, from the journal
  local function losses(run)
    local list = {}
    for entry in require("moonreel.run").entries(run) do
      if entry.kind == "step" or entry.kind == "skip" then
        list[#list + 1] = ("%s %s %s %s"):format(entry.step, entry.loss, entry.grad_norm,
          entry.weight)
      end
    end
    return list
  end

  local function assert_same(a, b)
    assert.same(losses(a), losses(b))
    local one <close> = ckpt.newest(a)
    local two <close> = ckpt.newest(b)
    assert.is_true(#one:names() > 50)
    for _, name in ipairs(one:names()) do
      assert.equal(0, one:compare(two, name).differing, name)
    end
  end

  local whole, loop

  it("trains as with the encoders in the loop, bit for bit, in all its epochs", function()
    local text = extract()
    assert.matches("done: .*/clips%.cache/1%-of%-1, %d+ samples, %d+ could not be read", text)
    local held <close> = store.open(dir.path .. "/clips.cache/1-of-1", { verify = true })
    whole = held:fingerprint()
    loop = train("loop")
    assert.is_true(#losses(loop) >= 10)
    assert_same(loop, (train("cached", "cached=true")))
    assert_same(loop, (train("text", "load_text_features=true")))
    assert_same(loop, (train("latents", "load_video_features=true")))
  end)

  it("holds the padding of captions when the model uses it", function()
    local kept = { dir, recipe, words }
    dir, words = small_mmdit_run.new()
    local plain = dir.path .. "/mmdit.lua"
    recipe = dir:write("attends.lua", 'return recipe.extend("./mmdit") { epochs = 1,\n'
      .. '  condition_config = recipe.none, model = { cond_embed = false },\n'
      .. '  text_encoder = recipe.replace {\n'
      .. '    type = "text_embedder", max_length = 24 } }\n')
    finally(function()
      dir:remove()
      dir, recipe, words = table.unpack(kept)
    end)
    extract()
    local loop_of_20 = train "loop"
    assert_same(loop_of_20, (train("cached", "cached=true")))
    -- a run that skips padding needs another cache
    recipe = plain
    refused("text features were made with padding = attend, but this run has absent", "cached=true",
      "epochs=1", "condition_config=none", "model.cond_embed=false")
  end)

  it("serves further epochs when their random numbers repeat", function()
    local repeated = { "epochs=5", "dataset.draw_epochs=2" }
    local long = train("long", table.unpack(repeated))
    assert.is_true(#losses(long) > 2 * #losses(loop))
    repeated[3] = "cached=true"
    assert_same(long, (train("cached-long", table.unpack(repeated))))
    assert.not_same(losses(long), losses((train("fresh", "epochs=5"))))
  end)

  it("trains without the weights of the encoders", function()
    assert.is_true(os.rename(dir.path .. "/vae", dir.path .. "/elsewhere"))
    local run, text = train("apart", "cached=true")
    assert.is_true(os.rename(dir.path .. "/elsewhere", dir.path .. "/vae"))
    assert_same(loop, run)
    assert.matches("its latents cannot be checked, because the weights that made them are not on "
      .. "this host", text)
  end)

  it("is the same after any number of kills of its extraction", function()
    local killer = dir:write("killer.lua", KILLER)
    local kills = 0
    local result
    repeat
      kills = kills + 1
      result = process.run({ "/usr/bin/env", "MOONREEL_SPEC_COMMITS=" .. 2 + kills % 3,
        process.program(), killer, "train", recipe,
        table.unpack(all_words("job=extract", "save_text_features=true", "cache=" .. dir.path
          .. "/killed")) }, "", { deadline_s = 600, output_bytes = 1 << 20 })
      assert.is_true(result.signal == 9 or result.exit == 0, result.output)
    until result.exit == 0 or kills > 40
    assert.is_true(kills > 4)
    assert.matches("continues after %d+ of about %d+ samples", result.output)
    local held <close> = store.open(dir.path .. "/killed/1-of-1", { verify = true })
    assert.equal(whole, held:fingerprint())
    assert.matches("exists already", extract())
  end)

  it("is made in parts, all of which must exist", function()
    local path = "cache=" .. dir.path .. "/parts"
    extract("part=2/3", path)
    extract("part=1/3", path)
    refused("parts: part 3 of 3 is missing; try: the same command with part=3/3", "cached=true",
      path)
    extract("part=3/3", path)
    assert_same(loop, (train("parts", "cached=true", path)))
    local n = 0
    for i = 1, 3 do
      local held <close> = store.open(("%s/parts/%d-of-3"):format(dir.path, i))
      assert.is_true(#held > 0)
      n = n + #held
    end
    local held <close> = store.open(dir.path .. "/clips.cache/1-of-1")
    assert.equal(#held, n)
    fails("MR_E_RECIPE", "part: expected I/N with I from 1 to N, got '3/2'", extract, "part=3/2")
  end)

  it("reports fields in which it differs from a run", function()
    refused("1%-of%-1: latents were made with seed = 42, but this run has 43", "cached=true",
      "seed=43")
    if require("moonreel.core.exec").device("cpu", 1):compute "bf16" == "bf16" then
      refused("made with dtype = bf16, but this run has f32", "cached=true", "dtype=fp32")
    end
    refused("nowhere: contains no latents and no text features", "cached=true",
      "cache=" .. dir.path .. "/nowhere")
    fails("MR_E_RECIPE", "cached = true: vae dct runs within the training step", trainer.run,
      settings.bake("tiny/demo", { "data_path=" .. dir.path .. "/clips.mrx", "cached=true",
        "outputs=" .. dir.path .. "/runs" }), { write = function() end })
    fails("MR_E_DATA", "1%-of%-1 was made with epochs = 2 of index %x+, "
      .. "but this command has epochs = 1", extract, "epochs=1")
    refused("clips%.cache contains latents of 2 epochs, but this run draws samples again in 3; "
      .. "try: dataset.draw_epochs = 2, which repeats them, or make the cache with epochs = 3",
      "cached=true", "epochs=3")
    -- the cache is unchanged
    local held <close> = store.open(dir.path .. "/clips.cache/1-of-1", { verify = true })
    assert.equal(whole, held:fingerprint())
    -- a run that was refused before its first step leaves no files
    for _, name in ipairs(base.list_dir(dir.path .. "/runs")) do
      assert.is_nil(name:match("refused"))
    end
    refused("no latents of sample %x+ as 10x16x16 from frame %d+ on, epoch 0; of this sample "
      .. "there is %d+x16x16 from frame %d+ on, epoch 0", "cached=true",
      "bucket_config.small.9=recipe.remove", "bucket_config.small.10=(1.0, 2)")
  end)

  it("identifies its encoders by a hash of their weights, independent of files", function()
    weights.vae(dir.path .. "/other", 5)
    refused("latents were made with a model whose hash = %x+, but this run has %x+", "cached=true",
      "vae.from_pretrained=" .. dir.path .. "/other")
    -- the tokenizer counts, too
    local spiece = base.read_file(dir.path .. "/t5/spiece.model")
    base.replace_file(dir.path .. "/t5/spiece.model", (spiece:gsub("red", "reb")))
    refused("text features were made with a model whose hash", "cached=true")
    base.replace_file(dir.path .. "/t5/spiece.model", spiece)
    local about = require "moonreel.cache.about"
    assert.equal(about.model(dir.path .. "/vae"), about.model(dir.path .. "/vae"))
    assert.not_equal(about.model(dir.path .. "/vae"),
      about.model(dir.path .. "/vae/model.safetensors"))
  end)

  it("requires the features of a caption that has changed", function()
    local csv = base.read_file(dir.path .. "/clips.csv")
    dir:write("changed.csv", (csv:gsub("clip (%d+) moving", "another clip %1"):gsub(",a circle",
      ",a square")))
    data.ingest(dir.path .. "/changed.csv", dir.path .. "/changed.mrx", { root = dir.path })
    refused("no features of the caption '[^']+' of sample %x+: the caption has changed",
      "cached=true", "dataset.data_path=" .. dir.path .. "/changed.mrx",
      "cache=" .. dir.path .. "/clips.cache")
  end)

  it("refuses damage anywhere, and unfinished caches", function()
    local SEED = math.tointeger(os.getenv("MOONREEL_SEED")) or 3
    local path = dir.path .. "/damaged"
    os.execute(("cp -r '%s/clips.cache' '%s'"):format(dir.path, path))
    local file = path .. "/1-of-1/data.mdb"
    local text = base.read_file(file)
    for i = 1, math.tointeger(os.getenv("MOONREEL_ROUNDS")) or 12 do
      local at = base.mix(SEED, i) % #text + 1
      local bytes = base.mix(SEED, i, 2) % 2000 + 1
      base.replace_file(file, text:sub(1, at - 1) .. ("\xa5"):rep(bytes) .. text:sub(at + bytes))
      local good, problem = pcall(store.open, path .. "/1-of-1")
      assert.is_false(good, at)
      assert.matches("damaged between bytes", tostring(problem))
    end
    base.replace_file(file, text:sub(1, #text // 2))
    refused("a torn copy; try: copy or build it again", "cached=true", "cache=" .. path)
    base.replace_file(file, text)
    base.replace_file(path .. "/1-of-1/data.sum", "")
    refused("data%.sum: is damaged", "cached=true", "cache=" .. path)
    os.remove(path .. "/1-of-1/data.sum")
    refused("no finished store", "cached=true", "cache=" .. path)
    assert.is_true(os.rename(path .. "/1-of-1", path .. "/1-of-1.part"))
    refused("1%-of%-1%.part is not complete; try: run the command that makes it again",
      "cached=true", "cache=" .. path)
  end)
end)
