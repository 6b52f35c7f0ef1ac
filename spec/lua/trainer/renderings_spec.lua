--- What a run renders while it trains. Covers: lua/moonreel/trainer/renderings.lua
local background = require "spec.support.background"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local run = require "moonreel.run"
local shelf = require "moonreel.watch.shelf"
local signalled = require "spec.support.signalled"

describe("a run with sampling.every", function()
  local dir = folder.new()
  local out = dir.path .. "/runs"
  base.make_dir(out)
  teardown(function()
    background.stop()
    dir:remove()
    demo_data.remove()
  end)

  local RENDERED = { "scheduler.num_sampling_steps=2", "sampling.every=10", "sampling.seeds={1}",
    'sampling.prompts={"a", "b"}' }
  local function plain(name, ...)
    return { "train", "tiny/demo", "dataset.data_path=" .. demo_data.path(),
      "outputs=" .. out, "name=" .. name, "dtype=fp32", "threads=1", "num_workers=1",
      "model.depth=1", "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
      "model.caption_channels=32", 'bucket_config={["32px"]={[6]={1.0,2}}}', "log_every=100",
      ... }
  end
  local function words(name, ...)
    return plain(name, table.unpack(table.move({ ... }, 1, select("#", ...), #RENDERED + 1,
      table.move(RENDERED, 1, #RENDERED, 1, {}))))
  end
  local function run_words(list)
    return process.run({ "/bin/sh", "-c", 'exec "$@" 2>&1', "sh", process.program(),
      table.unpack(list) }, "", { deadline_s = 300, output_bytes = 1 << 20 })
  end
  local function train(name, ...) return run_words(words(name, ...)) end
  local function run_dir(name) return demo_data.run_dir(out, name) end
  local function lines_of(name, kind)
    local list = {}
    for line in run.entries(run_dir(name)) do
      list[#list + 1] = line.kind == kind and line or nil
    end
    return list
  end
  -- step -> number of journal lines about a rendering of it
  local function report(name, event)
    local steps = {}
    for line in run.entries(run_dir(name)) do
      if line.kind == "samples" and line.event == event then
        steps[line.step] = (steps[line.step] or 0) + 1
      end
    end
    return steps
  end
  -- each of these steps has one complete rendering, and no other files remain
  local function expect_rendered(name, steps)
    local want = {}
    for _, step in ipairs(steps) do
      want[step] = 1
      local at = ("%s/samples/step%d/recipe"):format(run_dir(name), step)
      assert.same({ "rendering.json", "sample_0000.mp4", "sample_0001.mp4" }, base.list_dir(at))
    end
    assert.same(want, report(name))
    assert.equal(#steps + 1, #base.list_dir(run_dir(name) .. "/samples"))
    assert.same({ "lock" }, base.list_dir(run_dir(name) .. "/samples/.watch/recipe"))
  end

  for _, on in ipairs { "host", "device" } do
    it("renders its checkpoints on the " .. on .. ", also the last", function()
      local done = train(on, "steps=25", "sampling.on=" .. on, "tensorboard=true")
      assert.equal(0, done.exit, done.output)
      expect_rendered(on, { 10, 20, 25 })
      assert.matches("step 20 is rendered: [^\n]*samples/step20/recipe, [%d.]+ s", done.output)
      -- a launch with nothing to do renders nothing again; one more step has one more rendering
      done = train(on, "steps=30", "load=latest")
      assert.equal(0, done.exit, done.output)
      expect_rendered(on, { 10, 20, 25, 30 })
    end)
  end

  it("evaluates the loss of its checkpoints, also of the last, in addition to rendering", function()
    local EVALUATED = { "eval.every=20", "num_eval_timesteps=2", "dataset.hold_back=6",
      "eval_ema=true" }
    local function evaluated(name, ...)
      return run_words(plain(name, "steps=50", "tensorboard=true", table.unpack(
        table.move({ ... }, 1, select("#", ...), #EVALUATED + 1, table.move(EVALUATED, 1,
        #EVALUATED, 1, {})))))
    end
    for _, on in ipairs { "host", "device" } do
      local name, losses = "loss" .. on, {}
      local done = evaluated(name, "sampling.on=" .. on, "-n", on == "host" and "1" or "2")
      assert.equal(0, done.exit, done.output)
      for line in run.entries(run_dir(name)) do
        if line.kind == "samples" then
          local at = line.scalars["eval_loss/32px_6/t333.3"]
          assert.equal("loss", line.set)
          assert.is_true(at > 0 and line.scalars["eval_loss/32px_6/t333.3_error"] < at)
          losses[#losses + 1] = { line.step, line.scalars.eval_loss }
        end
      end
      assert.same({ 20, 40, 50 }, { losses[1][1], losses[2][1], losses[3][1] })
      assert.is_true(losses[3][2] < losses[1][2])
      assert.equal(3, #losses)
      assert.matches("step 20 is evaluated: loss %d", done.output)
      assert.same({ "lock" }, base.list_dir(run_dir(name) .. "/samples/.watch/loss"))
    end
    -- both in one run, each at its own steps
    local done = evaluated("both", "sampling.on=device", "scheduler.num_sampling_steps=2",
      "sampling.every=30", "sampling.seeds={1}", 'sampling.prompts={"a"}')
    assert.equal(0, done.exit, done.output)
    local made = {}
    for line in run.entries(run_dir "both") do
      if line.kind == "samples" then
        made[#made + 1] = line.step .. line.set
      end
    end
    table.sort(made)
    assert.same({ "20loss", "30recipe", "40loss", "50loss", "50recipe" }, made)
    done = evaluated("refused", "eval_timesteps={}")
    assert.equal(3, done.exit, done.output)
    assert.matches("eval_timesteps: expected at least one time from 0 to 1, got an empty list",
      done.output)
    assert.is_nil(run_dir "refused")
  end)

  it("trains the same bits as without renderings", function()
    local done = run_words(plain("plain", "steps=20", "ckpt_every=10"))
    assert.equal(0, done.exit, done.output)
    assert.equal(0, train("every", "steps=20").exit)
    local a <close> = ckpt.open(ckpt.dir(run_dir "plain", 20))
    local b <close> = ckpt.open(ckpt.dir(run_dir "every", 20))
    for _, name in ipairs(a:names()) do
      assert.equal(0, a:compare(b, name).differing, name)
    end
  end)

  it("renders on the first of several ranks", function()
    for _, on in ipairs { "host", "device" } do
      local done = train("two" .. on, "steps=20", "-n", "2", "sampling.on=" .. on)
      assert.equal(0, done.exit, done.output)
      expect_rendered("two" .. on, { 10, 20 })
    end
  end)

  it("renders a step again after a rollback, in another folder", function()
    for _, on in ipairs { "host", "device" } do
      local name, list = "back" .. on, { process.program(), "spec/support/spiked_run.lua",
        json.encode { draws = { ["26"] = 50, ["27"] = 50,
          ["28"] = 50, ["29"] = 50 } } }
      local given = words(name, "steps=34", "sampling.every=5", "sampling.on=" .. on,
        "spike.action=rollback", "spike.back_steps=8", "spike.skip_batches=4",
        "spike.loss_sigmas=1e9", "lr_schedule=constant", "warmup_steps=2",
        'bucket_config=recipe.replace{32px: {6: (1, 4)}}')
      local done = process.run(table.move(given, 2, #given, #list + 1, list), "",
        { deadline_s = 300, output_bytes = 1 << 20 })
      assert.equal(0, done.exit, done.output)
      local back = lines_of(name, "rollback")
      assert.equal(1, #back)
      -- step 25 was saved twice; the first save may be gone before it is rendered
      local again = report(name)
      assert.is_true(again[25] == 2 or on == "host" and again[25] == 1)
      again[25] = nil
      assert.same({ [5] = 1, [10] = 1, [15] = 1, [20] = 1, [30] = 1, [34] = 1 }, again)
      for _, step in ipairs(ckpt.steps(run_dir(name))) do
        local _, made = shelf.place(run_dir(name), { step = step, set = "recipe", id = base.hash128(
          base.read_file(ckpt.dir(run_dir(name), step) .. "/MANIFEST.json")) })
        assert.equal(step, made and made.step)
      end
    end
  end)

  it("continues after a rendering that failed, and reports and records it", function()
    for _, on in ipairs { "host", "device" } do
      local name = "fails" .. on
      local done = train(name, "steps=20", "sampling.height=16384", "sampling.width=16384",
        "sampling.frames=4000", "sampling.on=" .. on)
      assert.equal(0, done.exit, done.output)
      assert.matches("step 10 is not rendered: .*need about", done.output)
      assert.matches("done: step 20", done.output)
      assert.same({ [10] = 1, [20] = 1 }, report(name, "fail"))
      assert.same({}, report(name))
    end
  end)

  it("continues when its prompt file becomes invalid, and reports what is wrong", function()
    for _, on in ipairs { "host", "device" } do
      local file = dir:write("prompts.txt", "a\n")
      local script = dir:write("damage.lua", ([[
        local loop, step = require "moonreel.trainer.loop", nil
        step = loop.step
        function loop.step(r)
          if r.step == 5 then
            io.open(%q, "w"):write "caf\xE9\n":close()
          end
          return step(r)
        end
        os.exit(require("moonreel.cli.train").run { ... }, true)]]):format(file))
      local given = words("damaged" .. on, "steps=20", "sampling.prompts=none",
        "sampling.on=" .. on, "sampling.prompt_path=" .. file)
      given[1] = script
      local done = run_words(given)
      assert.equal(0, done.exit, done.output)
      assert.matches("prompts.txt:1: 'caf\\xe9' is not UTF-8", done.output, 1, true)
      assert.matches("done: step 20", done.output)
      assert.same({}, report("damaged" .. on))
      for _, line in ipairs(lines_of("damaged" .. on, "samples")) do
        assert.matches("exit code 4: .*is not UTF%-8", line.text)
      end
    end
  end)

  it("leaves renderings that a request to stop ended to the next launch", function()
    local done = signalled("TERM", [[
      local look = require("moonreel.trainer.renderings").look
      require("moonreel.trainer.renderings").look = function(r)
        look(r)
        if r.renders and r.renders.child then send() end
      end]], words("stopped", "steps=100000", "scheduler.num_sampling_steps=200"))
    assert.equal(143, done.exit, done.output)
    assert.same({}, report "stopped")
    local steps = ckpt.steps(run_dir "stopped")[1]
    done = train("stopped", "load=latest", "steps=" .. steps, "sampling.every=100000")
    assert.equal(0, done.exit, done.output)
    assert.is_true(base.exists(("%s/samples/step10/recipe/sample_0001.mp4"):format(
      run_dir "stopped")))
  end)

  it("renders each checkpoint once after a kill and a restart", function()
    local log, seed = out .. "/log", tonumber(os.getenv "MOONREEL_SEED" or 1)
    local kills = tonumber(os.getenv "MOONREEL_KILLS" or 3)
    print(("seed %d"):format(seed))
    for i = 1, kills do
      background.start(log, process.program(), table.unpack(words("killed", "steps=100000",
        "load=latest", "keep_n_latest=0")))
      background.await("a new step", log, function()
        return base.read_file(log):find "step %d+/100000" or nil
      end)
      base.sleep(base.random_uniform(seed, "pause", i, 0))
      background.stop()
    end
    local steps, last = {}, ckpt.steps(run_dir "killed")[1] + 10
    local done = train("killed", "load=latest", "steps=" .. last, "keep_n_latest=0")
    assert.equal(0, done.exit, done.output)
    for i, step in ipairs(ckpt.steps(run_dir "killed")) do
      steps[i] = step
    end
    expect_rendered("killed", steps)
  end)

  it("refuses, before its first step, what it could not render", function()
    local latin, none = dir:write("latin.txt", "caf\xE9\n"), dir:write("none.txt", "\n")
    local braces = dir:write("braces.txt", "a {b}\n")
    for word, message in pairs { ["sampling.prompts=none"] = "no prompt; try: ",
      ["sampling.prompt_path=" .. latin] = "latin.txt:1: 'caf\\xe9' is not UTF-8",
      ["sampling.prompt_path=" .. none] = "none.txt: has no prompt",
      ["sampling.prompt_path=" .. braces] = "prompt 'a {b}': its {...} is not a JSON object",
      ["sampling.prompt_path=" .. dir.path .. "/missing.txt"] = "missing.txt" } do
      local done = train("refused", "steps=20", "sampling.prompts=none", word)
      assert.is_true(done.exit >= 2 and done.exit <= 8, word .. done.output)
      assert.matches(message, done.output, 1, true)
      assert.is_nil(run_dir "refused")
    end
  end)
end)
