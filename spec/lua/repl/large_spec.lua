--- The 11B parameter table of Open-Sora 2.0 as sparse bf16 files: opened, listed and looked into lazily.
local base = require "moonreel.core.base"
local process = require "moonreel.core.process"

-- the shapes of one block of each kind and what stands outside, as the released model has them
local outside = { ["img_in.weight"] = { 3072, 64 }, ["img_in.bias"] = { 3072 }, ["cond_in.weight"] = { 3072, 68 }, ["cond_in.bias"] = { 3072 },
  ["time_in.in_layer.weight"] = { 3072, 256 }, ["time_in.in_layer.bias"] = { 3072 }, ["time_in.out_layer.weight"] = { 3072, 3072 },
  ["time_in.out_layer.bias"] = { 3072 }, ["vector_in.in_layer.weight"] = { 3072, 768 }, ["vector_in.in_layer.bias"] = { 3072 },
  ["vector_in.out_layer.weight"] = { 3072, 3072 }, ["vector_in.out_layer.bias"] = { 3072 }, ["txt_in.weight"] = { 3072, 4096 },
  ["txt_in.bias"] = { 3072 }, ["final_layer.linear.weight"] = { 64, 3072 }, ["final_layer.linear.bias"] = { 64 },
  ["final_layer.adaLN_modulation.1.weight"] = { 6144, 3072 }, ["final_layer.adaLN_modulation.1.bias"] = { 6144 } }
local double, single = {}, {}
for _, side in ipairs { "img", "txt" } do
  for name, shape in pairs { ["mod.lin"] = { 18432, 3072 }, ["attn.q_proj"] = { 3072, 3072 }, ["attn.k_proj"] = { 3072, 3072 },
    ["attn.v_proj"] = { 3072, 3072 }, ["attn.proj"] = { 3072, 3072 }, ["mlp.0"] = { 12288, 3072 }, ["mlp.2"] = { 3072, 12288 } } do
    double[side .. "_" .. name .. ".weight"], double[side .. "_" .. name .. ".bias"] = shape, { shape[1] }
  end
  double[side .. "_attn.norm.query_norm.scale"], double[side .. "_attn.norm.key_norm.scale"] = { 128 }, { 128 }
end
for name, shape in pairs { q_proj = { 3072, 3072 }, k_proj = { 3072, 3072 }, v_mlp = { 15360, 3072 }, linear2 = { 3072, 15360 },
  ["modulation.lin"] = { 9216, 3072 } } do
  single[name .. ".weight"], single[name .. ".bias"] = shape, { shape[1] }
end
single["norm.query_norm.scale"], single["norm.key_norm.scale"] = { 128 }, { 128 }

local function all_tensors()
  local list, total = {}, 0
  local function add(prefix, table_of)
    for name, shape in pairs(table_of) do
      local n = 1
      for _, d in ipairs(shape) do n = n * d end
      list[#list + 1] = { name = prefix .. name, shape = shape, n = n }
      total = total + n
    end
  end
  add("", outside)
  for i = 0, 18 do add(("double_blocks.%d."):format(i), double) end
  for i = 0, 37 do add(("single_blocks.%d."):format(i), single) end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list, total
end

-- a header, then a hole as long as the data
local function write(path, list)
  local parts, at = {}, 0
  for i, t in ipairs(list) do
    parts[i] = ('"%s":{"dtype":"BF16","shape":[%s],"data_offsets":[%d,%d]}'):format(t.name, table.concat(t.shape, ","), at, at + 2 * t.n)
    at = at + 2 * t.n
  end
  local head = "{" .. table.concat(parts, ",") .. "}"
  head = head .. (" "):rep(-#head % 8)
  local file = assert(io.open(path, "wb"))
  file:write(string.pack("<I8", #head), head)
  file:close()
  assert(os.execute(("truncate -s %d '%s'"):format(8 + #head + at, path)))
end

describe("11.89 billion weights", function()
  local dir
  setup(function()
    dir = os.tmpname()
    os.remove(dir)
    base.make_dir(dir .. "/seven")
    local list, total = all_tensors()
    assert.equal(11891390528, total)
    write(dir .. "/one.safetensors", list)
    local map = {}
    for s = 1, 7 do
      local file, part = ("model-%05d-of-00007.safetensors"):format(s), {}
      for i = s, #list, 7 do
        part[#part + 1] = list[i]
        map[#map + 1] = ('"%s":"%s"'):format(list[i].name, file)
      end
      write(dir .. "/seven/" .. file, part)
    end
    base.replace_file(dir .. "/seven/model.safetensors.index.json", '{"weight_map":{' .. table.concat(map, ",") .. "}}")
  end)
  teardown(function() base.remove_dir(dir) end)

  for _, name in ipairs { "one.safetensors", "seven", "seven/model.safetensors.index.json" } do
    it(("open, list and give numbers of one tensor in under a second: %s"):format(name), function()
      local code = ([[
        local began = require("moonreel.core.base").now_s()
        local s = require("moonreel.repl").new()
        s.env.ckpt = require("moonreel.repl.names").open(%q)
        s:feed('n = #ckpt:ls("double_blocks.*.img_attn.*"); text = tostring(ckpt:tree(2))')
        s:feed('x = ckpt["double_blocks.18.img_attn.proj.weight"]:stats()')
        local private = 0
        for line in io.lines("/proc/self/smaps_rollup") do
          private = private + (tonumber(line:match("^Private_%%a+:%%s+(%%d+)")) or 0)
        end
        print(s.env.n, s.env.x.n, s.env.ckpt:count()[1].elements, private, require("moonreel.core.base").now_s() - began)]]):format(dir .. "/" .. name)
      local result = process.run({ process.program(), "-e", code }, "", { deadline_s = 60 })
      assert.equal(0, result.exit)
      local n, elements, all, private_kb, took_s = result.output:match("(%S+)\t(%S+)\t(%S+)\t(%S+)\t(%S+)")
      assert.equal("190", n)
      assert.equal("9437184", elements)
      assert.equal("11891390528", all)
      assert.is_true(tonumber(private_kb) < 100e3, private_kb)
      -- 1 s is promised on an idle machine; specs share theirs
      assert.is_true(tonumber(took_s) < 4, took_s)
    end)
  end
end)
