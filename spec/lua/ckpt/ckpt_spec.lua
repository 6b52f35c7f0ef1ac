--- Checkpoints from Lua: a saved checkpoint is read back, a damaged one is skipped.
-- Covers: core/bind/ckpt.c core/bind/saver.c lua/moonreel/ckpt/init.lua
local ckpt = require "moonreel.ckpt"
local run = require "moonreel.run"
local base = require "moonreel.core.base"

local function meta(extra)
  local m = { recipe_hash = "r1", dataset_fingerprint = "d1", sampler = '{"epoch":0}', seed = 42,
    machine = { isa = "avx2", threads = 2, libraries = { dnnl = "2.6.3" } } }
  for k, v in pairs(extra or {}) do
    m[k] = v
  end
  return m
end

local function tensors(x)
  return {
    { name = "x_embedder.weight", dtype = "f32", shape = { 2, 3 },
      ptr = string.pack("<ffffff", x, 1, 2, 3, 4, 5) },
    { name = "master.x_embedder.weight", dtype = "f32", shape = { 2, 3 },
      ptr = string.pack("<ffffff", x, 1, 2, 3, 4, 5) },
    { name = "step", dtype = "i64", shape = {}, ptr = string.pack("<i8", 7) },
    { name = "empty", dtype = "bf16", shape = { 0, 4 }, ptr = "" },
  }
end

local function fails(f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  return err
end

local function damage(path)
  local f = assert(io.open(path, "r+b"))
  f:seek("end", -3)
  f:write("\xAA")
  f:close()
end

describe("checkpoints", function()
  local outputs, dir, saver

  before_each(function()
    outputs = os.tmpname()
    os.remove(outputs)
    dir = run.create(outputs, "demo")
    saver = ckpt.saver(dir)
  end)

  after_each(function()
    saver:close()
    os.execute("rm -rf '" .. outputs .. "'")
  end)

  local function save(step, x, extra)
    saver:save { step = step, tensors = tensors(x or step), meta = meta(extra) }
    saver:wait(20)
  end

  it("are read back as they were saved", function()
    save(10, 0.5, { epoch = 3 })
    local c <close> = ckpt.open(ckpt.dir(dir, 10))
    assert.same({ "x_embedder.weight", "master.x_embedder.weight", "step", "empty" },
      (function(names)
      local out = {}
      for _, want in ipairs { "x_embedder.weight", "master.x_embedder.weight", "step", "empty" } do
        for _, name in ipairs(names) do
          if name == want then
            out[#out + 1] = name
          end
        end
      end
      return out
    end)(c:names()))
    assert.same({ name = "x_embedder.weight", dtype = "f32", shape = { 2, 3 }, bytes = 24 },
      c:info "x_embedder.weight")
    assert.equal(string.pack("<ffffff", 0.5, 1, 2, 3, 4, 5), c:read "x_embedder.weight")
    assert.equal(string.pack("<f", 1), c:read("x_embedder.weight", 4, 4))
    assert.equal("", c:read "empty")
    assert.is_nil(c:info "nobody")
    assert.equal(10, c.step)
    assert.equal(42, c.manifest.seed)
    assert.equal(3, c.manifest.epoch)
    assert.equal('{"epoch":0}', c.manifest.sampler)
    assert.equal(1, c.manifest.world.ranks)
    assert.same({ n = 6, zeros = 0, nonfinite = 0, min = 0.5, max = 5.0,
      mean = 15.5 / 6, rms = math.sqrt(55.25 / 6) },
      c:stats "x_embedder.weight")
    c:verify()
  end)

  it("are assembled from parts and read in parts", function()
    local T = require "moonreel.core.tensor"
    local function floats(from, to)
      local list = {}
      for i = from, to do
        list[#list + 1] = string.pack("<f", i)
      end
      return table.concat(list)
    end
    saver:save { step = 1, meta = meta(), tensors = {
      { name = "w", dtype = "f32", shape = { 3, 4 }, range = { 5, 12 }, ptr = floats(5, 11) },
      { name = "w", dtype = "f32", shape = { 3, 4 }, range = { 0, 5 }, ptr = floats(0, 4) },
      { name = "u", dtype = "f32", shape = { 2, 3 }, box = { { 0, 2 }, { 1, 3 } },
        ptr = floats(1, 2) .. floats(4, 5) },
      { name = "u", dtype = "f32", shape = { 2, 3 }, box = { { 0, 2 }, { 0, 1 } },
        ptr = floats(0, 0) .. floats(3, 3) },
    } }
    saver:wait(20)
    local c <close> = ckpt.open(ckpt.dir(dir, 1))
    assert.equal(floats(0, 11), c:read "w")
    assert.equal(floats(0, 5), c:read "u")
    assert.equal(floats(3, 9), c:read("w", 12, 28))
    local columns, range, all = T.new("f32", { 3, 2 }), T.new("f32", { 6 }), T.new("f32", { 2, 3 })
    c:read_slices {
      { name = "w", box = { { 0, 3 }, { 1, 3 } }, ptr = columns:ptr(), bytes = 24 },
      { name = "w", range = { 2, 8 }, ptr = range:ptr(), bytes = 24 },
      { name = "u", ptr = all:ptr(), bytes = 24 },
    }
    assert.same({ 1, 2, 5, 6, 9, 10 }, columns:totable())
    assert.same({ 2, 3, 4, 5, 6, 7 }, range:totable())
    assert.same({ 0, 1, 2, 3, 4, 5 }, all:totable())
    -- each block is read once: the file is small
    assert.is_true(c:bytes_read() < 2048)
    assert.matches("range 2 to 13: expected", tostring(fails(c.read_slices, c,
      { { name = "w", range = { 2, 13 }, ptr = range:ptr(), bytes = 24 } })))
    assert.matches("the slice has 16 bytes, its destination 24", tostring(fails(c.read_slices,
      c, { { name = "w", range = { 2, 6 }, ptr = range:ptr(), bytes = 24 } })))
    assert.matches("a box of 2 times {from, to}", tostring(fails(c.read_slices, c,
      { { name = "w", box = { { 2, 6 } }, ptr = range:ptr(), bytes = 24 } })))
    -- a missing part is reported, and nothing is saved
    saver:save { step = 2, meta = meta(), tensors = {
      { name = "w", dtype = "f32", shape = { 3, 4 }, range = { 5, 12 }, ptr = floats(5, 11) } } }
    assert.matches("tensor 'w': elements 0 to 5 are in no file",
      tostring(fails(saver.wait, saver, 20)))
    assert.same({ 1 }, ckpt.steps(dir))
  end)

  it("are written by several ranks, of which the first has the lock", function()
    saver:close()
    local function part(from, to)
      return { { name = "w", dtype = "u8", shape = { 9 }, range = { from, to },
        ptr = ("abcdefghi"):sub(from + 1, to) } }
    end
    assert.matches("rank 1: the run is not locked", tostring(fails(ckpt.saver, dir,
      { rank = 1, ranks = 2 })))
    saver = ckpt.saver(dir, { ranks = 2 })
    local other <close> = ckpt.saver(dir, { rank = 1, ranks = 2 })
    other:save { step = 5, tensors = part(4, 9) }
    saver:save { step = 5, tensors = part(0, 4), meta = meta() }
    saver:wait(20)
    other:wait(20)
    local c <close> = ckpt.open(ckpt.dir(dir, 5))
    assert.equal(2, c.manifest.world.ranks)
    assert.equal("abcdefghi", c:read "w")
    local lock <close> = run.lock(run.create(outputs, "other"))
    assert.matches("others without one and with its directory", tostring(fails(ckpt.saver,
      lock:dir(), { lock = lock, rank = 1, ranks = 2 })))
    assert.matches("expected rank 0 with the lock", tostring(fails(
      require("moonreel.core.ckpt").saver, dir, { ranks = 2 })))
  end)

  it("report each commit once", function()
    save(1)
    local event = saver:poll()
    assert.equal("commit", event.kind)
    assert.equal(1, event.step)
    assert.matches("step%-000000000001$", event.text)
    assert.is_nil(saver:poll())
    assert.same({ commits = 1, failures = 0, failures_in_row = 0, pending = 0, last_commit = 1 },
      saver:status())
  end)

  it("keep the newest three and every tenth", function()
    saver:close()
    saver = ckpt.saver(dir, { keep_every = 10 })
    for _, step in ipairs { 10, 12, 14, 16, 18, 20 } do
      save(step)
    end
    saver:close()
    assert.same({ 20, 18, 16, 10 }, ckpt.steps(dir))
  end)

  it("are skipped with a message when damaged, in favour of the older one", function()
    save(1)
    save(2)
    saver:close()
    damage(ckpt.dir(dir, 2) .. "/r00000-of-00001.safetensors")
    local lock <close> = run.lock(dir)
    local c <close>, notes = ckpt.newest(dir, lock)
    assert.equal(1, c.step)
    assert.equal(1, #notes)
    assert.matches("step 2 skipped and renamed", notes[1])
    assert.matches("do not match their hash", notes[1])
    assert.is_nil(notes[1]:find("try: ", 1, true))
    assert.same({ 1 }, ckpt.steps(dir))
    assert.is_true(base.exists(dir .. "/ckpt/.bad-step-000000000002"))
  end)

  it("return no bytes that do not match their hash", function()
    save(1)
    damage(ckpt.dir(dir, 1) .. "/r00000-of-00001.safetensors")
    local c <close> = ckpt.open(ckpt.dir(dir, 1))
    local err = fails(c.read, c, "step")
    assert.equal("MR_E_FORMAT", err.code)
    assert.equal(8, err.exit)
    local other = "; try: another step; moonreel ckpt ls " .. dir
    assert.equal(other, err.message:sub(-#other))
    base.replace_file(ckpt.dir(dir, 1) .. "/MANIFEST.json", "{}")
    assert.is_truthy(fails(ckpt.open, ckpt.dir(dir, 1)).message:find(other, 1, true))
  end)

  it("refuse metadata that lacks what a resume needs, and wrong sizes", function()
    local err = fails(saver.save, saver, { step = 1, tensors = tensors(1),
      meta = meta { seed = "x" } })
    assert.equal("MR_E_USAGE", err.code)
    assert.matches("seed: expected an integer", tostring(err))
    err = fails(saver.save, saver,
      { step = 1, tensors = { { name = "a", dtype = "f32", shape = { 2 }, ptr = "xyz" } },
      meta = meta() })
    assert.matches("tensor 'a' has 8 bytes by its shape, but 3 bytes are given", tostring(err))
    err = fails(saver.save, saver,
      { step = 1, tensors = { { name = "a", dtype = "f31", shape = { 2 }, ptr = "" } },
      meta = meta() })
    assert.matches("unknown dtype 'f31'", tostring(err))
  end)

  it("are refused to a second trainer, and the error names the owner", function()
    local err = fails(ckpt.saver, dir)
    assert.equal("MR_E_LOCK", err.code)
    assert.matches("this very process", tostring(err))
    assert.equal(8, err.exit)
    assert.is_true(run.owner(dir).owned)
    saver:close()
    assert.is_false(run.owner(dir).owned)
    assert.equal(1, run.owner(dir).fence)
  end)

  it("keep the lock as long as a saver exists, in any order of closing", function()
    saver:close()
    local lock = run.lock(dir)
    saver = ckpt.saver(dir, { lock = lock })
    lock:close()
    save(3)
    assert.is_true(run.owner(dir).owned)
    saver:close()
    assert.is_false(run.owner(dir).owned)
  end)

  it("are opened from a plain safetensors file, with its metadata", function()
    local path = outputs .. "/weights.safetensors"
    ckpt.write(path, tensors(9), { format = "pt" })
    local c <close> = ckpt.open(path)
    assert.is_nil(c.manifest)
    assert.is_nil(c.step)
    assert.same({ format = "pt" }, c.metadata)
    assert.equal(string.pack("<i8", 7), c:read "step")
    assert.equal("MR_E_USAGE", fails(c.verify, c).code)
    -- also from its folder, when it is the only file there
    local folder = outputs .. "/hub"
    base.make_dir(folder)
    ckpt.write(folder .. "/model.safetensors", tensors(9))
    local d <close> = ckpt.open(folder)
    assert.equal(4, #d:names())
  end)

  it("are opened from shards with an index file", function()
    local folder = outputs .. "/hub"
    base.make_dir(folder)
    local all = tensors(2)
    ckpt.write(folder .. "/model-1.safetensors", { all[1], all[2] })
    ckpt.write(folder .. "/model-2.safetensors", { all[3] })
    base.replace_file(folder .. "/model.safetensors.index.json", [[{"metadata": {}, "weight_map": {
      "x_embedder.weight": "model-1.safetensors", "master.x_embedder.weight": "model-1.safetensors",
      "step": "model-2.safetensors"}}]])
    local c <close> = ckpt.open(folder)
    assert.equal(3, #c:names())
    assert.equal(string.pack("<i8", 7), c:read "step")
    base.replace_file(folder .. "/model.safetensors.index.json",
      '{"weight_map": {"step": "model-1.safetensors"}}')
    assert.matches("tensor 'step' is not in model%-1", tostring(fails(ckpt.open, folder)))
    base.replace_file(folder .. "/model.safetensors.index.json",
      '{"weight_map": {"step": "../x.safetensors"}}')
    assert.matches("not a plain name", tostring(fails(ckpt.open, folder)))
  end)

  it("list the differences between two machines", function()
    save(1)
    local c <close> = ckpt.open(ckpt.dir(dir, 1))
    assert.same({}, ckpt.machine_differences(c.manifest, meta().machine))
    assert.same({ "instruction set: avx2 then, avx512 now", "threads: 2 then, 8 now",
      "dnnl: 2.6.3 then, 3.7.2 now" },
      ckpt.machine_differences(c.manifest,
        { isa = "avx512", threads = 8, libraries = { dnnl = "3.7.2" } }))
  end)
end)
