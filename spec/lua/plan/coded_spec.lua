--- Plans of job = "reconstruct": clips through an autoencoder and back. Their bytes are compared
-- with those of a job that runs in spec/lua/job/reconstruct_spec.lua.
-- Covers: lua/moonreel/plan/coded.lua
local codec = require "moonreel.codec"
local coded = require "moonreel.plan.coded"
local command = require "moonreel.cli.plan"
local compiled = require "moonreel.plan.compiled"
local course = require "moonreel.plan.course"
local data = require "moonreel.data"
local demo_data = dofile "spec/support/demo_data.lua"
local fails = require "spec.support.fails"
local machine = require "moonreel.plan.machine"
local mesh = require "moonreel.plan.mesh"
local page = require "moonreel.plan.page"
local plan = require "moonreel.plan"
local pipeline = require "moonreel.models.pipeline"
local settings = require "moonreel.settings"
local show = require "moonreel.plan.show"
local solve = require "moonreel.plan.solve"

-- small autoencoders: causal, of four frames or one, of pieces of any length
local SMALL = {
  hunyuan_vae = "latent_channels=4, block_out_channels=[4, 4, 8, 8], layers_per_block=1, "
    .. "norm_num_groups=2",
  dc_ae = "latent_channels=8, widths=[8, 8, 32], encoder_blocks=[1, 0, 1], decoder_blocks=[1, 0, "
    .. "1], attention_levels=1, temporal_levels=[0, 1]",
  OpenSoraVAE_V1_2 = "micro_frame_size=4, micro_batch_size=2, "
    .. "vae_2d={block_out_channels=[8, 8, 8, 8], layers_per_block=1, norm_num_groups=2}",
}

local function bake(type, lengths, ...)
  return settings.bake("opensora-2.0/vae/dc_ae", { ("model=recipe.replace{type='%s', %s}"):format(
    type, SMALL[type]), ("bucket_config=recipe.replace{['32px'] = {%s}}"):format(lengths),
    "resolutions=recipe.replace{['32px'] = {pixels = 1024, aspects = {{1.0, 32, 32}}}}",
    "num_workers=2", ... })
end

-- the plan for a machine
local function planned(s, survey)
  local of = mesh.parse "H100"
  local cache <close> = compiled.new(of.machine)
  return plan.of(s, { mesh = of, compiled = cache, survey = survey })
end

-- The arena, and inputs, results and constants of the codec's own programs for a clip, of which
-- `back` frames are returned; and the bytes of its weights.
local function by_codec(s, frames, back)
  local coder <close> = codec.plan(pipeline.coder(s, "bf16"), { facts = { device = "shadow",
    isa = "base", threads = 1, bf16 = true, amx = false } })
  local rows, arena, slots, landing = coder:encoders(frames, 32, 32), 0, 0, 0
  local after = coder:decoders(back, 32, 32)
  for _, row in ipairs(table.move(after, 1, #after, #rows + 1, rows)) do
    local m = row.prog:memory()
    arena, landing = math.max(arena, m.arena), math.max(landing, m.landing)
    slots = slots + m.inputs + m.results + m.consts
  end
  return { arena = arena, slots = slots + landing, weights = coder:weight_bytes() }
end

describe("the plan of a reconstruction", function()
  -- under compat four frames give one latent frame, which decodes to one frame
  for type, case in pairs { hunyuan_vae = { 5, 5 }, dc_ae = { 4, 1 },
      OpenSoraVAE_V1_2 = { 6, 6 } } do
    it("has the bytes of the codec's encoding and decoding: " .. type, function()
      local frames, back = table.unpack(case)
      local s = bake(type, ("[%d] = {1.0, 3}"):format(frames), "batch_size=none")
      local row = planned(s).largest
      assert.same(by_codec(s, frames, back), { arena = row.bytes.arena, slots = row.bytes.slots,
        weights = row.bytes.weights })
      assert.equal(3, row.batch)
      for _, kind in ipairs { "gradients", "moments", "snapshots", "encoders" } do
        assert.equal(0, row.bytes[kind], kind)
      end
      -- a piece is the whole clip of these families, or some of its pictures
      local values, piece = back * 3 * 32 * 32, math.min(back, s.model.micro_batch_size or back)
      local wanted = math.max(values + 4.25 * 4 * piece / back * values, 2 * values + 36 * values
        / back)
      -- and latents
      assert.is_true(row.bytes.clips >= wanted and row.bytes.clips < wanted + values)
      assert.equal((frames + back) * 32 * 32 * coded.VIDEO_BYTES, row.written)
    end)
  end

  it("has the seconds of reading, encoding, decoding and writing, and names the slowest", function()
    local s = bake("hunyuan_vae", "[9] = {1.0, 1}, [1] = {1.0, 1}", "batch_size=2")
    local p = planned(s)
    local b = p.buckets[1].frames == 9 and p.buckets[1] or p.buckets[2]
    local t = b.seconds
    assert.equal(2, b.batch)
    assert.is_true(t.encode > 0 and t.decode > t.encode)
    assert.near(2 * 2 * (9 * 32 * 32 / 1e7 + 2e-3), t.files, 1e-12)
    assert.near(2 * 9 * 32 * 32 / 1e8 / 2, t.read, 1e-12)
    assert.near(t.encode + t.decode + t.files, t.step, 1e-9)
    assert.same({ 0, 0, 0, 0 }, { t.forward, t.backward, t.update, t.waits })
    local sum, seen = 0, {}
    for _, one in ipairs(b.figures) do
      sum, seen[one.figure] = sum + one.seconds, true
    end
    assert.near(t.step, sum, 1e-9)
    assert.is_true(seen.encode_rate and seen.launch_s and not seen.decode_rate)
    -- decoders that are too slow are named as the slowest part
    local slow = setmetatable({ decode_rate = 1e4 }, { __index = machine.open "H100" })
    local cache <close> = compiled.new(slow)
    local waits = plan.of(s, { mesh = mesh.new(slow), compiled = cache }).slowest
    assert.near(2 * 9 * 32 * 32 / 1e4 / 2, waits.seconds.step, 1e-9)
    assert.equal("decode_rate", waits.figures[1].figure)
    assert.matches("read takes longest; try: more decoder processes %(num_workers%)",
      show.why(p, waits))
  end)

  it("covers all clips of an index, or the first batches", function()
    local survey = { index = "x.mrx", rows = 9, dropped = {}, buckets = {
      { resolution = "32px", frames = 5, height = 32, width = 32, batch = 4, samples = 7,
        pixels = 1e4 } } }
    local s = bake("hunyuan_vae", "[5] = {1.0, 4}", "batch_size=none", "epochs=3")
    local p = planned(s, survey)
    local clip, all = p.largest.seconds.step / 4, course.of(p, s, { surveys = { survey } })
    assert.same({ 2, 7, "all clips of x.mrx" }, { all.steps, all.clips, all.from })
    assert.near(7 * clip / 3600, all.hours, 1e-12)
    assert.equal(math.ceil(7 * p.largest.written), all.disk_bytes)
    assert.is_nil(all.checkpoint_bytes)
    local few = bake("hunyuan_vae", "[5] = {1.0, 4}", "batch_size=none", "steps=1")
    assert.equal(1, course.of(p, few, { surveys = { survey } }).steps)
    assert.equal(1, course.of(p, few).steps)
    p.course = all
    local text = show.text(p)
    for _, want in ipairs { "on 1 H100: [%d,]+ parameters in bf16\n",
        "clips that came back +[%d.]+ kB",
        "seconds of a clip; 2 decoder processes read the next ones at the same time:\n"
        .. "bucket +batch +samples +memory +encode +read +decode +write +a clip",
        "the whole job: 2 steps %(all clips of x.mrx%)", "\n  7 clips, [%d.]+ kB of files; ",
        "note: files are assumed to take 0.06 bytes a pixel", "; by model.piece_size = %d+ it takes"
        } do
      assert.matches(want, text)
    end
    assert.is_nil(text:find("checkpoints", 1, true))
    local html = page.html { p }
    for _, want in ipairs { "files: clips are written", "<b>decoder processes</b>",
        'title="decode ', "<p>7 clips, " } do
      assert.is_truthy(html:find(want, 1, true), want)
    end
    assert.equal(p.largest.written, show.plain(p).buckets[1].written)
  end)

  it("counts each clip once, whatever share of the clips is trained", function()
    local index <close> = data.open(demo_data.path())
    finally(demo_data.remove)
    local s = bake("dc_ae", "[4] = {0.25, 2}, [1] = {{0.5, 0.5}, 8}", "dataset.fps_max=none")
    local survey = plan.survey(s, index, 0)
    local samples = 0
    for _, b in ipairs(survey.buckets) do
      samples = samples + b.samples
      assert.equal(1, b.batch)
    end
    assert.same({ 300, {} }, { samples, survey.dropped })
  end)

  it("names another way and smaller clips that fit when a clip does not", function()
    local large = "resolutions=recipe.replace{['32px'] = {pixels = 4096, aspects = {{1.0, 64, "
      .. "64}}}}"
    local function with(values)
      return bake("dc_ae", "[96] = {1.0, 1}", large, "compat=none", "dataset.fps_max=none",
        "model.frames_at_once=0", table.unpack(values))
    end
    -- the plan for a memory, and what would fit
    local function planned_in(bytes, ...)
      local small = setmetatable({ memory_bytes = bytes }, { __index = machine.open "H100" })
      local cache <close> = compiled.new(small)
      local given = { mesh = mesh.new(small), compiled = cache }
      local p = plan.of(with { ... }, given)
      return p.largest.fits, solve.remedies(p, given, with), p.largest.total
    end
    local _, _, all = planned_in(85e9)
    local fits, rows = planned_in(all - 1)
    assert.is_false(fits)
    local texts = {}
    for i, row in ipairs(rows) do
      assert.is_true(row.total < all)
      texts[i] = row.text
    end
    assert.same({ "model.frames_at_once = 8", "clips of 92 frames", "pictures of 60 x 60" }, texts)
    -- a proposed remedy works
    assert.is_true((planned_in(rows[1].total, (rows[1].text:gsub(" ", "")))))
    assert.same({}, (select(2, planned_in(4e9))))
  end)

  it("covers one GPU and one pass over the clips", function()
    local s, of = bake("dc_ae", "[4] = {1.0, 1}"), mesh.parse "8xH100"
    local cache <close> = compiled.new(of.machine)
    fails("MR_E_RECIPE", "dc_ae.lua:%d+: job = reconstruct runs on one GPU, not on 8 H100; try: "
      .. "%-%-gpus H100", plan.of, s, { mesh = of, compiled = cache })
    fails("MR_E_RECIPE", "model.type = STDiT3 is not an autoencoder", planned,
      settings.bake("tiny/demo", { "job=reconstruct" }))
    fails("MR_E_RECIPE", "clips have 6 frames, but model.type = dc_ae needs 4n or 1; try: 4",
      planned,
      bake("dc_ae", "[6] = {1.0, 1}"))
    for job, recipe in pairs { reconstruct = "opensora-2.0/vae/dc_ae",
        extract = "opensora-1.2/misc/extract" } do
      local plain = recipe:gsub("%p", "%%%0")
      fails("MR_E_USAGE", ("job = %s encodes clips one by one.*; try: moonreel plan %s$"):format(
        job, plain), command.run, { recipe, "--gpus", "H100", "--fit", "all" })
      fails("MR_E_USAGE", ("job = %s does not train"):format(job), command.run, { recipe, "--gpus",
        "H100", "--solve", "mesh" })
    end
  end)
end)
