--- TensorBoard's and W&B's own readers open the files of the trackers. MOONREEL_TRACKERS names a
-- Python that has both packages; the default is python3.
-- Covers: lua/moonreel/trackers/tensorboard.lua lua/moonreel/trackers/wandb.lua
local demo_data = dofile "spec/support/demo_data.lua"
local find = require "moonreel.runs.find"
local folder = require "spec.support.folder"
local histograms = require "moonreel.trackers.histograms"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local events = require "moonreel.runs.events"
local tracked = require "spec.support.tracked"
local trackers = require "moonreel.trackers"

local PYTHON = os.getenv "MOONREEL_TRACKERS" or "python3"
local KEYS = { "loss", "grad_norm", "lr", "t", "epoch", "time/step_s" }
local OF_LINE = { ["time/step_s"] = "time_s" }

-- counts of several bins, some adjacent and some far apart
local function counted(n)
  local all = {}
  for i = 1, histograms.NUMBERS do
    all[i] = 0
  end
  all[7], all[8], all[200], all[249], all[300], all[497] = n, 2, 3, 40, 5, 1
  all[499], all[500] = -0.125, 2.5
  return histograms.pack(all)
end

local function histogram(n, step)
  return { kind = "histograms", step = step, histograms = { ["weights/a.0/weights"] = counted(n),
    ["weights/a.0/gradients"] = counted(n + 1) } }
end

-- a run of several sessions, long enough for many blocks
local function lines()
  local list, wall = {}, 1.75e9
  local function add(line)
    wall = wall + 0.5
    line.wall = wall
    list[#list + 1] = line
  end
  local function train(from, to, scale)
    for n = from, to do
      local line = tracked.step(n, scale * math.sin(n) + 2)
      line.t = n % 7 == 0 and 500 or n / 3
      add(line)
    end
  end
  add(tracked.start(0))
  train(1, 300, 1)
  add(histogram(1, 300))
  add(tracked.start(250))
  train(251, 400, 0.1)
  add { kind = "rollback", step = 380, from = 400, why = "spike" }
  train(381, 385, 3)
  add { kind = "skip", step = 386, reason = "loss nan, gradient norm inf", lr = 1e-4 }
  train(387, 410, 3)
  add(histogram(9, 410))
  add { kind = "end", step = 410 }
  add(tracked.start(410))
  train(411, 420, 5)
  return list
end

-- reads the files of a run by a tool's reader; how = "server" asks TensorBoard over HTTP
local function found_in(run, name, how)
  local done = process.run({ PYTHON, "spec/support/tracker_readers.py", how or name,
    run .. "/" .. name }, "", { deadline_s = 600, output_bytes = 1 << 26, quiet = true })
  if done.exit == 77 then
    pending(name .. " is not installed")
  end
  assert.equal(0, done.exit, done.output)
  return json.decode(done.output:match "[^\n]*\n?$")
end

describe("the readers of", function()
  local dir, run
  setup(function()
    dir = folder.new()
    run = dir.path .. "/001-x"
    dir:write("001-x/journal.jsonl", tracked.text(lines()))
  end)
  teardown(function() dir:remove() end)

  local function read(name, how)
    local done = trackers.export(run, name)
    assert.equal(4, done.written + done.kept)
    return found_in(run, name, how)
  end

  local function want(key)
    local points = {}
    for _, line in ipairs(events.read(run):curve()) do
      local value = line[OF_LINE[key] or key]
      if line.kind == "skip" and key == "loss" then
        value = "nan"
      elseif line.kind == "skip" and key == "grad_norm" then
        value = "inf"
      end
      points[#points + 1] = value and { line.step, value }
    end
    return points
  end

  -- each number of the journal as f32, in the order of steps
  local function check_scalars(found)
    for _, key in ipairs(KEYS) do
      local points = want(key)
      for _, point in ipairs(points) do
        if type(point[2]) == "number" then
          point[2] = string.unpack("<f", string.pack("<f", point[2]))
        end
      end
      assert.equal(#points, #found.scalars[key], key)
      for i, point in ipairs(points) do
        assert.same(point, { found.scalars[key][i][1], found.scalars[key][i][2] }, key)
      end
    end
  end

  it("TensorBoard find each number of the journal",
    function() check_scalars(read "tensorboard") end)

  it("TensorBoard send them to a browser, with the text of events", function()
    local found = read("tensorboard", "server")
    check_scalars(found)
    local steps, words = {}, {}
    for i, point in ipairs(found.texts["events/text_summary"]) do
      steps[i], words[i] = point[1], point[2]
    end
    assert.same({ 380, 410 }, steps)
    assert.matches("back to step 380: spike", words[1])
    assert.matches("done: step 410", words[2])
  end)

  -- the histograms that remain after a rollback, as a reader returns them
  local WANT = { ["weights/a.0/weights"] = 9, ["weights/a.0/gradients"] = 10 }

  it("TensorBoard find the histograms of the journal", function()
    local found = read("tensorboard").histograms
    for tag, n in pairs(WANT) do
      local h = histograms.of_line { histograms = { [tag] = counted(n) } }[1][2]
      assert.same({ { 410, h.min, h.limits[#h.limits], n + 51, -0.125, 2.5, h.limits, h.counts } },
        found[tag])
    end
  end)

  it("W&B find the histograms of the journal", function()
    local rows = {}
    for _, row in ipairs(read("wandb").rows) do
      rows[row._step] = row
    end
    for tag, n in pairs(WANT) do
      local h = histograms.of_line { histograms = { [tag] = counted(n) } }[1][2]
      assert.same({ _type = "histogram", values = h.counts, bins = { h.min,
        table.unpack(h.limits) } }, rows[410][tag])
      assert.is_nil(rows[299][tag])
    end
  end)

  it("W&B find every number of the journal", function()
    local found = read "wandb"
    assert.same({ 0, 0 }, { found.exits[1], found.exits[2] })
    for _, key in ipairs(KEYS) do
      local points, at = want(key), 0
      for _, row in ipairs(found.rows) do
        if row[key] then
          at = at + 1
          assert.same(points[at], { row._step, row[key] }, key)
        end
      end
      assert.equal(#points, at, key)
    end
    assert.equal(0, #found.missing)
  end)
end)

-- Two stages; the first one rolls back at its 29th step and is killed at its 32nd.
local RECIPE = [[return recipe {
  threads = 1, num_workers = 1, log_every = 1000, ckpt_every = 5, keep_n_latest = 3,
  tensorboard = true, wandb = true, lr_schedule = "constant", warmup_steps = 2,
  bucket_config = recipe.replace { ["32px"] = { [6] = { 1.0, 4 } } },
  spike = { action = "rollback", back_steps = 8, skip_batches = 4, loss_sigmas = 1e9 },
  sampling = { every = 10, prompts = { "a", "b" }, seeds = { 1 }, on = "device" },
  scheduler = { num_sampling_steps = 2 }, weights = { every = 5, histograms = 10 },
  model = { depth = 1, hidden_size = 32, num_heads = 2, caption_channels = 32 },
  text_encoder = { width = 32 },
  stages = {
    { name = "a", recipe = "tiny/demo", steps = 40 },
    { name = "b", recipe = "tiny/demo", steps = 12, lr = 1e-3, load = recipe.previous,
      start_from_scratch = true },
  },
}]]

describe("the readers of a run with stages, a rollback, a kill and a resume", function()
  local dir, root, points
  setup(function()
    if process.run({ PYTHON, "-c", "import tensorboard, wandb" }, "", { quiet = true }).exit ~= 0
    then
      return
    end
    dir = folder.new()
    local recipe = dir:write("two.lua", RECIPE)
    for _, plan in ipairs { { 9, '{"draws":{"26":50,"27":50,"28":50,"29":50},"stop":32}' },
        { 0, '{"draws":{}}', "load=latest" } } do
      local done = process.run({ process.program(), "spec/support/spiked_run.lua", plan[2], recipe,
        "data_path=" .. demo_data.path(), "outputs=" .. dir.path, "name=x", plan[3] }, "",
        { deadline_s = 600, output_bytes = 1 << 20 })
      assert.equal(plan[1], done.exit, done.output)
    end
    root, points = dir.path .. "/001-x", {}
    local last, stage = 0, nil
    for _, line in ipairs(events.steps(find.parts(root))) do
      last, stage = line.stage ~= stage and #points or last, line.stage
      points[#points + 1] = line
      line.at = last + line.step
    end
    assert.equal(52, #points)
  end)
  teardown(function()
    if dir then
      dir:remove()
      demo_data.remove()
    end
  end)

  -- steps 10, 20, 30 and 40 of the first stage, 10 and 12 of the second
  local RENDERED <const> = { 10, 20, 30, 40, 50, 52 }

  local function each_rendering(found)
    for i = 0, 1 do
      local name = ("samples/recipe/sample_%04d"):format(i)
      local steps = found(name)
      assert.same(RENDERED, steps, name)
    end
  end

  local function check_board(found)
    for _, key in ipairs(KEYS) do
      assert.equal(#points, #found.scalars[key], key)
      for i, line in ipairs(points) do
        local value = line[OF_LINE[key] or key]
        assert.same({ line.at, (string.unpack("<f", string.pack("<f", value))) },
          { found.scalars[key][i][1], found.scalars[key][i][2] }, key)
      end
    end
  end

  it("TensorBoard find one curve, also over HTTP, and the rendered samples", function()
    if not dir then
      return pending "tensorboard is not installed"
    end
    local found = found_in(root, "tensorboard")
    check_board(found)
    each_rendering(function(name)
      local steps = {}
      for i, one in ipairs(found.images[name] or {}) do
        steps[i] = one[1]
        assert.equal("GIF", one[4])
      end
      return steps
    end)
    found = found_in(root, "tensorboard", "server")
    check_board(found)
    each_rendering(function(name) return found.images[name] end)
  end)

  it("W&B find one curve and the rendered samples", function()
    if not dir then
      return pending "wandb is not installed"
    end
    local found = found_in(root, "wandb")
    assert.same({}, found.missing)
    assert.equal(#points, #found.rows)
    local rendered = {}
    for i, row in ipairs(found.rows) do
      for _, key in ipairs(KEYS) do
        assert.same({ points[i].at, points[i][OF_LINE[key] or key] }, { row._step, row[key] }, key)
      end
      for name, value in pairs(row) do
        if type(value) == "table" and value._type == "video-file" then
          rendered[name] = rendered[name] or {}
          table.insert(rendered[name], row._step)
        end
      end
    end
    each_rendering(function(name) return rendered[name] end)
  end)

  it("find the same in files that an export wrote from the journal", function()
    if not dir then
      return pending "the readers are not installed"
    end
    for _, name in ipairs { "tensorboard", "wandb" } do
      assert(os.rename(root .. "/" .. name, root .. "/was"))
      assert.equal(4, trackers.export(root, name).written)
      local done = process.run { "/usr/bin/diff", "-r", root .. "/was", root .. "/" .. name }
      assert.equal(0, done.exit, done.output)
      assert(os.execute("rm -r '" .. root .. "/was'"))
    end
  end)
end)
