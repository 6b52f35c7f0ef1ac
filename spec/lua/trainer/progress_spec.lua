--- What a run reports while it trains: the rate and the time left.
-- Covers: lua/moonreel/trainer/progress.lua
local base = require "moonreel.core.base"
local progress = require "moonreel.trainer.progress"

-- the progress lines of steps that take these seconds each
local function lines(total, seconds)
  local at, out = 0, {}
  local p = progress.new(total, 1, function(line) out[#out + 1] = line end,
    function() return at end)
  for i, s in ipairs(seconds) do
    at = at + s
    -- the step's own time does not include a save after it
    p:step { step = i, loss = 1, grad_norm = 1, lr = 1e-3, time_s = 0.001, data_wait_s = 0 }
  end
  return out
end

describe("trainer.progress", function()
  it("reports steps of 19 s and 1 s in turn as 0.10 steps a second", function()
    local seconds = {}
    for i = 1, 201 do
      seconds[i] = i % 2 == 1 and 19 or 1
    end
    local out = lines(401, seconds)
    assert.is_nil(out[1]:find("steps/s", 1, true))
    for i = 21, 201 do
      local rate = tonumber(out[i]:match("(%S+) steps/s"))
      assert.near(0.1, rate, 0.011, out[i])
    end
    -- 200 steps of ten seconds
    assert.matches("  3[2-4]m%d+s left  ", out[201])
  end)

  it("counts the time between steps, but not the time before the first", function()
    local out = lines(5, { 1000, 2, 2, 50, 2 })
    assert.matches("  0%.50 steps/s  6s left", out[2])
    assert.matches("  0%.06 steps/s  18s left", out[4])
    assert.matches("  0%.07 steps/s  0s left", out[5])
  end)

  it("rewrites one line on a terminal, and appends lines to a file at intervals", function()
    local real, path = io.stdout, os.tmpname()
    local p = progress.new(3, 2, nil, function() return 0 end)
    local _ <close> = setmetatable({}, { __close = function()
      rawset(io, "stdout", real)
      os.remove(path)
    end })
    rawset(io, "stdout", io.tmpfile())
    p.live = true
    local function step(i)
      p:step { step = i, loss = i, grad_norm = 2, lr = 1e-3, data_wait_s = 0.25 }
    end
    p:date()
    p:say "begins"
    p:keep_in(path)
    step(1)
    step(2)
    p:say "saved"
    p:finish()
    p:note "for the file"
    step(3)
    p:finish()
    p:close()
    p:say "done"
    io.stdout:seek "set"
    local date, rest = "%d+%-%d+%-%d+ %d+:%d+:%d+  ", "  norm 2  lr 0.001  data wait 250.0 ms"
    assert.equal("@begins\n\r@step 1/3  loss 1.0000" .. rest .. "\27[K\r@step 2/3  loss 2.0000"
      .. rest .. "\27[K\n@saved\n\r@step 3/3  loss 3.0000" .. rest .. "\27[K\n@done\n",
      (io.stdout:read("a"):gsub(date, "@")))
    assert.equal("@begins\n@step 1/3  loss 1.0000" .. rest .. "\n@step 2/3  loss 2.0000" .. rest
      .. "\n@saved\n@for the file\n", (base.read_file(path):gsub(date, "@")))
  end)

  it("reports no time left when the last step is unknown", function()
    local last = lines(0, { 1, 2, 2 })[3]
    assert.matches("^step 3  loss", last)
    assert.is_nil(last:find(" left", 1, true))
  end)
end)
