--- Progress of long work on a fake clock.
local progress = require "moonreel.cli.progress"

local function recorder()
  local parts = {}
  return { write = function(_, ...) for _, text in ipairs { ... } do parts[#parts + 1] = text end end, flush = function() end,
    text = function() return table.concat(parts) end }
end

describe("progress", function()
  it("rewrites one line on a terminal, not more often than asked", function()
    local out, now = recorder(), 0
    local p = progress.new { total = 100, terminal = true, out = out, now = function() return now end }
    now = 1
    p:update(10, { { "loss", 0.5, "%.3f" }, { "data", nil } })
    now = 1.05
    p:update(11)
    now = 2
    p:update(20, { { "loss", 0.25, "%.3f" } })
    p:note("saved")
    p:close()
    assert.equal("\r\27[Kstep 10/100  loss 0.500  10.00 step/s  left 9.0 s\r\27[Kstep 20/100  loss 0.250  10.00 step/s  left 8.0 s\r\27[Ksaved\n", out.text())
  end)

  it("writes plain lines elsewhere, the last one in any case", function()
    local out, now = recorder(), 0
    local p = progress.new { total = 3, done = 1, unit = "clip", terminal = false, out = out, now = function() return now end, plain_s = 10 }
    p:update(1)
    now = 5
    p:update(2)
    now = 6
    p:update(3)
    p:close()
    assert.equal("clip 1/3\nclip 3/3  3.00 s/clip  left 0.0 s\n", out.text())
  end)

  it("tells time as people do", function()
    assert.same({ "0.4 s", "0:42", "2:03", "1:01:01", "-" }, { progress.time_text(0.4), progress.time_text(42), progress.time_text(123),
      progress.time_text(3661), progress.time_text(math.huge) })
  end)
end)
