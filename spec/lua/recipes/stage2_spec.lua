--- Stage 2 of Open-Sora 2.0, with and without conditions, trains at a small size by 4 ranks and by
-- 8 with its own plugin settings: tokens shared by 4, ZeRO 2, inputs of blocks in host memory.
local demo_data = require "spec.support.demo_data"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local small_set = require "spec.support.small_set"
local tiny20 = require "spec.support.tiny20"

local SMALL <const> = [[return recipe.extend("%s") {
  resolutions = { small = { pixels = 256, aspects = { { 1.0, 16, 16 } } } },
  bucket_config = recipe.replace { small = { [1] = { 1.0, 2 }, [5] = { 1.0, 1 } } },
  warmup_steps = 1, num_workers = 1, threads = 1, log_every = 1000, virtual_ranks = 2, steps = 2,
}]]

describe("stage 2 of Open-Sora 2.0", function()
  local dir, words
  setup(function() dir, words = small_set.new() end)
  teardown(function() dir:remove() end)

  local function train(recipe, n)
    local own = recipe:match "[^/]+$"
    local name = ("%s-by%d"):format(own, n)
    local list = { "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', process.program(), "-n", tostring(n),
      "train", dir:write(own .. ".lua", SMALL:format(recipe)), "name=" .. name, words[1],
      words[#words] }
    local _, more = tiny20.make(recipe, dir.path, { "model.hidden_size=64", "model.num_heads=4",
      "model.depth_single_blocks=2" })
    table.move(more, 1, #more, #list + 1, list)
    local done = process.run(list, "", { deadline_s = 300 })
    assert.equal(0, done.exit, done.output)
    local losses = {}
    for line in io.lines(demo_data.run_dir(dir.path .. "/runs", name) .. "/journal.jsonl") do
      local row = json.decode(line)
      losses[#losses + 1] = row.kind == "step" and row.loss or nil
    end
    return losses, done.output
  end

  for _, recipe in ipairs { "opensora-2.0/train/stage2", "opensora-2.0/train/stage2_i2v" } do
    it("trains the same by 4 ranks and by 8: " .. recipe, function()
      local four, said = train(recipe, 4)
      local eight = train(recipe, 8)
      assert.equal(2, #four, said)
      for i, loss in ipairs(four) do
        assert.near(1, eight[i] / loss, 1e-5)
      end
    end)
  end
end)
