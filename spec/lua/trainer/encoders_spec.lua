--- Encoders that run next to the step: the programs that encode a clip, each with the number of its
-- runs, and those of captions.
local closed = require "moonreel.plan.closed"
local encoders = require "moonreel.trainer.encoders"
local folder = require "spec.support.folder"
local machine = require "moonreel.plan.machine"
local pipeline = require "moonreel.models.pipeline"
local settings = require "moonreel.settings"
local work = require "moonreel.plan.work"

-- calls f with the encoders of Open-Sora 1.2 on an H100 with this much memory
local function with_encoders(f, recipe, ...)
  local m = machine.open "H100"
  local s = settings.bake(recipe or "opensora-1.2/stage1", { "model.depth=1", ... })
  local e = encoders.new(pipeline.of(s, "bf16"), { memory_bytes = m.memory_bytes,
    facts = { device = "cpu", isa = "base", threads = 1, bf16 = true, amx = false },
    seconds = function(prog) return work.parts(m, prog:times(), "bf16").forward end })
  f(e)
  e:close()
end

-- operations of all programs that encode captions
local function text_flop(e, captions)
  local flop = 0
  for _, row in ipairs(e.texts[1]:encoders(captions)) do
    flop = flop + row.runs * row.prog:cost().flop
  end
  return flop
end

describe("encoders", function()
  it("also encode conditions, as often as they are drawn", function()
    with_encoders(function(e)
      local function seconds(frames, shares)
        e.conditions = shares and { shares = function() return shares end } or nil
        return (e:batch { frames = frames, height = 144, width = 256, batch = 4 })
      end
      e.texts = {}
      local one, clip = seconds(1), seconds(51)
      assert.near(clip + 0.75 * one, seconds(51, { [1] = 0.75 }), 1e-9 * clip)
      assert.near(clip + one / 2 + seconds(17) / 4, seconds(51, { [1] = 0.5, [17] = 0.25 }),
        1e-9 * clip)
    end)
  end)

  it("have the weights of the released ones", function()
    with_encoders(function(e)
      -- both halves of the 2-D and the temporal autoencoder, and T5 without its vocabulary
      local text = closed.t5.parameters - 32128 * 4096
      assert.is_true(math.abs(e.weights / 2 / (83.65e6 + 309.69e6 + text) - 1) < 0.001, e.weights)
      assert.matches("all of their 300 tokens", e.notes[1])
    end)
  end)

  it("take the sum of the times of pictures, pieces and captions", function()
    with_encoders(function(e)
      local text, texts = e.texts[1], e.texts
      local function batch(frames, n, captioned)
        e.texts = captioned and texts or {}
        return e:batch { frames = frames, height = 144, width = 256, batch = n }
      end
      local with, most = batch(17, 4, true)
      local bare, clips = batch(17, 4)
      -- By formula: two operations for each weight and token. Other ops and launches take
      -- additional time.
      local formula = 4 * 300 * 2 * (closed.t5.parameters - 32128 * 4096)
      local flop = text_flop({ texts = { text } }, 4)
      assert.is_true(math.abs(flop / formula - 1) < 0.1, flop / formula)
      assert.is_true(with - bare > formula / 600e12 and with - bare < 1.5 * formula / 600e12)
      assert.is_true(most > clips and text:encoders(4)[1].prog:memory().arena < most)
      -- sample by sample; three pieces of 17 frames
      assert.is_true(math.abs(batch(17, 8) / bare - 2) < 1e-9)
      assert.is_true(math.abs(batch(51, 4) / (3 * bare) - 1) < 0.02)
      -- the same programs for any length; groups of four leave one picture over
      assert.equal(clips, select(2, batch(85, 8)))
    end)
  end)

  it("hold one block of T5 in memory when it streams, with equal operations", function()
    local whole, all, flop
    with_encoders(function(e)
      whole, all, flop = e.weights, e.texts[1].weight_bytes, text_flop(e, 4)
      assert.equal(0, select(3, e:batch { frames = 1, height = 144, width = 256, batch = 1 }))
    end)
    with_encoders(function(e)
      assert.is_true(math.abs(text_flop(e, 4) / flop - 1) < 1e-3)
      -- 24 blocks are equal; the other weights are the biases and a norm
      assert.is_true(math.abs((whole - e.weights) / (all * 23 / 24) - 1) < 1e-3)
      assert.matches("reads %d[%d.]* GB of blocks for every batch, at 0.7 GB/s", e.notes[2])
      -- for every batch, whatever it contains
      for n = 1, 2 do
        assert.equal(e.texts[1].weight_bytes / encoders.READ_RATE, select(3, e:batch {
          frames = 1, height = 144, width = 256, batch = n }))
      end
    end, nil, "text_encoder.residency=stream")
  end)

  it("report time and memory of the largest clip in pieces and as a whole", function()
    local place <close> = folder.new()
    place:write("r.lua", 'return recipe.extend("opensora-1.2/stage1") { compat = recipe.remove, '
      .. 'vae = recipe.replace { type = "hunyuan_vae" }, model = { depth = 1, in_channels = 16 } }')
    with_encoders(function(e)
      local function notes(frames)
        e:batch { frames = frames, height = 128, width = 128, batch = 1 }
        return e.notes[1]
      end
      local form = "a clip of %d frames of 128 x 128 is encoded in [%%d.]+ s with ([%%d.]+) GB in "
        .. "use, decoded in [%%d.]+ s with ([%%d.]+) GB in use; by vae%%.piece_size = 0 it is "
        .. "encoded in [%%d.]+ s with ([%%d.]+) GB in use, decoded in [%%d.]+ s with ([%%d.]+) GB"
      local encode, decode, whole_encode, whole_decode = notes(129):match(form:format(129))
      assert.is_true(tonumber(encode) < tonumber(whole_encode), e.notes[1])
      assert.is_true(1.5 * tonumber(decode) < tonumber(whole_decode), e.notes[1])
      assert.matches("a clip of 129 frames", notes(17))
      assert.matches("300 tokens", e.notes[2])
    end, place.path .. "/r.lua")
  end)

  it("report what is kept between sweeps of the largest clip, and its memory as a whole", function()
    local place <close> = folder.new()
    place:write("r.lua", 'return recipe.extend("opensora-1.2/stage1") { compat = recipe.remove, '
      .. 'vae = recipe.replace { type = "dc_ae" }, model = { depth = 1, in_channels = 128 } }')
    with_encoders(function(e)
      local function note(frames)
        local _, bytes = e:batch { frames = frames, height = 128, width = 128, batch = 1 }
        local form = "is encoded in ([%d.]+) s with ([%d.]+) MB in use and ([%d.]+) MB kept "
          .. "between sweeps, decoded in .*; by vae%.frames_at_once = 0 it is encoded in "
          .. "([%d.]+) s with ([%d.]+) ([GM])B in use, decoded in [%d.]+ s with [^,]+ in use$"
        local row = { e.notes[1]:match(form) }
        row[5] = row[5] * (row[6] == "G" and 1e3 or 1)
        for i = 1, 4 do
          row[i] = tonumber(row[i])
        end
        return row, bytes
      end
      local short, few = note(64)
      local long, many = note(128)
      assert.equal(short[2], long[2], e.notes[1])
      -- 512 channels in bf16 of 16 x 16 cells for every frame
      local more = 64 * 512 * 2 * 16 * 16
      assert.near(more / 1e6, long[3] - short[3], 0.11)
      assert.near(more, many - few, 0.01 * more)
      -- the memory of a whole clip grows with its length
      assert.is_true(long[5] > 1.8 * short[5] and long[5] > 2 * long[2], e.notes[1])
    end, place.path .. "/r.lua")
  end)

  it("stream T5 without a field when it would take more than half of the memory", function()
    local seen
    with_encoders(function(e) seen = e.texts[1].weight_bytes end)
    for way, memory in pairs { all = 2 * seen, stream = 2 * seen - 2 } do
      local s = settings.bake("opensora-1.2/stage1", { "model.depth=1",
        "text_encoder.residency=auto" })
      local e = encoders.new(pipeline.of(s, "bf16"), { memory_bytes = memory, video = true,
        facts = { device = "cpu", isa = "base", threads = 1, bf16 = true, amx = false } })
      assert.equal(way, e.texts[1].residency)
      e:close()
    end
  end)
end)
