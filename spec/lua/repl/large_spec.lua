--- The 11B parameter table of Open-Sora 2.0 as sparse bf16 files is opened, listed and inspected
-- lazily.
local base = require "moonreel.core.base"
local core = require "moonreel.core.bench"
local large = require "moonreel.bench.large"
local process = require "moonreel.core.process"

describe("11.89 billion weights", function()
  local dir, files
  setup(function()
    dir = os.tmpname()
    os.remove(dir)
    base.make_dir(dir)
    files = select(3, large.write(dir, 7))
  end)
  teardown(function() base.remove_dir(dir) end)

  it("are those of the released model", function()
    local list, total = large.tensors()
    assert.equal(11891390528, total)
    assert.equal(18 + 19 * 32 + 38 * 12, #list)
  end)

  for _, name in ipairs { "one.safetensors", "sharded", "sharded/model.safetensors.index.json" } do
    it("are opened and listed, and one tensor is inspected by reading only it: " .. name, function()
      for _, path in ipairs(files) do
        core.forget_file(path)
      end
      local code = ([[
        local s = require("moonreel.repl").new()
        s.env.ckpt = require("moonreel.repl.names").open(%q)
        s:feed('n = #ckpt:ls("double_blocks.*.img_attn.*"); text = tostring(ckpt:tree(2))')
        s:feed('x = ckpt["double_blocks.18.img_attn.proj.weight"]:stats()')
        local private, mapped = 0, 0
        for line in io.lines("/proc/self/smaps_rollup") do
          private = private + (tonumber(line:match("^Private_%%a+:%%s+(%%d+)")) or 0)
          mapped = mapped + (tonumber(line:match("^Rss:%%s+(%%d+)")) or 0)
        end
        local read = io.open("/proc/self/io"):read("a"):match("rchar: (%%d+)")
        print(s.env.n, s.env.x.n, s.env.ckpt:count()[1].elements, private, mapped, read)]]):format(
        dir .. "/" .. name)
      local result = process.run({ process.program(), "-e", code }, "", { deadline_s = 600 })
      assert.equal(0, result.exit)
      local n, elements, all, private_kb, mapped_kb, read_bytes =
        result.output:match("(%S+)\t(%S+)\t(%S+)\t(%S+)\t(%S+)\t(%S+)")
      assert.equal("190", n)
      assert.equal("9437184", elements)
      assert.equal("11891390528", all)
      assert.is_true(tonumber(private_kb) < 100e3, private_kb)
      -- the tensor has 19 MB, its file or files 24 GB; `bench cli` reports the time
      assert.is_true(tonumber(mapped_kb) < 200e3, mapped_kb)
      assert.is_true(tonumber(read_bytes) < 64e6, read_bytes)
    end)
  end
end)
