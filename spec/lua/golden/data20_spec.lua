--- golden.data20: reference files about the data of Open-Sora 2.0, and how differences are found.
-- Covers: lua/moonreel/data/opensora20.lua lua/moonreel/data/generators.lua
-- spec/golden/runner/epochs.lua core/bind/generator.c
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local golden = require "spec.golden.runner"
local json = require "moonreel.core.json"

local DIR = "spec/golden/data20/"

-- the result for a file that a function changes
local function judged(name, change)
  local place = folder.new()
  local file = json.decode(base.read_file(DIR .. name .. ".json"))
  change(file)
  place:write(name .. ".json", json.encode(file))
  for _, other in ipairs { "bucket_nodrop_assign", "bucket_noshuffle_assign" } do
    if other ~= name then
      place:write(other .. ".json", base.read_file(DIR .. other .. ".json"))
    end
  end
  local verdict
  golden.run(place.path, function(line)
    verdict = line:match("^%u+ " .. name .. " .*$") or verdict
  end)
  place:remove()
  return verdict
end

describe("golden files about the data of 2.0", function()
  it("pass unchanged", function()
    local lines = {}
    local sum = golden.run(DIR, function(line) lines[#lines + 1] = line end)
    assert.equal(8, sum.passed, table.concat(lines, "\n"))
    assert.equal(0, sum.failed + sum.skipped)
  end)

  it("fail when a number is changed", function()
    for _, case in ipairs {
      { "aspect_fps", "sizes", function(f) f.tables["D16/256px/train"].table["16:9"][2] = 352 end },
      { "aspect_fps", "nearest ratio", function(f) f.closest_ratio_256px_train[2][3] = "3:2" end },
      { "aspect_fps", "rates", function(f) f.fps_map.rows[5][4] = 3 end },
      { "rng", "torch permutations", function(f) f.cases[1].next_perm[5] = 2 end },
      { "rng", "python_random", function(f) f.python_random[2].uniform[3] = 0.5 end },
      { "rng", "numpy_default_rng", function(f) f.numpy_default_rng[5].uniform[4] = 0.5 end },
      { "rng", "torch uniform", function(f) f.torch_rand[2].values[20] = 0.5 end },
      { "rng", "torch normal", function(f)
        local values = f.torch_randn[4].values
        values[33] = values[33] + 1e-5
      end },
      { "bucket_nodrop_assign", "resolutions", function(f) f.num_buckets = 91 end },
      { "bucket_nodrop_assign", "buckets", function(f) f.epochs[1].assignment[2][2] = 97 end },
      { "bucket_nodrop_assign", "draws", function(f) table.remove(f.epochs[1].draws[2]) end },
      { "bucket_nodrop_sampler", "batches", function(f)
        f.sampler[3].ranks[4][18][1] = "1-1-1-1"
      end },
      { "bucket_noshuffle_sampler", "batches", function(f) f.sampler[1].len = 1 end },
      { "data_rules", "texts", function(f) f.train_text[2].text = "a cat 12 FPS." end },
      { "data_rules", "texts", function(f) f.inference_text[9].out = "24 FPS. more." end },
      { "data_rules", "names", function(f) f.save_names[5].out = "s/v/..dots..-0" end },
      { "data_rules", "frames", function(f) f.temporal_crop.cases[1].python_seed = 101 end },
    } do
      local line = judged(case[1], case[3])
      assert.matches("^FAIL " .. case[1] .. " .*" .. case[2], line)
    end
  end)
end)
