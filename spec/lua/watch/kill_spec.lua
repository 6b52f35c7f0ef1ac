--- A run and its watcher are killed at random moments. Each checkpoint is still rendered exactly
-- once, and no rendering is incomplete.
-- Covers: lua/moonreel/watch/init.lua lua/moonreel/watch/shelf.lua lua/moonreel/watch/found.lua
local background = require "spec.support.background"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local json = require "moonreel.core.json"
local media = require "moonreel.core.media"
local process = require "moonreel.core.process"
local run = require "moonreel.run"

-- MOONREEL_KILLS makes this spec longer
local KILLS <const> = tonumber(os.getenv "MOONREEL_KILLS" or 12)
local SEED <const>, EVERY <const> = tonumber(os.getenv "MOONREEL_SEED" or 1), 4
local STEPS <const> = EVERY * (6 + 2 * KILLS)

describe("moonreel watch, when the run or the watcher is killed", function()
  local out = demo_data.scratch()
  teardown(function()
    background.stop()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  -- starts a program in the background; returns its process number
  local function start(name, ...)
    local log = ("%s/%s.log"):format(out, name)
    background.start(log, "/bin/sh", "-c", 'echo $$ > "$0"; exec "$@"', out .. "/" .. name,
      process.program(), ...)
    return background.await("the start of " .. name, log, function()
      local good, text = pcall(base.read_file, out .. "/" .. name)
      return good and tonumber(text)
    end)
  end
  local function train()
    os.remove(out .. "/train")
    return start("train", "train", "tiny/demo", "name=a", "outputs=" .. out .. "/runs",
      "dataset.data_path=" .. demo_data.path(), "steps=" .. STEPS, "ckpt_every=" .. EVERY,
      "keep_n_latest=0", "threads=1", "num_workers=1", "model.depth=1", "model.hidden_size=32",
      "model.num_heads=2", "text_encoder.width=32", "model.caption_channels=32", "dtype=fp32",
      'bucket_config={["32px"]={[6]={1.0,2}}}', "log_every=100", "load=latest")
  end
  local function dir() return demo_data.run_dir(out .. "/runs", "a") end
  local function watch()
    os.remove(out .. "/watch")
    return start("watch", "watch", dir(), "--prompt", "a red circle moving up", "--prompt", "b",
      "--seed", "1", "--steps", "3", "--threads", "1")
  end
  local function lives(pid)
    local good, stat = pcall(base.read_file, ("/proc/%d/stat"):format(pid))
    return good and not stat:find "%) Z"
  end
  local function kill(pid)
    os.execute(("kill -9 %d 2> /dev/null"):format(pid))
    background.await("the end of a process", out .. "/train.log", function()
      return not lives(pid) or nil
    end)
  end

  it("renders each checkpoint once and completely", function()
    local trained = train()
    background.await("the run's folder", out .. "/train.log", function()
      return base.exists(out .. "/runs/001-a/journal.jsonl") or nil
    end)
    local watched = watch()
    print(("seed %d"):format(SEED))
    for i = 1, KILLS do
      base.sleep(base.random_uniform(SEED, "pause", i, 0) * 1.2)
      if i % 2 == 0 then
        kill(trained)
        trained = train()
      else
        kill(watched)
      end
      if not lives(watched) then
        watched = watch()
      end
    end
    background.await("the end of the run", out .. "/train.log", function()
      if not lives(watched) then
        watched = watch()
      end
      return not lives(trained) or nil
    end)
    assert.matches("done: step " .. STEPS, base.read_file(out .. "/train.log"))
    background.await("the end of the watcher", out .. "/watch.log", function()
      return not lives(watched) or nil
    end)
    -- a watcher that was killed leaves the rest to the next one
    local last = process.run({ process.program(), "watch", dir(), "--prompt",
      "a red circle moving up", "--prompt", "b", "--seed", "1", "--steps", "3" }, "",
      { deadline_s = 300 })
    assert.equal(0, last.exit, last.output)

    local ids, lines = {}, {}
    for _, step in ipairs(ckpt.steps(dir())) do
      local id = base.hash128(base.read_file(ckpt.dir(dir(), step) .. "/MANIFEST.json"))
      local folder = ("%s/samples/step%d"):format(dir(), step)
      local number = 0
      for _, name in ipairs(base.list_dir(folder)) do
        local path = folder .. "/" .. name
        local about = json.decode(base.read_file(path .. "/rendering.json"), path)
        number = number + (about.id == id and 1 or 0)
        assert.equal(2, #about.clips)
        assert.equal(3, #base.list_dir(path), path)
        for _, clip in ipairs(about.clips) do
          assert.equal(6, media.watch(path .. "/" .. clip.file).frames)
        end
      end
      assert.equal(1, number, "renderings of step " .. step)
      ids[#ids + 1] = step
    end
    -- the run leaves out a save while both buffers are written: on a slow disk, most saves
    assert.is_true(#ids >= KILLS // 2, #ids .. " checkpoints")
    for line in run.entries(dir()) do
      if line.kind == "samples" then
        assert.is_nil(lines[line.path], line.path)
        lines[line.path] = true
        assert.is_true(base.exists(dir() .. "/" .. line.path))
      end
    end
    for _, step in ipairs(ids) do
      assert.is_true(lines[("samples/step%d/recipe"):format(step)], "line of step " .. step)
    end
    assert.same({}, base.list_dir(dir() .. "/samples/.watch/lines"))
    local left = {}
    for _, name in ipairs(base.list_dir(dir() .. "/samples/.watch/recipe")) do
      left[#left + 1] = name ~= "lock" and name or nil
    end
    assert.same({}, left)
  end)
end)
