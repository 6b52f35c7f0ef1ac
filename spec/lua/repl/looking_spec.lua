--- What a person looks at, typed in the console: a run's checkpoints, files of others, data, one
-- block of a model.
-- Covers: lua/moonreel/ckpt/entry.lua lua/moonreel/ckpt/look.lua lua/moonreel/ckpt/trend.lua
-- lua/moonreel/repl/data.lua lua/moonreel/repl/graph.lua lua/moonreel/repl/show.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local printed = require "spec.support.printed"
local repl = require "moonreel.repl"
local torch_file = require "spec.support.torch_file"

describe("the console shows", function()
  local dir, session

  -- types lines; returns the output as one text
  local function feed(...)
    return (printed(function(...)
      for _, line in ipairs { ... } do
        session:feed((line:gsub("DIR", dir.path)))
      end
    end, ...))
  end

  setup(function()
    dir = folder.new()
    session = repl.new()
  end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  describe("a run", function()
    local small = { "steps=4", "ckpt_every=2", "warmup_steps=0", "threads=1", "num_workers=1",
      "dtype=fp32", "model.depth=11", "model.hidden_size=32", "model.num_heads=2",
      "text_encoder.width=32", "model.caption_channels=32", "text_encoder.rows=64" }
    setup(function()
      demo_data.moonreel("train", "tiny/demo", "dataset.data_path=" .. demo_data.path(),
        "outputs=" .. dir.path .. "/runs",
        table.unpack(small))
      feed('ckpt = open("DIR/runs/001-demo")')
    end)

    it("prints its summary, and that nothing was verified", function()
      assert.matches("^checkpoint .-/step%-0+4: step 4, %d+ tensors, .- weights, .-, not verified$",
        feed "ckpt")
    end)

    it("prints that all was verified, after it was", function()
      assert.matches("^verified +tensors +size\n.-step%-0+4 +%d+ +.-\nevery byte matches its "
        .. "hash$", feed "ckpt:verify()")
      assert.matches(", verified$", feed "ckpt")
      assert.matches("\nverified$", feed "ckpt.lineage")
      assert.matches("not verified", feed 'open("DIR/runs/001-demo")')
    end)

    it("proposes the nearest of its names for an unknown one", function()
      assert.matches("step%-0+4: there is no tensor, field or method 'x_embedder.proj.wieght', "
        .. "did you mean 'x_embedder.proj.weight'%?", feed 'ckpt["x_embedder.proj.wieght"]')
      assert.matches("did you mean 'lineage'%?", feed "ckpt.linage")
      assert.matches("did you mean 'moments'%?", feed 'ckpt:momnets()')
      assert.matches("no tensor, field or method 'banana'; try: ckpt:ls%(%)", feed "ckpt.banana")
      assert.matches("imshow: expected a tensor, got table", feed "imshow(ckpt)")
    end)

    it("shows its losses", function()
      local text = feed "run"
      assert.matches("^run 001%-demo: step 4, loss %S+, checkpoints of steps 4, 2\nloss\n", text)
      assert.matches("[▀▄█]", text)
      assert.equal("4", feed "#run:losses()")
      assert.equal("4\t4", feed "return run:losses()[4].step, run:steps()[1]")
      assert.matches("^moonreel.Run\n  journal  losses  name  path  settings  steps$",
        feed "help(run)")
    end)

    it("shows the last loss of a repeated step, and none of an undone or skipped one", function()
      dir:write("twice/journal.jsonl", table.concat({
        '{"kind":"step","step":1,"loss":5.0}', '{"kind":"step","step":2,"loss":4.0}',
        '{"kind":"note","step":2,"loss":9.0}', '{"kind":"step","step":2,"loss":3.0}',
        '{"kind":"step","step":3,"loss":2.0}', '{"kind":"step","step":4,"loss":90.0}',
        '{"kind":"rollback","step":3,"from":4}', '{"kind":"skip","step":4}', "" }, "\n"))
      feed 'twice = require("moonreel.repl.data").run("DIR/twice")'
      assert.equal("3\t3.0\t2.0",
        feed "l = twice:losses() return #l, l[2].loss, l[3].loss")
      dir:write("empty/journal.jsonl", "")
      assert.equal("run empty: no step yet, checkpoints of steps none",
        feed 'require("moonreel.repl.data").run("DIR/empty")')
    end)

    it("keeps its names when another one is opened", function()
      feed('second = open("DIR/runs/001-demo/ckpt/step-000000000002")')
      assert.equal("4\t2", feed "return ckpt.step, second.step")
      feed 'open("DIR/runs/001-demo@2")'
      assert.equal("4\t2", feed "return ckpt.step, _.step")
    end)

    it("lists names in natural order, weights first; * matches dots, trees add up", function()
      local first = feed("ckpt:ls()[1].name", "ckpt:tree(1)[1].path")
      assert.is_nil(first:find("adam", 1, true), first)
      local kinds = feed('s = "" for _, x in ipairs(ckpt:ls("*x_embedder.proj.bias")) do s = s .. '
        .. 'x.name:match("^[^.]+") .. " " end return s')
      assert.equal('"x_embedder ema adam_m adam_v "', kinds)
      local list = feed 'ckpt:ls("spatial_blocks.*.attn.q_norm.weight")'
      assert.is_true(list:find("spatial_blocks.2.attn", 1, true)
        < list:find("spatial_blocks.10.attn", 1, true))
      assert.equal("11", feed '#ckpt:ls("spatial_blocks.*.attn.q_norm.weight")')
      assert.matches("\nspatial_blocks +%d+ +%d+ +.-\n  0 +%d+ +%d+", feed "ckpt:tree(2)")
      assert.is_nil(feed("ckpt:tree(1)"):find("\n  0 ", 1, true))
      assert.matches("weights +(%d+) .*ema +%d+ .*adam_m +%d+ .*adam_v", feed "ckpt:count()")
    end)

    it("has its settings and origin", function()
      assert.equal("11", feed "ckpt.settings.model.depth")
      assert.matches("step +4\n.*run .*recipe_hash +%x+\n", feed "ckpt.lineage")
      assert.matches("model%.depth=11", feed 'why("model.depth")')
    end)

    it("fits the recipe that made it, and differs from others", function()
      local change = {}
      for i = 6, #small do
        change[#change + 1] = ("%q"):format(small[i])
      end
      feed(('same = require("moonreel.settings").bake("tiny/demo", {%s})'):format(
        table.concat(change, ", ")))
      assert.matches("fits: %d+ parameters", feed "ckpt:fits(same)")
      assert.equal("0", feed "#ckpt:fits(same)")
      feed(('deeper = require("moonreel.settings").bake("tiny/demo", {%s, "model.depth=12", '
        .. '"model.mlp_ratio=2"})'):format(table.concat(change, ", ")))
      assert.equal("true", feed '#ckpt:fits(deeper):where{problem = "missing"} > 0')
      assert.matches("mlp%.fc1%.weight +shape +%[64,32%] +%[128,32%]",
        feed 'ckpt:fits(deeper):where{problem = "shape"}')
      feed(
        ('flatter = require("moonreel.settings").bake("tiny/demo", {%s, "model.depth=10"})'):format(
        table.concat(change, ", ")))
      assert.matches("spatial_blocks%.10%..- +unexpected",
        feed 'ckpt:fits(flatter):where{problem = "unexpected"}')
    end)

    it(
      "shows how its numbers move: norms by layer, the averages' gap, moments by parameter, trends",
      function()
      assert.matches("\nspatial_blocks%.10 +%d+ +%d+ +.-\n", feed "norms(ckpt)")
      assert.matches("^name +gap +relative\nspatial_blocks%.0%.attn%.qkv%.weight +[%d.e-]+ "
        .. "+[%d.e-]+$", feed 'ckpt:ema_gap("spatial_blocks.0.attn.qkv.weight")')
      assert.matches("final_layer%.linear%.weight +[%d.e-]+ +[%d.e-]+ +[%d.e-]+",
        feed 'ckpt:moments("final_layer.linear.weight")')
      -- Muon keeps one of them
      assert.matches("spatial_blocks%.0%.attn%.qkv%.weight +[%d.e-]+ +%- +%-",
        feed 'ckpt:moments("spatial_blocks.0.attn.qkv.weight")')
      assert.equal("true", feed 'ckpt:ema_gap("final_layer.linear.weight")[1].gap > 0')
      assert.matches("^ *step +norm +tensors\n *2 +%S+ +%d+\n *4 +%S+ +%d+$",
        feed 'trend(run, "norm", "spatial_blocks.*")')
      assert.matches("▏", feed 'plot(trend(run, "rms", "spatial_blocks.*"))')
    end)

    it("is compared with another one, tensor by tensor", function()
      feed('older = open("DIR/runs/001-demo/ckpt/step-000000000002")')
      assert.matches("final_layer%.linear%.weight +differs +%d+ +%d+ +%S+ +%S+\n",
        feed "d = diff(older, ckpt, {pattern = 'final_layer.linear.weight'}) return d")
      -- |a - b| / |a|, from the tensors themselves
      feed('a, b = older["final_layer.linear.weight"], ckpt["final_layer.linear.weight"]',
        "want = (a - b):norm() / a:norm()")
      assert.equal("true", feed "math.abs(d[1].relative / want - 1) < 1e-5 and want > 0")
      assert.matches("equal: %d+ tensors, bit for bit",
        feed "diff(ckpt, ckpt, {pattern = 'x_embedder.*'})")
    end)

    it("lends its weights to one block", function()
      assert.equal("{ 1, 4, 16, 32 }", feed('out = block(ckpt, "spatial_blocks.3")', "out.shape"))
      assert.equal("0", feed 'out:stats().nonfinite')
      -- its own weights, the given input
      assert.equal("false", feed 'block(ckpt, "spatial_blocks.10"):bytes() == out:bytes()')
      assert.equal("true", feed 'block(ckpt, "spatial_blocks.3"):bytes() == out:bytes()')
      assert.equal("{ 1, 2, 4, 32 }",
        feed 'block(ckpt, "temporal_blocks.0", {x = T.new("f32", {1, 2, 4, 32})}).shape')
      assert.matches("no 'spatial_blocks.11'; the model has spatial_blocks.0, ",
        feed 'block(ckpt, "spatial_blocks.11")')
    end)
  end)

  describe("files of others", function()
    -- a safetensors file: rows {name, dtype, shape, bytes}
    local function write(name, rows, metadata)
      local parts, data, at = { metadata and '"__metadata__":' .. metadata }, {}, 0
      for _, row in ipairs(rows) do
        parts[#parts + 1] = ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(
          row[1], row[2], table.concat(row[3], ","), at, at + #row[4])
        data[#data + 1], at = row[4], at + #row[4]
      end
      local head = "{" .. table.concat(parts, ",") .. "}"
      head = head .. (" "):rep(-#head % 8)
      dir:write(name, string.pack("<s8", head) .. table.concat(data))
    end

    it("are used in arithmetic directly", function()
      write("sum.safetensors", { { "a", "F32", { 2, 2 }, string.pack("<ffff", 1, 2, 3, 4) },
        { "b", "F16", { 2, 2 }, "\0\x3c\0\x3c\0\x3c\0\x40" } })
      feed 'f = open("DIR/sum.safetensors")'
      assert.equal("{ 2.0, 3.0, 4.0, 6.0 }", feed "(f.a + f.b):totable()")
      assert.equal("{ 2.0, 4.0, 6.0, 8.0 }", feed "(f.a * 2):totable()")
      assert.equal("{ 0.5, 1.0, 1.5, 2.0 }", feed "(f.a / 2):totable()")
      assert.equal("{ 0.0, 1.0, 2.0, 2.0 }", feed "(f.a - f.b):totable()")
      assert.equal("{ -1.0, -2.0, -3.0, -4.0 }", feed "(-f.a):totable()")
      assert.equal("{ 9.0, 8.0, 7.0, 6.0 }", feed "(10 - f.a):totable()")
      assert.equal("{ 2.0, 4.0, 6.0, 8.0 }", feed "(f.a + f.a:tensor()):totable()")
      assert.equal("2\t10.0\t4.0", feed "return #f.a, f.a:sum(), f.a:max()")
      assert.equal("{ 4.0, 6.0 }", feed "f.a:sum(0):totable()")
      assert.equal("{ 1.0, 3.0, 2.0, 4.0 }", feed "f.a:transpose():totable()")
      assert.equal("{ 0.5, 2.0 }", feed "(T.from({2}, {1, 2}) * f.a / 2)[0]:totable()")
      assert.equal("{ 1.0, 4.0, 9.0, 16.0 }", feed "ops.mul(f.a, f.a):totable()")
      assert.matches("bytes +ckpt +clone.* dtype .* hist .* mean .* tensor .* transpose",
        (feed("help(f.a)"):gsub("\n", " ")))
    end)

    it("are read in each dtype: f64, f32, f16, bf16, f8 and integers", function()
      write("kinds.safetensors", {
        { "f64", "F64", { 2 }, string.pack("<dd", 1.5, -2) },
          { "f32", "F32", { 2 }, string.pack("<ff", 1.5, -2) },
        { "f16", "F16", { 2 }, "\0\x3e\0\xc0" }, { "bf16", "BF16", { 2 }, "\xc0\x3f\0\xc0" },
        { "e4m3", "F8_E4M3", { 2 }, "\x3c\xc0" }, { "e5m2", "F8_E5M2", { 2 }, "\x3e\xc0" },
        { "i64", "I64", { 2 }, string.pack("<i8i8", 1, -2) },
          { "i32", "I32", { 2 }, string.pack("<i4i4", 1, -2) },
        { "i16", "I16", { 2 }, string.pack("<i2i2", 1, -2) }, { "i8", "I8", { 2 }, "\1\xfe" },
          { "u8", "U8", { 2 }, "\1\2" },
        { "bool", "BOOL", { 2 }, "\1\0" },
      })
      feed 'k = open("DIR/kinds.safetensors")'
      for _, kind in ipairs { "f64", "f32", "f16", "bf16", "e4m3", "e5m2" } do
        assert.equal("{ 1.5, -2.0 }", feed(('k["%s"]:tensor():totable()'):format(kind)), kind)
        assert.equal("-2.0\t1.5", feed(('s = k["%s"]:stats(); return s.min, s.max'):format(kind)),
          kind)
      end
      for _, kind in ipairs { "i64", "i32", "i16", "i8" } do
        assert.equal("-2.0\t1.0", feed(('s = k["%s"]:stats(); return s.min, s.max'):format(kind)),
          kind)
      end
      assert.equal("3.0\t1", feed 'return k["u8"]:stats().mean * 2, k["bool"]:stats().zeros')
    end)

    it("are searched for values that are not finite, zero or large", function()
      write("bad.safetensors", { { "blocks.2.w", "F32", { 2 }, string.pack("<ff", 1, 0 / 0) },
        { "blocks.10.w", "F32", { 2 }, string.pack("<ff", 0, 0) },
        { "head", "F32", { 3 }, string.pack("<fff", 1, -1 / 0, 40) } })
      feed 'bad = open("DIR/bad.safetensors")'
      assert.matches(
        "^name +n +nonfinite .-\nblocks%.2%.w +2 +1 .-\nhead +3 +1 .-\n2 of 3 tensors$",
        feed "bad:find{nonfinite = true}")
      assert.matches("blocks%.10%.w.*\n1 of 3 tensors$", feed "bad:find{zeros = true}")
      assert.matches("head.*\n1 of 3 tensors$", feed "bad:find{above = 30}")
      assert.matches("ckpt:find: no option 'nan'; it takes nonfinite", feed "bad:find{nan = true}")
    end)

    it("are compared under other names", function()
      write("net.safetensors", { { "net.blocks.2.w", "F32", { 2 }, string.pack("<ff", 1, 0 / 0) },
        { "net.head", "F32", { 3 }, string.pack("<fff", 1, 2, 40) } })
      feed 'net = open("DIR/net.safetensors")'
      local text = feed 'diff(bad, net, {map = {["^net%."] = ""}})'
      assert.matches("blocks%.10%.w +only in a", text)
      assert.matches("head +differs +1 +3", text)
      assert.is_nil(text:find("blocks.2.w", 1, true))
      assert.equal(text, feed 'diff(bad, net, {map = function(name) return name:sub(5) end})')
    end)

    it("of strangers have names and metadata, without control characters", function()
      write("strange.safetensors", { { "a\\u001b[31mred", "F32", { 1 }, string.pack("<f", 1) } },
        '{"made\\u0007by":"\\u001b]0;title\\u0007"}')
      feed 'strange = open("DIR/strange.safetensors")'
      local text = feed("strange", "strange:ls()", "strange:tree()", "strange.lineage",
        "strange:find{above = 0}", 'help(strange["nosuch"])')
      assert.is_nil(text:find("[%z\1-\8\11-\31\127]"))
      assert.matches("a\\x1b%[31mred", text)
      assert.matches("\\x1b%]0;title\\x07", text)
    end)

    it("are opened as data when they are .bin and .pth", function()
      for _, name in ipairs { "weights.bin", "weights.pth" } do
        torch_file.zip(dir.path .. "/" .. name,
          { { "archive/data.pkl", torch_file.pickle(torch_file.dict(torch_file.text "w",
          torch_file.tensor("FloatStorage", "0", 4, 0, torch_file.ints(2, 2),
            torch_file.ints(2, 1)))) },
          { "archive/byteorder", "little" },
            { "archive/data/0", string.pack("<ffff", 1, 2, 3, 4) } })
        feed(('w = open("DIR/%s")'):format(name))
        assert.equal("10.0", feed "w.w:stats().mean * 4")
        assert.matches("plain weights, not verified: no hashes", feed "w.lineage")
      end
    end)
  end)

  it("may be tensors saved as csv, safetensors, png and mp4", function()
    feed('x = T.from({2, 2}, {1, 2.5, 3, 4})', 'x:save("DIR/x.csv")', 'x:save("DIR/x.safetensors")',
      'T.new("u8", {3, 16, 24}):save("DIR/x.png")')
    feed('T.new("u8", {5, 3, 32, 48}):save("DIR/x.mp4")')
    assert.equal("1,2.5\n3,4\n", base.read_file(dir.path .. "/x.csv"))
    assert.same({ 1, 2.5, 3, 4 }, ckpt.open(dir.path .. "/x.safetensors").tensor:tensor():totable())
    assert.matches("clip .-x%.mp4: 5 frames, 48 x 32", feed 'open("DIR/x.mp4")')
    assert.matches("clip .-x%.png: 1 frames, 24 x 16", feed 'open("DIR/x.png")')
    assert.matches("save: %.mp4 needs u8 %[T, 3, H, W%], got f32", feed 'x:save("DIR/y.mp4")')
  end)

  describe("data", function()
    setup(function()
      base.make_dir(dir.path .. "/clips")
      for i = 0, 17 do
        require("moonreel.data").encode(("%s/clips/%02d.mp4"):format(dir.path, i),
          ("\x60"):rep((i == 17 and 60 or 4) * 3 * 32 * 32),
          { frames = i == 17 and 60 or 4, height = 32, width = 32, fps = 8 })
      end
      require("moonreel.data").ingest(dir.path .. "/clips", dir.path .. "/clips.mrx")
      feed 'index = open("DIR/clips.mrx")'
    end)

    it("as a sample by its place, by a condition, and by its frames", function()
      assert.matches("18 samples; index%[0%]", feed "index")
      assert.matches("sample 17: .-17%.mp4\n +60 frames, 32 x 32", feed "index[17]")
      assert.matches("1 of 18 samples$", feed 'index:where("num_frames > 50")')
      assert.equal("17", feed 'index:where("num_frames > 50 and width >= 32")[1].id')
      assert.matches("^clip .-: 16 frames, 32 x 32, 8 fps$", feed "index[17]:decode{frames = 16}")
      assert.matches("there is no sample 18; the index has 18, counted from 0", feed "index[18]")
      assert.matches("a sample has no field 'frams'", feed 'index:where("frams > 3")')
    end)

    it("until Ctrl-C stops decoding", function()
      -- os.execute would ignore it until its shell has ended
      local send = ("shell = io.popen 'sleep 0.1; kill -INT %d' "):format(base.pid())
      assert.matches("stopped by Ctrl%-C", feed(send .. "while true do index[17]:decode() end"))
      feed "shell:close()"
    end)
  end)
end)
