-- Covers: lua/moonreel/bench/vae.lua lua/moonreel/bench/apart.lua

describe("bench vae of the Hunyuan autoencoder", function()
  local vae, asked, lines, real
  local modules = {"moonreel.bench.apart", "moonreel.bench.vae"}

  -- our turns take 1, 2, 4 s, those of the peer 3, 8, 8 s
  before_each(function()
    local seconds = {1, 2, 4}
    real, asked, lines = {}, {}, {}
    for i, name in ipairs(modules) do
      real[i], package.loaded[name] = package.loaded[name], nil
    end
    local turns = 0
    package.loaded["moonreel.bench.apart"] = function(...)
      asked[#asked + 1] = table.concat({...}, " ")
      turns = turns + 1
      return {seconds = seconds[(turns - 1) % 3 + 1], peak_bytes = 50 + turns, planned_bytes = 40}
    end
    vae = require "moonreel.bench.vae"
  end)

  after_each(function()
    for i, name in ipairs(modules) do
      package.loaded[name] = real[i]
    end
  end)

  local function measured(ask)
    return vae.measure({threads = 1, seconds = 0, dtype = "f32", narrow = 2}, ask,
      function(what) lines[#lines + 1] = what end)
  end

  it("alternates with the peer at the same sizes; the median of the ratios counts", function()
    local seconds, turns = {3, 8, 8}, 0
    local r = measured(function(request)
      turns = turns + 1
      asked[#asked + 1] = ("%s %s %d %d of %s"):format(request.job, request.dtype,
        request.turns, request.seconds, table.concat(request.fields.block_out_channels, " "))
      assert.same({frames = 17, height = 144, width = 256}, request.clip)
      return {name = "diffusers", version = "1", seconds = seconds[(turns - 1) % 3 + 1],
        peak_bytes = 220, import_bytes = 108}
    end)
    assert.same({"machine", "job", "job"}, lines)
    assert.same({"vae turn encode f32 1 2 hunyuan_vae 17 144 256",
      "encode f32 1 0 of 64 128 256 256"}, table.move(asked, 3, 4, 1, {}))
    assert.same({12, "vae turn decode f32 1 2 hunyuan_vae 17 144 256"}, {#asked, asked[7]})
    local encode, decode = table.unpack(r.jobs)
    assert.same({2, 8, 3, 3}, {encode.seconds, encode.peer.seconds, encode.speedup,
      encode.rounds})
    -- the largest of all turns; the peer's with and without the memory of its imports
    assert.same({56, 56 / 220, 0.5}, {decode.peak_bytes, decode.memory_share,
      decode.memory_share_net})
  end)

  it("reports only its own time and the reason when the peer fails", function()
    local times = 0
    local r = measured(function()
      times = times + 1
      return nil, "it is not there"
    end)
    assert.equal(2, times)  -- once for each job
    assert.same({2, "it is not there"}, {r.jobs[1].seconds, r.jobs[1].peer_missing})
    assert.is_nil(r.jobs[1].peer or r.jobs[1].speedup)
    assert.is_nil(measured().jobs[2].peer_missing)
  end)

  it("refuses widths that do not divide into groups before it measures", function()
    assert.has_error(function()
      vae.measure({threads = 1, seconds = 0, narrow = 3}, nil, function() end)
    end)
    assert.same({}, asked)
  end)

  it("encodes and decodes once a turn", function()
    for _, job in ipairs(vae.jobs) do
      local turn = vae.turn(job, "f32", 1, 4, "hunyuan_vae", 1, 16, 8)
      assert.is_true(turn.seconds > 0 and turn.peak_bytes > 60e6)
      assert.is_true(turn.planned_bytes > 50e6 and turn.planned_bytes < turn.peak_bytes)
    end
    assert.same({128, 256, 512, 512}, vae.fields(1, "hunyuan_vae").block_out_channels)
  end)

  it("measures DC-AE with any clip, without a peer", function()
    local r = vae.measure({threads = 1, seconds = 0, dtype = "f32", type = "dc_ae",
      clip = {frames = 8, height = 64, width = 32}}, error, function() end)
    assert.equal("vae turn encode f32 1 1 dc_ae 8 64 32", asked[1])
    assert.same({40}, {r.jobs[1].planned_bytes, r.jobs[1].peer})
    assert.has_error(function()
      vae.measure({threads = 1, seconds = 0, clip = {frames = 2, height = 144, width = 256}},
        nil, function() end)
    end)
    for _, word in ipairs {"--clip=17x144", "--autoencoder=kl"} do
      assert.has_error(function() require("moonreel.cli.bench").run{"vae", word} end)
    end
  end)

  it("reports that there is no peer before it measures", function()
    local print_before = print
    _G.print = function(line) lines[#lines + 1] = line end
    finally(function() _G.print = print_before end)
    vae.measure = function(_, ask, tell)
      assert.is_nil(ask)
      tell("job", {job = "encode", dtype = "f32", seconds = 2, peak_bytes = 7e6,
        planned_bytes = 6e6, rounds = 3})
      return {}
    end
    require("moonreel.cli.bench").run{"vae", "--python=/no/python"}
    _G.print = print_before
    assert.matches("^vae: /no/python cannot import diffusers and torch: moonreel alone", lines[1])
    assert.equal("  encode, f32: 2.00 s, peak 7 MB, planned 6 MB; medians of 3 turns", lines[2])
  end)
end)
