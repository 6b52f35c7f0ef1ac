--- MMDiT in the training loop: the run is the same after a resume, from a cache, on ranks that
-- share a step or its tokens, and when the inputs of blocks wait in host memory.
-- Covers: lua/moonreel/trainer/predict.lua lua/moonreel/trainer/conditions.lua
-- lua/moonreel/diffusion/shifted.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local job = require "moonreel.job"
local process = require "moonreel.core.process"
local run = require "moonreel.run"
local settings = require "moonreel.settings"
local small_mmdit_run = require "spec.support.small_mmdit_run"
local trainer = require "moonreel.trainer"

describe("a run of MMDiT", function()
  local dir, words
  setup(function()
    dir, words = small_mmdit_run.new()
  end)
  teardown(function() dir:remove() end)

  local function with(...)
    local list = table.move(words, 1, #words, 1, {})
    return table.move({ ... }, 1, select("#", ...), #list + 1, list)
  end

  local function folder_of(name)
    for _, entry in ipairs(base.list_dir(dir.path .. "/runs")) do
      if entry:match "^%d+%-(.*)$" == name then
        return dir.path .. "/runs/" .. entry
      end
    end
  end

  local function train(name, ...)
    assert.equal(0, (trainer.run(settings.bake(dir.path .. "/mmdit.lua", with("name=" .. name,
      ...)), { write = function() end })))
    return folder_of(name)
  end

  -- by several processes, each of them a rank
  local function train_by(ranks, name, ...)
    local list = { process.program(), "train", dir.path .. "/mmdit.lua", "-n", tostring(ranks),
      "name=" .. name }
    local done = process.run({ "/bin/sh", "-c", 'exec "$0" "$@" 2>&1',
      table.unpack(table.move(with(...), 1, #with(...), #list + 1, list)) }, "",
      { deadline_s = 600, output_bytes = 1 << 20 })
    assert.equal(0, done.exit, done.output)
    return folder_of(name)
  end

  local function losses(folder)
    local list = {}
    for entry in run.entries(folder) do
      if entry.kind == "step" then
        list[#list + 1] = entry.loss
      end
    end
    return list
  end

  local function same_weights(a, b)
    local one <close> = ckpt.newest(a)
    local two <close> = ckpt.newest(b)
    assert.is_true(#one:names() > 50)
    for _, name in ipairs(one:names()) do
      assert.equal(0, one:compare(two, name).differing, name)
    end
  end

  local whole
  local function run_whole()
    whole = whole or train("whole", "steps=6", "ckpt_every=3")
    return whole
  end

  it("is the same after a resume, bit for bit", function()
    local part = train("part", "steps=3")
    train("part", "steps=6", "load=" .. part)
    assert.same(losses(run_whole()), losses(part))
    same_weights(run_whole(), part)
  end)

  it("is the same from a cache that also holds conditions", function()
    local cached = { "epochs=2", "steps=6" }
    assert.equal(0, (job.run(settings.bake(dir.path .. "/mmdit.lua", with("job=extract",
      "save_text_features=true")), { write = function() end })))
    local folder = train("cached", "cached=true", table.unpack(cached))
    assert.same(losses(run_whole()), losses(folder))
    same_weights(run_whole(), folder)
  end)

  it("depends on conditions, guidance, dropped captions and the noise that remains", function()
    local function first(...) return losses(train("first", "steps=1", ...))[1] end
    local plain = losses(run_whole())[1]
    for _, word in ipairs { "model.guidance=5", "dropout_ratio.t5=1", "dropout_ratio.clip=1",
        "sigma_min=0.1", "no_i2v_ref_loss=true" } do
      assert.are_not.equal(plain, first(word), word)
    end
    -- a fresh model ignores its conditions: their weight is zero until the second step
    local second = losses(train("second", "steps=2", "condition_config.t2v=1000"))
    assert.equal(plain, second[1])
    assert.are_not.equal(losses(run_whole())[2], second[2])
  end)

  it("is nearly the same on two ranks that share a step or its tokens", function()
    local steps = { "steps=4", "virtual_ranks=2", "plugin_config.zero_stage=2" }
    local alone = losses(train("alone", table.unpack(steps)))
    local two = losses(train_by(2, "two", table.unpack(steps)))
    local shared = losses(train_by(2, "shared", "plugin_config.sp_size=2", table.unpack(steps)))
    assert.equal(4, #alone)
    for i, loss in ipairs(alone) do
      assert.near(loss, two[i], 2e-5 * loss)
      assert.near(loss, shared[i], 2e-5 * loss)
    end
  end)

  it("recomputes the chosen blocks with the same bits", function()
    local again = train("again", "steps=6", "grad_checkpoint=true", "grad_ckpt_settings=(1, 1)")
    assert.same(losses(run_whole()), losses(again))
    same_weights(run_whole(), again)
  end)

  it("keeps inputs of blocks in host memory with the same bits, if the buffer is large",
    function()
    local recomputed = { "steps=6", "grad_checkpoint=true" }
    -- the error names the bytes of the first bucket that needs more than one byte
    local function refused(bytes)
      local ok, problem = pcall(train, "small" .. bytes, "grad_ckpt_buffer_size=" .. bytes,
        table.unpack(recomputed))
      assert.is_false(ok)
      assert.equal("MR_E_RECIPE", problem.code)
      assert.is_nil(folder_of("small" .. bytes))
      return problem.message
    end
    local needs = math.tointeger(refused(1):match "keep (%d+) bytes of inputs in host memory")
    assert.matches("grad_ckpt_buffer_size=" .. needs - 1 .. ": grad_ckpt_buffer_size = "
      .. needs - 1, refused(needs - 1))
    local away = train("away", "grad_ckpt_buffer_size=" .. needs, table.unpack(recomputed))
    assert.same(losses(run_whole()), losses(away))
    same_weights(run_whole(), away)
  end)
end)
