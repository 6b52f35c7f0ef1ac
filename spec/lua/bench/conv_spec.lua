local base, core = require "moonreel.core.base", require "moonreel.core.bench"

describe("bench conv", function()
  it("compares convolutions with the peak of products and with a peer", function()
    local conv = require "moonreel.bench.conv"
    local rows, peak, clock = conv.rows, core.product_peak, base.now_s
    -- the search for the best product would take seconds
    core.product_peak = function() return {m = 64, n = 64, k = 64, own = true} end
    -- each call of the clock advances it by a tick, so that other processes do not matter
    local now, tick = 0, 1e-3
    base.now_s = function()
      now = now + tick
      return now
    end
    finally(function() conv.rows, core.product_peak, base.now_s = rows, peak, clock end)
    conv.rows = {{what = "pictures", x = {1, 1, 6, 5, 8}, filters = 8, kernel = {1, 3, 3},
      pad = {0, 0, 1, 1, 1, 1}},
      {what = "dc_ae", x = {1, 3, 4, 6, 8}, filters = 16, kernel = {3, 3, 3}, groups = 4,
        stride = {1, 2, 2}, pad = {1, 1, 1, 1, 1, 1}}}
    local asked = {}
    local found = conv.measure({threads = 1, seconds = 0.01, dtype = "f32"}, function(row, machine)
      asked[#asked + 1] = row.what .. " " .. row.dtype .. " " .. machine.threads
      tick = 5e-4 -- after the first answer
      return 3 * row.seconds
    end)
    assert.same({"pictures f32 1", "dc_ae f32 1"}, asked)
    -- bf16 is compared with the peer's f32, too
    asked = {}
    local narrow = conv.measure({threads = 1, seconds = 0.01, dtype = "bf16", layer = "dc_ae"},
      function(row)
        asked[#asked + 1] = row.what .. " " .. row.dtype
        return row.dtype == "f32" and 6 * row.seconds or 3 * row.seconds
      end)
    assert.same({"dc_ae bf16", "dc_ae f32"}, asked)
    assert.near(2, narrow[1].f32_ratio / narrow[1].ratio, 1e-9)
    -- a rate reads the clock twice a run, the fastest run once: the first row's was after the
    -- answer
    assert.near(12, found[1].ratio, 1e-6)
    assert.near(6, found[2].ratio, 1e-6)
    for _, row in ipairs(found) do
      assert.is_true(row.of_peak > 0 and row.tflops > 0)
    end
    -- two operations for each tap of all channels, at each position
    assert.near(2 * 6 * 5 * 9 * 8 * 8, found[1].tflops * 1e12 * found[1].seconds, 1)
    assert.equal(2 * 3 * 2 * 3 * 27 * 2 * 16, found[2].flop)
    assert.equal("pictures 1x3x3 8 to 8", found[1].name)
    assert.equal("dc_ae 3x3x3 / 1x2x2 8 to 16 in 4 groups", found[2].name)
    assert.same({conv.rows[2]}, conv.named "/ 1x2x2")
    assert.has_error(function()
      require("moonreel.cli.bench").run{"conv", "--layer", "hunyuen"}
    end)
  end)

  it("counts the convolutions that meet their aims against PyTorch in f32", function()
    local verdicts = require("moonreel.bench.conv").verdicts
    local function row(name, dtype, ratio, f32_ratio)
      return {name = name, dtype = dtype, ratio = ratio, f32_ratio = f32_ratio, of_peak = 0.5,
        seconds = 0.5, peer_seconds = ratio and 1}
    end
    local function missed(name, ratio) return {name = name, ratio = ratio, peer_of_peak = 0.25} end
    -- PyTorch has no c
    local rows = {row("a", "f32", 1.3), row("b", "f32", 1.29), row("c", "f32"),
      row("a", "bf16", 0.9, 1.6), row("b", "bf16", 3.5, 4)}
    local f32 = {dtype = "f32", aim = 1.3, layers = 2, met = 1, missed = {missed("b", 1.29)}}
    local bf16 = {dtype = "bf16", aim = 1.5, layers = 2, met = 2, missed = {}, own_met = 1}
    assert.same({f32, bf16}, verdicts(rows, {bf16 = true}))
    bf16.aim, bf16.met, bf16.missed = 3, 1, {missed("a", 1.6)}
    assert.same({f32, bf16}, verdicts(rows, {bf16 = true, amx = true}))
    assert.same({f32}, verdicts(rows, {}))
  end)
end)
