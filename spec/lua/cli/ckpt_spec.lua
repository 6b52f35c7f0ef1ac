--- The output and exit codes of moonreel ckpt.
-- Covers: lua/moonreel/cli/ckpt/*.lua lua/moonreel/ckpt/compare.lua lua/moonreel/ckpt/model.lua
-- lua/moonreel/ckpt/numbers.lua lua/moonreel/text/listing.lua
local by_ranks = dofile "spec/support/by_ranks.lua"
local command = require "moonreel.cli.ckpt"
local ckpt = require "moonreel.ckpt"
local run = require "moonreel.run"
local json = require "moonreel.core.json"
local printed = require "spec.support.printed"
local signalled = dofile "spec/support/signalled.lua"

local function meta(extra)
  local m = { recipe_hash = "r", dataset_fingerprint = "d", sampler = "s0", seed = 1, machine = {} }
  for k, v in pairs(extra or {}) do
    m[k] = v
  end
  return m
end

local function f32(...) return string.pack("<" .. ("f"):rep(select("#", ...)), ...) end

describe("moonreel ckpt", function()
  local outputs, dir

  -- runs the command; returns its exit code and output
  local function call(...)
    local args = { ... }
    args[#args + 1] = "--outputs=" .. outputs
    local text, code = printed(command.run, args)
    return code, text
  end

  local function fails(...)
    local ok, err = pcall(call, ...)
    assert.is_false(ok)
    return err
  end

  local function save(where, step, tensors, extra)
    local saver <close> = ckpt.saver(where)
    saver:save { step = step, tensors = tensors, meta = meta(extra) }
    saver:wait(20)
  end

  local function tensors(x)
    return { { name = "blocks.10.w", dtype = "f32", shape = { 2, 2 }, ptr = f32(x, 2, 3, 4) },
      { name = "blocks.2.w", dtype = "f32", shape = { 4 }, ptr = f32(0, 0, 1 / 0, 1) },
      { name = "ema.blocks.2.w", dtype = "bf16", shape = { 2 }, ptr = "abcd" },
      { name = "scale", dtype = "f64", shape = {}, ptr = string.pack("<d", 2) } }
  end

  before_each(function()
    outputs = os.tmpname()
    os.remove(outputs)
    dir = run.create(outputs, "demo")
    save(dir, 1, tensors(1))
    save(dir, 2, tensors(1.5), { sampler = "s1" })
  end)
  after_each(function() os.execute("rm -rf '" .. outputs .. "'") end)

  it("lists the checkpoints of a run or of all runs, with their state", function()
    os.execute(("cp -r '%s' '%s'"):format(ckpt.dir(dir, 2), ckpt.dir(dir, 3)))
    os.execute(("truncate -s -1 '%s/r00000-of-00001.safetensors'"):format(ckpt.dir(dir, 3)))
    os.execute(("mkdir '%s.tmp-abc-1.1'"):format(ckpt.dir(dir, 4)))
    os.execute(("mkdir '%s/ckpt/.bad-step-000000000009'"):format(dir))
    local code, text = call("ls", "--json")
    assert.equal(0, code)
    local rows = json.decode(text)
    assert.equal(5, #rows)
    local states = {}
    for i, row in ipairs(rows) do
      states[i] = row.step .. " " .. row.state
    end
    assert.same({ "1 committed", "2 committed", "3 damaged", "4 left over",
      "9 set aside: damaged" }, states)
    assert.equal(4, rows[1].tensors)
    code, text = call("ls", "1")
    assert.equal(0, code)
    assert.matches("\n +1  committed +%d+ B +4 +1  %d%d%d%d%-", text)
    assert.matches("the manifest says", text)
    assert.equal("MR_E_USAGE", fails("ls", "nowhere").code)
    os.execute(("rm -rf '%s'"):format(dir))
    assert.same({ 0, "no checkpoints" }, { call("ls") })
    assert.same({ 0, "[]" }, { call("ls", "--json") })
  end)

  it("inspects a checkpoint: kinds, then tensors in natural order", function()
    local code, text = call("inspect", "1")
    assert.equal(0, code)
    assert.matches("step 2, written", text)
    assert.matches("weights +3 +9 +40 B", text)
    assert.matches("ema +1 +2 +4 B", text)
    assert.is_true(text:find("blocks.2.w", 1, true) < text:find("blocks.10.w", 1, true))
    local decoded = json.decode(select(2, call("inspect", "1@1", "--json")))
    assert.equal(1, decoded.step)
    assert.equal("s0", decoded.manifest.sampler)
    assert.equal(4, #decoded.tensors)
    assert.is_true(json.is_array(decoded.tensors[4].shape))
  end)

  it("names the model that a file of weights holds", function()
    local weights, path = require "datasets.demo.weights", os.tmpname()
    os.remove(path)
    weights.vae(path .. "/vae", 1)
    weights.t5(path .. "/t5", 1)
    local _, text = call("inspect", path .. "/vae")
    assert.matches("\n  OpenSora VAE 1%.2: filters in time 8, levels 4, first width 8, "
      .. "latent_channels 4\n", text)
    _, text = call("inspect", path .. "/t5", "--json")
    assert.same({ name = "T5 v1.1 encoder", facts = { { name = "num_layers", value = 3 },
      { name = "d_model", value = 32 }, { name = "d_ff", value = 48 },
      { name = "num_heads", value = 4 } } }, json.decode(text).model)
    _, text = call("inspect", "1")
    assert.is_nil(text:find("STDiT3", 1, true))
    require("moonreel.core.base").remove_dir(path)
  end)

  it("inspects one tensor with its numbers, or a pattern", function()
    local _, text = call("inspect", "1", "blocks.2.w")
    assert.matches("4 elements, 2 zero, 1 not finite", text)
    assert.matches("min 0  max 1  mean 0.333333", text)
    local decoded = json.decode(select(2, call("inspect", "1", "scale", "--json")))
    assert.equal(2.0, decoded.stats.max)
    assert.is_true(json.is_array(decoded.shape))
    _, text = call("inspect", "1", "*2.w")
    assert.equal([[
name            shape  dtype  size
blocks.2.w      [4]    f32    16 B
ema.blocks.2.w  [2]    bf16    4 B
2 tensors, 20 B]], text)
    assert.matches("no tensor matches 'zz'", tostring(fails("inspect", "1", "zz")))
  end)

  it("reports equal checkpoints as equal, whatever wrote them and when", function()
    local twin = run.create(outputs, "demo")
    save(twin, 1, tensors(1), { parent = "x" })
    local code, text = call("diff", "1@1", "2@1")
    assert.equal(0, code)
    assert.matches("equal: 4 tensors, bit for bit", text)
    assert.is_true(json.decode(select(2, call("diff", "1@1", "2@1", "--json"))).equal)
  end)

  it("lists differences and exits with 1", function()
    local code, text = call("diff", "1@1", "1@2")
    assert.equal(1, code)
    assert.matches("step: 1 / 2", text)
    assert.matches("sampler: s0 / s1", text)
    assert.matches("blocks.10.w: 1 of 4 elements differ, first at 0, largest difference 0.5", text)
    assert.matches("3 differences", text)
    local twin = run.create(outputs, "demo")
    local other = tensors(1)
    other[1].shape, other[4] = { 4 }, { name = "new", dtype = "u8", shape = {}, ptr = "x" }
    save(twin, 1, other)
    code, text = call("diff", "1@1", "2@1")
    assert.equal(1, code)
    assert.matches("blocks.10.w: %[2,2%] f32 / %[4%] f32", text)
    assert.matches("new: only in b", text)
    assert.matches("scale: only in a", text)
    local rows = json.decode(select(2, call("diff", "1@1", "2@1", "--json")))
    assert.is_false(rows.equal)
    assert.equal(3, #rows.differences)
  end)

  it("never prints control characters from a file", function()
    local path = outputs .. "/evil.safetensors"
    ckpt.write(path, { { name = "a\27[2Jb", dtype = "u8", shape = { 1 }, ptr = "x" } },
      { ["k\7"] = "v\n" })
    local _, text = call("inspect", path)
    assert.is_nil(text:find("[\27\7]"))
    assert.matches("a\\x1b%[2Jb", text)
  end)

  it("prints its usage", function()
    for _, args in ipairs { {}, { "frob" }, { "diff", "1" }, { "inspect" }, { "ls", "a", "b" } } do
      local ok, err = pcall(command.run, args)
      assert.is_false(ok)
      assert.equal("MR_E_USAGE", err.code)
      assert.matches("usage: moonreel ckpt ls", tostring(err))
    end
    assert.matches("diff: expected A B, got '[^ ]+'",
      tostring(select(2, pcall(command.run, { "diff", "1" }))))
    assert.matches("ckpt: %-%-frob: no such option; try: moonreel ckpt %-%-help",
      tostring(fails("ls", "--frob")))
    assert.matches("ckpt: %-%-keep: expected N, got nothing",
      tostring(fails("prune", "1", "--keep", "--json")))
  end)

  it("verifies all hashes, and reports files without hashes", function()
    local code, text = call("verify", dir)
    assert.equal(0, code)
    assert.matches("4 tensors, .*all hashes match", text)
    local file = outputs .. "/w.safetensors"
    ckpt.write(file, { { name = "x", dtype = "f32", shape = { 2 }, ptr = f32(1, 0 / 0) } })
    assert.matches("no hashes to compare, 1 values not finite", (select(2, call("verify", file))))
    assert.equal(1, json.decode((select(2, call("verify", file, "--json")))).nonfinite)
  end)

  -- a run whose step 1 one rank wrote, and the same step by four
  local function twins()
    local wide = tensors(1)
    wide[5] = { name = "wide", dtype = "f32", shape = { 40000, 20 },
      ptr = f32(table.unpack { 1, 2, 3, 4, 5, 6, 7, 8 }):rep(100000) }
    wide[6] = { name = "none", dtype = "f32", shape = { 0, 4 }, ptr = "" }
    local one, four = run.create(outputs, "one"), run.create(outputs, "four")
    save(one, 1, wide)
    save(four, 1, wide)
    return ckpt.dir(one, 1), by_ranks.rewrite(four, 1, 4)
  end

  it("treats a checkpoint of several ranks like one of a single rank", function()
    local one, four = twins()
    assert.matches("equal: 6 tensors, bit for bit", (select(2, call("diff", one, four))))
    assert.same(json.decode((select(2, call("inspect", one, "wide", "--json")))),
      json.decode((select(2, call("inspect", four, "wide", "--json")))))
    assert.matches("wide +%[40000,20%]", (select(2, call("inspect", four))))
    assert.matches("all hashes match", (select(2, call("verify", four))))
    for i, path in ipairs { one, four } do
      assert.equal(0, (call("convert", path, ("%s/%d.safetensors"):format(outputs, i))))
    end
    local read = require("moonreel.core.base").read_file
    assert.equal(read(outputs .. "/1.safetensors"), read(outputs .. "/2.safetensors"))
  end)

  it("names the missing or damaged file of a rank", function()
    local _, four = twins()
    local file = four .. "/r00003-of-00004.safetensors"
    local f <close> = assert(io.open(file, "r+b"))
    f:seek("set", 1100000)
    f:write("?!")
    f:flush()
    local err = fails("verify", four)
    assert.equal(8, err.exit)
    assert.matches("r00003%-of%-00004%.safetensors: damaged: block 1", tostring(err))
    os.remove(file)
    for _, part in ipairs { "verify", "inspect" } do
      assert.matches("r00003%-of%-00004%.safetensors: missing", tostring(fails(part, four)))
    end
  end)

  it("verifies a share of a checkpoint, and all shares cover it", function()
    local _, four = twins()
    local c <close> = ckpt.open(four)
    for _, parts in ipairs { 1, 2, 3 } do
      local sum = 0
      for part = 1, parts do
        local report = json.decode((select(2,
          call("verify", four, ("--part=%d/%d"):format(part, parts), "--json"))))
        assert.same({ part, parts, true }, { report.part, report.parts, report.hashes })
        assert.is_true(report.bytes > 0 and report.bytes < c.bytes / parts + (1 << 21))
        sum = sum + report.bytes
      end
      assert.equal(c.bytes, sum)
    end
    assert.matches("part 2 of 3, .*: all hashes match", (select(2, call("verify", four,
      "--part=2/3"))))
    for _, bad in ipairs { "0/3", "4/3", "2", "a/b", "1/99999999999999999999",
        "1/1048577" } do
      assert.matches("%-%-part: expected I/N", tostring(fails("verify", four, "--part=" .. bad)))
    end
    local file = outputs .. "/w.safetensors"
    ckpt.write(file, { { name = "x", dtype = "f32", shape = { 1 }, ptr = f32(1) } })
    assert.matches("expected a checkpoint, this is a plain file",
      tostring(fails("verify", file, "--part=1/2")))
  end)

  it("refuses options of other subcommands", function()
    local _, four = twins()
    for _, words in ipairs { { "ls", outputs, "--part=1/2", "verify" },
        { "verify", four, "--dry-run", "prune" }, { "inspect", four, "--ema", "convert" },
        { "convert", four, "/tmp/no.safetensors", "--keep=1", "prune" } } do
      local of = table.remove(words)
      assert.matches((" is an option of %s; usage:"):format(of),
        tostring(fails(table.unpack(words))))
    end
  end)

  it("names the output file that cannot be written", function()
    local _, four = twins()
    assert.matches(" /nowhere/x%.safetensors: cannot create: ",
      tostring(fails("convert", four, "/nowhere/x.safetensors")))
  end)

  it("leaves no partial file when a signal stops a conversion", function()
    local done = signalled("INT", [[
      local longwork = require "moonreel.cli.longwork"
      local run = longwork.run
      function longwork.run(work, ...)
        return run(function(tick)
          send()
          return work(tick)
        end, ...)
      end]], { "ckpt", "convert", dir, outputs .. "/stopped.safetensors" })
    assert.equal(130, done.exit, done.output)
    assert.equal("moonreel: stopped by a signal; nothing was written\n", done.output)
    for _, name in ipairs(require("moonreel.core.base").list_dir(outputs)) do
      assert.is_nil(name:match "^stopped")
    end
  end)

  it("removes the partial file of a killed conversion to the same name", function()
    local base = require "moonreel.core.base"
    local file = outputs .. "/killed/w.safetensors"
    base.make_dir(outputs .. "/killed")
    local dead = require("moonreel.core.process").run({ "/bin/sh", "-c", "printf $$" }, "").output
    for _, pid in ipairs { dead, "1" } do
      assert(io.open(file .. ".tmp-" .. pid, "w")):close()
    end
    assert.equal(0, (call("convert", dir, file)))
    assert.is_false(base.exists(file .. ".tmp-" .. dead))
    assert.is_true(base.exists(file .. ".tmp-1"))
  end)

  it("converts to weights under their own names, averaged ones on request", function()
    local file = outputs .. "/w.safetensors"
    assert.equal(0, (call("convert", dir, file)))
    local c <close> = ckpt.open(file)
    assert.same({ "blocks.2.w", "blocks.10.w", "scale" }, c:names())
    assert.equal(f32(1.5, 2, 3, 4), c:read("blocks.10.w"))
    local report = json.decode((select(2, call("convert", dir, file, "--ema", "--json"))))
    assert.same({ file, 3 }, { report.path, report.tensors })
    local averaged <close> = ckpt.open(file)
    assert.equal("abcd", averaged:read("blocks.2.w"))
    assert.matches("ends in .safetensors", tostring(fails("convert", dir, "x.doc")))
  end)

  it("removes all but the newest checkpoints of a run, or only lists them on request", function()
    save(dir, 3, tensors(2))
    assert.matches("1 checkpoints stay, 2 would go",
      (select(2, call("prune", dir, "--keep", "1", "--dry-run"))))
    assert.same({ 3, 2, 1 }, ckpt.steps(dir))
    local report = json.decode((select(2, call("prune", dir, "--keep=1", "--every=2", "--json"))))
    assert.same({ 1, 2, false }, { #report.removed, #report.kept, report.dry_run })
    assert.same({ 3, 2 }, ckpt.steps(dir))
    assert.matches("needs %-%-keep", tostring(fails("prune", dir)))
    assert.matches("whole number", tostring(fails("prune", dir, "--keep", "0")))
  end)
end)
