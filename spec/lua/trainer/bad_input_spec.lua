--- What a user sees when an input is wrong; no partial files remain.
-- Covers: lua/moonreel/settings/blame.lua lua/moonreel/settings/resolutions.lua
local base = require "moonreel.core.base"
local demo_data = require "spec.support.demo_data"
local folder = require "spec.support.folder"

describe("moonreel train", function()
  local dir
  setup(function()
    dir = folder.new()
    dir:write("small.lua", ([[return recipe.extend("tiny/demo") { dataset = { data_path = "%s" }, outputs = "%s/out",
      steps = 4, warmup_steps = 2, ckpt_every = 2 }]]):format(demo_data.path(), dir.path))
  end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  -- runs it; returns its output and exit code
  local function train(recipe, words, before)
    local out, err, code = folder.moonreel(("train '%s/%s.lua' %s"):format(dir.path,
      recipe, words or ""), before)
    return out .. err, code
  end

  it("refuses a bucket without samples, and reports what removed the rows", function()
    dir:write("long.lua", 'return recipe.extend("./small") {\n  bucket_config = { ["32px"] = { '
      .. '[500] = { 1.0, 2 } } } }')
    local text, code = train("long")
    assert.equal(4, code, text)
    assert.matches("long%.lua:2: bucket_config%.32px%[500%]: no sample fits; what removed them:\n  "
      .. "300 rows: shorter", text)
    assert.matches("try: leave it out", text)
    assert.is_false(base.exists(dir.path .. "/out/001-long"))
  end)

  it("reports the memory of a bucket that does not fit and the largest batch that does", function()
    if require("moonreel.core.process").program():find("/asan/", 1, true) then
      return pending("sanitizers take an address space of their own")
    end
    dir:write("much.lua", 'return recipe.extend("./small") {\n  bucket_config = recipe.replace { '
      .. '["32px"] = {\n    [6] = { 1.0, 2000 } } } }')
    local text, code = train("much", "threads=1 num_workers=1", "ulimit -v 2500000;")
    assert.equal(5, code, text)
    local takes, free, batch = text:match("much%.lua:3: bucket_config%.32px%.6: a batch of 2000 at "
      .. "32x32 needs ([%d.]+) GiB in addition to parameters and their state, and ([%d.]+) MiB are "
      .. "free; the largest that fits is (%d+)\n  try: that batch, grad_checkpoint = true")
    assert.is_truthy(batch, text)
    assert.is_true(tonumber(takes) > 5 and tonumber(free) < 2500)
    -- memory is nearly proportional to the batch
    local guess = 2000 * free / 1024 / takes
    assert.is_true(tonumber(batch) > 0.8 * guess and tonumber(batch) < 1.2 * guess, text)
    assert.is_false(base.exists(dir.path .. "/out/001-much"))
  end)

  it("refuses a batch_size that differs from that of its buckets", function()
    dir:write("batch.lua", 'return recipe.extend("./small") {\n  batch_size = 4,\n  '
      .. 'bucket_config = recipe.replace { ["32px"] = { [6] = { 1.0, 2 } } } }')
    local text, code = train("batch")
    assert.equal(3, code, text)
    assert.matches("batch%.lua:2: batch_size = 4, but training uses the batches of each bucket, "
      .. "2 in bucket_config%.32px%.6; try: leave batch_size out", text)
  end)

  it("takes precomputed features only from a cache", function()
    dir:write("made.lua", 'return recipe.extend("./small") {\n'
      .. '  dataset = { type = "BatchFeatureDataset" },\n  load_video_features = true }')
    local text, code = train("made")
    assert.equal(3, code, text)
    assert.matches("made%.lua:2: dataset%.type = BatchFeatureDataset trains on features from a "
      .. "cache, but load_text_features = false; try: cached = true", text)
    text, code = train("made", "vae.type=none")
    assert.equal(3, code, text)
    text, code = train("made", "load_text_features=true vae.type=none")
    assert.equal(3, code, text)
    assert.matches("vae%.type=none: training needs vae%.type and text_encoder%.type, also for "
      .. "features from a cache, which these encoders make", text)
    text, code = train("made", "model.drop_path=0.5 cached=true")
    assert.equal(3, code, text)
    assert.matches("drop_path = 0%.5: stochastic depth is not supported", text)
  end)

  it("names the line or argument that led to a file that it cannot open or build", function()
    dir:write("wrong.lua", 'return recipe.extend("./small") {\n  dataset = { data_path = '
      .. '"missing.mrx" },\n  outputs = "/proc/nope",\n  bucket_config = recipe.replace {\n'
      .. '    ["77x"] = { [6] = { 1.0, 2 } } } }')
    for _, case in ipairs {
      { "wrong", "", 3, "wrong%.lua:5: bucket_config%.77x: there is no resolution of this name" },
      { "wrong", "bucket_config=recipe.remove", 3, "bucket_config=recipe%.remove: bucket_config is "
        .. "not set" },
      { "small", "data_path=missing.mrx", 4, "moonreel: data_path=missing%.mrx: no such index" },
      { "small", "outputs=/proc/nope", 8, "moonreel: outputs=/proc/nope: cannot create directory" },
      { "small", "ckpt_path=/nope", 2, "moonreel: ckpt_path=/nope: no such run" },
      { "small", "--load /nope", 2, "moonreel: %-%-load /nope: no such run" },
      { "small", "steps=0 epochs=0", 3, "moonreel: epochs=0: epochs = 0 and steps = 0: nothing "
        .. "says when to stop" },
      { "small", "device=cuda", 1, "moonreel: device=cuda: the cuda plug%-in "
        .. "libmoonreel_cuda%.so is not in [^\n]+; try: MOONREEL_PLUGINS=DIR" },
      { "small", "model.num_heads=3", 3, "moonreel: model%.num_heads=3: model: hidden_size 128 is "
        .. "not a multiple of num_heads 3\n  model%.hidden_size = 128 set by "
        .. "recipes/tiny/demo%.lua:%d+" },
      { "small", "vae.type=none", 3, "moonreel: vae%.type=none: training needs vae%.type" },
      { "small", "'bucket_config=recipe.replace{32px: {500: (1, 2)}}' allow_empty_buckets=true", 4,
        "moonreel: bucket_config=recipe%.replace{32px: {500: %(1, 2%)}}: .*no sample fits any "
        .. "bucket" },
    } do
      local text, code = train(case[1], case[2])
      assert.equal(case[3], code, case[2] .. ": " .. text)
      assert.matches(case[4], text)
    end
    local _, noted = folder.moonreel(("show '%s/wrong.lua'"):format(dir.path))
    assert.matches("note: .-wrong%.lua:5: bucket_config%.77x: there is no resolution", noted)
    local out = dir.path .. "/out"
    assert.is_false(base.exists(out))
  end)

  it("exits with 8 when no checkpoint can be written within ckpt_deadline", function()
    -- a limit on the length of files stands for a full disk
    local text, code = train("small", "name=full steps=20 ckpt_deadline=2",
      "trap '' XFSZ; ulimit -f 40000;")
    assert.equal(8, code, text)
    assert.matches("save of step 2: ", text)
    assert.matches("no checkpoint of step %d+ was committed in 2 s .*; the last save: .*File too "
      .. "large", text)
    for _, name in ipairs(base.list_dir(dir.path .. "/out/001-full/ckpt")) do
      assert.is_nil(name:match("step"), name)
    end
  end)

  it("resumes from the older checkpoint, with a message, when the newest is cut off", function()
    local text, code = train("small", "name=cut")
    assert.equal(0, code, text)
    local run = dir.path .. "/out/002-cut"
    local newest = run .. "/ckpt/step-000000000004"
    os.execute(("truncate -s -100 '%s/r00000-of-00001.safetensors'"):format(newest))
    -- a damaged checkpoint that is named is refused
    text, code = train("small", ("name=cut load='%s@4'"):format(run))
    assert.equal(8, code, text)
    assert.matches("has %d+ bytes, the manifest says %d+; try: another step; moonreel ckpt ls ",
      text)
    local shown = select(2, folder.moonreel(("sample '%s/small.lua' load='%s' --prompt x --steps 1 "
      .. "--out '%s/clips'"):format(dir.path, run, dir.path)))
    assert.matches("note: checkpoint step 4 skipped", shown)
    text, code = train("small", "name=cut load=latest steps=6")
    assert.equal(0, code, text)
    assert.matches("checkpoint step 4 skipped and renamed to %.bad%-", text)
    assert.matches("continues .*step%-000000000002 at step 2", text)
    assert.same({ 6, 4, 2 }, require("moonreel.ckpt").steps(run))
  end)
end)
