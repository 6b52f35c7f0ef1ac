--- The T5 text encoder computes the same features with all weights in memory and block by block, in
-- a batch and alone, padded or not; and what is read from the files.
-- Covers: lua/moonreel/embed/init.lua lua/moonreel/embed/residency.lua
-- lua/moonreel/embed/source.lua
-- lua/moonreel/models/features.lua
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local sizes = require "moonreel.models.t5.sizes"
local embed = require "moonreel.embed"
local weights = require "datasets.demo.weights"

local LONG = "a red circle moving right on a black background and a blue square moving up"
local SHORT = "a green"

describe("a T5 encoder", function()
  local dir, path
  setup(function() dir, path = folder.around(weights.t5, 1) end)
  teardown(function() dir:remove() end)

  local function open(given) return embed.open(path, given) end

  it("computes the same bits of a caption in any batch, with fixed positions", function()
    -- wide enough that products of other sizes use other kernels, which round in other ways
    weights.t5(dir.path .. "/wide", 2, { d_model = 256, d_kv = 64, d_ff = 512 })
    local words = { "red", "circle", "blue", "square", "moving", "up", "on", "a", "black" }
    local captions, differ = {}, 0
    for i = 1, 30 do
      local text = {}
      for k = 1, i * 7 % 70 + 1 do
        text[k] = words[(k * k * i + k) % #words + 1]
      end
      captions[i] = table.concat(text, " ")
    end
    local steady <close> = embed.open(dir.path .. "/wide", { dtype = "bf16", places = 512 })
    local all = steady:tokens(captions)
    for i = 1, #captions do
      local alone = steady:tokens { captions[i] }
      differ = differ + (alone.y:bytes() == all.y:slice(0, i - 1, i):clone():bytes() and 0 or 1)
      assert.equal(alone.len[0], all.len[i - 1])
    end
    assert.equal(0, differ)
  end)

  it("refuses weights that are not finite, with the name of the tensor", function()
    weights.t5(dir.path .. "/nan", 1)
    for _, entry in ipairs(base.list_dir(dir.path .. "/nan")) do
      if entry:find "%.safetensors$" then
        local file = dir.path .. "/nan/" .. entry
        base.replace_file(file, base.read_file(file):sub(1, -5) .. "\xc0\x7f\xc0\x7f")
      end
    end
    fails("MR_E_NONFINITE", "numbers are not finite", function()
      local one <close> = embed.open(dir.path .. "/nan", { residency = "all" })
      return one(SHORT)
    end)
  end)

  it("computes features of as many tokens as a caption has, the same in a batch", function()
    local one <close> = open()
    local features = one(SHORT)
    assert.same({ #one.tok:ids(SHORT), 32 }, features.shape)
    local batch = one:tokens { LONG, SHORT, "" }
    assert.same({ 3, 300, 32 }, batch.y.shape)
    assert.same({ #one.tok:ids(LONG), #one.tok:ids(SHORT), 1 }, batch.len:totable())
    local n = #one.tok:ids(SHORT)
    assert.same(features:totable(), batch.y:slice(0, 1, 2):slice(1, 0, n):clone():totable())
    -- after the used tokens the features are zero
    assert.equal(0, batch.y:slice(0, 1, 2):slice(1, n, 300):clone():norm())
  end)

  it("computes the same with all weights in memory and block by block, in f32 and bf16", function()
    for _, dtype in ipairs { "f32", E.device():compute "bf16" } do
      local all <close> = open { residency = "all", dtype = dtype }
      local stream <close> = open { residency = "stream", dtype = dtype }
      assert.equal(all:tokens { LONG, SHORT }.y:bytes(), stream:tokens { LONG, SHORT }.y:bytes())
      assert.equal(dtype, all(SHORT).dtype)
    end
  end)

  it("computes the same bits on the shadow device", function()
    for _, residency in ipairs { "all", "stream" } do
      local cpu <close> = open { residency = residency, device = E.device("cpu", 1) }
      local shadow <close> = open { residency = residency, device = E.device("shadow", 1) }
      assert.equal(cpu:tokens { LONG, SHORT }.y:bytes(), shadow:tokens { LONG, SHORT }.y:bytes())
    end
  end)

  it("is near f32 in bf16", function()
    local exact <close> = open()
    local near <close> = open { dtype = E.device():compute "bf16" }
    local a, b = exact(LONG), near(LONG):to "f32"
    -- eight bits of mantissa through three blocks
    assert.is_true((a - b):norm() < 0.03 * a:norm())
  end)

  it("computes used tokens only, with the result of the padded run", function()
    local ids
    do
      local one <close> = open()
      ids = one.tok:ids(LONG)
    end
    -- without padding, padded to a multiple of 16, and with all positions
    local tight <close> = open { max_length = #ids }
    local loose <close> = open()
    local full <close> = open { max_length = 48 }
    full.padding = "attend"
    local want = tight(LONG)
    assert.is_true((want - loose(LONG)):norm() < 1e-6 * want:norm())
    -- with attention to padding the features differ and fill all positions
    local attended = full:tokens { LONG }.y:reshape { 48, 32 }
    assert.is_true(attended:slice(0, 47, 48):clone():norm() > 0.1)
    local same <close> = embed.open(path, { max_length = 48, padding = "attend" })
    assert.equal(attended:bytes(), same:tokens { LONG }.y:bytes())
    assert.is_true((attended:slice(0, 0, #ids):clone() - want):norm()
      > 1e-3 * want:norm())
  end)

  it("reads the words of a batch and, when it streams, each block once", function()
    local blocks = sizes:elements(setmetatable({ inner = 32, num_layers = 3 },
      { __index = weights.t5_config })) * 4
    local stream <close> = open { residency = "stream" }
    local outside = (32 * 4 + 32) * 4  -- biases and the last norm, once
    assert.equal(outside, stream:bytes_read())
    local words = {}
    for _, caption in ipairs { LONG, SHORT, LONG } do
      for _, id in ipairs(stream.tok:ids(caption)) do
        words[id] = 32 * 4
      end
    end
    local distinct = 0
    for _, bytes in pairs(words) do
      distinct = distinct + bytes
    end
    for round = 1, 2 do
      stream:tokens { LONG, SHORT, LONG }
      assert.equal(outside + round * (blocks - outside + distinct), stream:bytes_read())
    end
    local all <close> = open { residency = "all" }
    assert.equal(blocks, all:bytes_read())
    all(SHORT)
    assert.is_true(all:bytes_read() < blocks + 100 * 32 * 4)
  end)

  it("takes all weights into memory when they fit in half of it", function()
    local fitting = require("moonreel.embed.residency").fitting
    local s = { streams = true, elements = function() return 9000 end }
    local enough = 2 * 4 * 9000
    assert.equal("stream", (fitting(s, 1000, "f32")))
    assert.equal("all", (fitting({ elements = s.elements }, 1000, "f32")))
    assert.same({ "all", enough // 2 }, { fitting(s, enough, "f32") })
    assert.equal("stream", (fitting(s, enough - 2, "f32")))
    assert.equal("all", (fitting(s, enough - 2, "bf16")))
  end)

  it("finds its tensors under other names, and ignores decoders", function()
    local rows = weights.t5_tensors(weights.t5_config, "f32", 1)
    for _, row in ipairs(rows) do
      row.name = "state_dict.module." .. row.name:gsub("^shared", "encoder.embed_tokens")
    end
    for _, name in ipairs { "decoder.block.0.layer.0.SelfAttention.q.weight", "lm_head.weight" } do
      rows[#rows + 1] = { name = name, dtype = "f32", shape = { 1 }, ptr = "abcd" }
    end
    local other = dir.path .. "/other"
    base.make_dir(other)
    ckpt.write(other .. "/model.safetensors", rows)
    base.replace_file(other .. "/spiece.model", base.read_file(path .. "/spiece.model"))
    -- without config.json the sizes are those of the tensors
    local a <close> = open()
    local b <close> = embed.open(other)
    assert.equal(a(LONG):bytes(), b(LONG):bytes())
  end)

  it("keeps the last eight shapes and computes the same when one returns", function()
    local one <close> = open { residency = "all" }
    local first = one(SHORT):bytes()
    for n = 1, 12 do
      one:encode { table.move(one.tok:ids((LONG .. " "):rep(20)), 1, 16 * n, 1, {}) }
    end
    local kept = 0
    for _ in pairs(one.encoder.parts.whole.compiled.programs) do
      kept = kept + 1
    end
    assert.equal(8, kept)
    assert.equal(first, one(SHORT):bytes())
  end)

  it("reports what does not fit, and can be closed twice", function()
    fails("MR_E_USAGE", "residency is 'some'; expected auto or all or stream", open,
      { residency = "some" })
    fails("MR_E_USAGE", "padding is 'x'; expected skip or attend", open, { padding = "x" })
    fails("MR_E_USAGE", "dtype is 'f64'; expected f32 or bf16", open, { dtype = "f64" })
    local small = dir.path .. "/small"
    weights.t5(small, 1, { vocab_size = 20 })
    local one <close> = embed.open(small)
    fails("MR_E_RANGE", "token %d+, but 'shared%.weight' has only 20 rows; try: the tokenizer", one,
      LONG)
    fails("MR_E_RANGE", "token 20, but 'shared%.weight' has only 20 rows", one.encode, one,
      { { 20 } })
    one:encode { { 19 } }
    one:close()
    os.remove(small .. "/spiece.model")
    fails("MR_E_USAGE", "no spiece%.model", embed.open, small)
    -- another model's file is no text encoder
    weights.vae(dir.path .. "/vae", 1)
    fails("MR_E_CKPT", "vae: no family of text_encoder or clip matches these tensors", embed.open,
      dir.path .. "/vae")
    fails("MR_E_USAGE", "no folder '.*nowhere', and nothing is downloaded", embed.open,
      dir.path .. "/nowhere")
  end)

  it("counts the parameters of the largest released encoder", function()
    local xxl = sizes.of_name "google/t5-v1_1-xxl"
    -- 4.76 G with its vocabulary
    assert.equal(4762310656, sizes:elements(xxl) + 32128 * 4096)
  end)
end)
