-- What a restart may change: dataplane 4.8, and the effect of each field that differs.
-- Covers: lua/moonreel/data/place.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local data = require "moonreel.data"
local demo_data = dofile "spec/support/demo_data.lua"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

describe("a restart", function()
  local out, dir
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  -- trains to a step; returns ok, code or error, lines of the log
  local function train(steps, ...)
    local s = settings.bake("tiny/demo",
      { "dataset.data_path=" .. demo_data.path(), "outputs=" .. out, "threads=1", "warmup_steps=2",
      "name=run", "steps=" .. steps, "model.depth=1", "model.hidden_size=32",
        "model.num_heads=2", "text_encoder.width=32",
      "model.caption_channels=32", ... })
    local lines = {}
    local ok, result = pcall(trainer.run, s, { write = function(line)
      lines[#lines + 1] = line
    end })
    return ok, result, table.concat(lines, "\n")
  end

  setup(function()
    out = demo_data.scratch()
    assert(train(2))
    dir = out .. "/001-run"
  end)

  -- each case has a copy of the run, so the newest checkpoint stays that of step 2
  local function restart(...)
    os.execute(("rm -rf '%s/copy' && cp -r '%s' '%s/copy'"):format(out, dir, out))
    return train(3, "load=" .. out .. "/copy", ...)
  end

  for change, line in pairs {
    ["num_workers=1"] = false, ["prefetch=5"] = false, ["log_every=3"] = false,
    ["steps=4"] = "steps: 2 when the checkpoint was made, 4 now by steps=4: the run continues "
      .. "with it",
    ["optim.lr=2e-3"] = "optim.lr: 0.001 when the checkpoint was made, 0.002 now by optim.lr=2e-3: "
      .. "the run continues with it, and differs from here on",
    ["accumulate=2"] = "accumulate: 1 when the checkpoint was made, 2 now by accumulate=2: "
      .. "the run continues with it, and differs from here on",
    ["bucket_config.32px.6.2=4"] = "bucket_config.32px.6: { 1.0, 8 } when the checkpoint was made, "
      .. "{ 1.0, 4 } now by bucket_config.32px.6.2=4: the run continues with it, and differs "
      .. "from here on",
  } do
    it("continues with " .. change .. (line and ", and reports it" or ""), function()
      local ok, code, log = restart(change)
      assert.is_true(ok, tostring(code))
      assert.equal(line or nil,
        log:match("[^\n]* when the checkpoint was made, [^\n]* now by " .. change:gsub("%W", "%%%0")
        .. "[^\n]*"))
      assert.matches("at step 2\n", log)
    end)
  end

  for change, wants in pairs {
    ["seed=8"] = { "MR_E_RECIPE", "seed: 7 when the checkpoint was made, 8 now by seed=8: the "
      .. "position in the data depends on it\n  try: data_change=next or %-%-start%-from%-s" },
    ["model.mlp_ratio=2"] = { "MR_E_RECIPE", "model.mlp_ratio: 4.0 .* 2.0 now by "
      .. "model.mlp_ratio=2: refused\n  try: %-%-ckpt%-path" },
  } do
    it("refuses " .. change .. ", with the reason and a proposal", function()
      local ok, problem = restart(change)
      assert.is_false(ok)
      assert.equal(wants[1], problem.code)
      assert.matches(wants[2], problem.message)
    end)
  end

  it("keeps the quarantine of the next epoch in checkpoints, even without its file",
    function()
    local copy = out .. "/copy"
    os.execute(("rm -rf '%s' && cp -r '%s' '%s'"):format(copy, dir, copy))
    local index <close> = data.open(demo_data.path())
    local lines, keys = {}, {}
    for i = 1, 2 do
      keys[i] = index:row(i).key
      for attempt = 1, 2 do
        lines[#lines + 1] = ('{"key":"%s","class":"corrupt","attempt":%d,"epoch":0,'
          .. '"fp_order":"%s"}\n'):format(keys[i], attempt, index.meta.fp_order)
      end
    end
    -- the second sample's last line is torn
    base.replace_file(copy .. "/quarantine.jsonl", table.concat(lines):sub(1, -20))
    local function excluded(steps)
      assert(train(steps, "load=" .. copy))
      local checkpoint <close> = ckpt.open(copy .. "/ckpt/step-00000000000" .. steps)
      return checkpoint.manifest.excluded
    end
    local want = "+" .. keys[1]:sub(17)
    assert.equal(want, excluded(3))
    os.remove(copy .. "/quarantine.jsonl")
    assert.equal(want, excluded(4))
  end)

  for _, change in ipairs { "bucket_config.32px.6.1=0.5", "resolutions.32px.pixels=1000" } do
    it("continues with " .. change .. ", without the samples that the epoch trained", function()
      local ok, code, log = restart(change)
      assert.is_true(ok, tostring(code))
      local samples = log:match("the bucket rule changed: (%d+) samples that epoch 0 has "
        .. "already trained are left out of the rest of it")
      assert.is_true(tonumber(samples) > 0, log)
      assert.matches("left out: " .. samples .. " samples, trained in this epoch", log)
      if change:find("pixels") then
        return
      end
      -- a later resume leaves out those samples too, which it knows by their list alone
      local again, problem, more = train(4, "load=" .. out .. "/copy", change)
      assert.is_true(again, tostring(problem))
      assert.matches("left out: " .. samples .. " samples, trained in this epoch", more)
      os.execute("rm " .. out .. "/copy/seen-*.bits")
      again, problem = train(5, "load=" .. out .. "/copy", change)
      assert.is_false(again)
      assert.matches("seen%-%x+%.bits", tostring(problem))
    end)
  end

  it("begins an epoch again with another seed, when that is asked for", function()
    local ok, code, log = restart("seed=8", "data_change=next")
    assert.is_true(ok, tostring(code))
    assert.matches("the data begin again with epoch 1\n", log)
    assert.matches("at step 2\n", log)
    ok, code, log = restart("seed=8", "data_change=restart")
    assert.is_true(ok, tostring(code))
    assert.matches("the data begin again with epoch 0\n", log)
  end)

  it("discards the position and all counts with --start-from-scratch", function()
    for _, change in ipairs { "seed=8", "bucket_config.32px.6.1=0.5",
        "resolutions.32px.pixels=1000" } do
      local ok, code, log = restart(change, "start_from_scratch=true")
      assert.is_true(ok, tostring(code))
      assert.matches("at step 0\n", log)
    end
  end)

  it("refuses another data set unless data_change says how to continue", function()
    local lines = {}
    local folder = demo_data.path():gsub("[^/]*$", "clips/")
    for line in io.lines(folder .. "demo.csv") do
      lines[#lines + 1] = line
    end
    local function index(name, first, last, by)
      local file = assert(io.open(folder .. name .. ".csv", "w"))
      file:write(lines[1], "\n")
      for i = first, last, by do
        file:write(lines[i], "\n")
      end
      file:close()
      data.ingest(folder .. name .. ".csv", out .. "/" .. name .. ".mrx")
      return "dataset.data_path=" .. out .. "/" .. name .. ".mrx"
    end
    local fewer, turned = index("fewer", 2, #lines - 1, 1), index("turned", #lines, 2, -1)
    local ok, problem = restart(fewer)
    assert.is_false(ok)
    assert.equal("MR_E_DATA", problem.code)
    assert.matches("holds other samples than the data of the checkpoint: 299 are in both, 0 are "
      .. "new, 1 have vanished; try: data_change = \"carry\"", problem.message)
    assert.is_true((restart(fewer, "start_from_scratch=true")))
    local log
    ok, problem, log = restart(fewer, "data_change=carry")
    assert.is_true(ok, tostring(problem))
    local report = "the data set changed: %d+ samples that epoch 0 has already trained are left out"
    assert.matches(report, log)
    ok, problem, log = restart(fewer, "data_change=next")
    assert.is_true(ok, tostring(problem))
    assert.matches("the data begin again with epoch 1\n", log)
    -- the same samples in another order are the same data
    ok, problem, log = restart(turned)
    assert.is_true(ok, tostring(problem))
    assert.matches(report, log)
    -- the same index under another name is the same data set
    local other = demo_data.path():gsub("demo%.mrx$", "other.mrx")
    os.execute(("cp -r '%s' '%s'"):format(demo_data.path(), other))
    ok, problem = restart("dataset.data_path=" .. other)
    assert.is_true(ok, tostring(problem))
  end)
end)
