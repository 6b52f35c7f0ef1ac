--- golden.data: reference files about buckets and frames, and how differences are found.
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local golden = require "spec.golden.runner"
local T = require "moonreel.core.tensor"

-- the result for a committed file in which one value of a tensor is changed
local function judged(name, change)
  local dir = os.tmpname()
  os.remove(dir)
  base.make_dir(dir)
  local rows = {}
  local source <close> = ckpt.open("spec/golden/" .. name .. ".safetensors")
  for _, tensor in ipairs(source:names()) do
    local info = source:info(tensor)
    local t = T.new(info.dtype, info.shape)
    source:read(tensor, t:ptr())
    if tensor == change[1] then
      local values = t:totable()
      values[change[2]] = values[change[2]] + change[3]
      t = T.from(info.shape, values, info.dtype)
    end
    local pointer, bytes = t:ptr()
    rows[#rows + 1] = {name = tensor, dtype = info.dtype, shape = info.shape, ptr = pointer,
      bytes = bytes, keep = t}
  end
  ckpt.write(dir .. "/" .. name .. ".safetensors", rows, source.metadata)
  local lines = {}
  local sum = golden.run(dir, function(line) lines[#lines + 1] = line end)
  os.execute("rm -r " .. dir)
  return sum, lines[1]
end

describe("golden files about data", function()
  it("pass unchanged", function()
    for _, name in ipairs{"bucket_assignment", "batch_sampler", "temporal_crop"} do
      local sum, line = judged(name, {"none"})
      assert.equal(1, sum.passed, line)
    end
  end)

  for _, case in ipairs{
    {"bucket_assignment", {"os_stage1.deterministic.bucket", 2, 1}, "os_stage1.deterministic"},
    {"bucket_assignment", {"os_stage3.random.thw", 2, 2}, "os_stage3.random"},
    {"bucket_assignment", {"in.width", 1, 4000}, ""},
    {"batch_sampler", {"drop1.epoch0.world1.rank0.thw", 2, 2}, "drop1.epoch0"},
    {"batch_sampler", {"in.num_frames", 1, 40}, ""},
    {"temporal_crop", {"indices", 40, 1}, "indices"},
    {"temporal_crop", {"case", 5, 1}, "indices"},
  } do
    it(("fail with another value of %s in %s"):format(case[2][1], case[1]), function()
      local sum, line = judged(case[1], case[2])
      assert.equal(1, sum.failed, line)
      assert.matches("^FAIL " .. case[1] .. " .*%(" .. case[3]:gsub("%p", "%%%0"), line)
    end)
  end
end)
