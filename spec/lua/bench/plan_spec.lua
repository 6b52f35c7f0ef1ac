local json = require "moonreel.core.json"

describe("bench plan", function()
  local bench = require "moonreel.bench.plan"
  local machine = require "moonreel.plan.machine"
  local predicted, shown, rounds = bench.predicted, bench.shown, bench.rounds
  local function small(width, depth, cells)
    return {family = "stdit3", latent = {1, 4, 1, cells, cells}, model = {depth = depth,
      hidden_size = width, num_heads = 2, caption_channels = 16, model_max_length = 8}}
  end

  -- frames through the encoders of a narrow autoencoder
  local function clip(frames)
    return {clip = {frames = frames, height = 16, width = 16, pictures = 2,
      spatial = {block_out_channels = {8, 8, 8, 8}, layers_per_block = 1, norm_num_groups = 4},
      temporal = {filters = 8, num_res_blocks = 1, num_groups = 4}}}
  end

  setup(function()
    bench.rounds = 2
    bench.predicted = function()
      return {{name = "one", of = small(48, 1, 8)}, {name = "clip", of = clip(9)},
        {name = "block", of = {block = {"t5-v1_1-small", 1, 24}}}}
    end
    bench.shown = function()
      return {small(32, 1, 6), small(64, 1, 4), clip(5), {block = {"t5-v1_1-small", 1, 16}}}
    end
  end)
  teardown(function()
    bench.predicted, bench.shown, bench.rounds = predicted, shown, rounds
  end)

  it("measures the rates at sizes other than those that it predicts", function()
    local sizes = {}
    local function of(one)
      local c = one.clip
      return json.encode(c and {c.frames, c.height, c.width, c.spatial.block_out_channels[1]}
        or one.block or one.model and {one.model.hidden_size, one.latent}
        or {one.size.frames, one.size.batch, one.values})
    end
    for _, one in ipairs(predicted()) do
      sizes[of(one.of)] = true
    end
    for _, one in ipairs(shown()) do
      assert.is_nil(sizes[of(one)])
      sizes[of(one)] = true
    end
  end)

  it("compares predictions for other shapes with measurements of the same rounds", function()
    local rows, on = bench.measure{threads = 1, dtype = "f32"}
    assert.same({3, "f32", 1}, {#rows, on.dtype, on.threads})
    for i, name in ipairs{"one", "clip", "block"} do
      local row = rows[i]
      assert.equal(name, row.name)
      assert.is_true(row.predicted_s > 0 and row.measured_s > 0)
      assert.equal(math.abs(row.off) <= bench.within, row.within)
    end
  end)

  it("writes a machine file that plans can use", function()
    local dir = require("spec.support.folder").new()
    finally(function() dir:remove() end)
    local m = machine.open(dir:write("mine.lua", bench.text("mine", {threads = 1,
      dtype = "f32"})))
    assert.same({"mine", 1}, {m.name, m.cpu.threads})
    assert.is_true(m.rate.step_s > 0)
    -- it has the ops of encoders of clips and captions
    local classes, linear = {}, 0
    for op, points in pairs(m.ops) do
      classes[op:match "^%S+"] = true
      -- under the name that this processor's kernels have
      linear = linear + (op:find "^linear .*f32, f32, f32$" and #points or 0)
    end
    assert.is_true(linear > 2)
    assert.is_true(classes.conv3d and classes.group_norm and classes.rms_norm or false,
      json.encode(classes))
  end)
end)
