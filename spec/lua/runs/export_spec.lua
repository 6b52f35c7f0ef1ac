--- The curve of a run for other programs.
local csv = require "moonreel.text.csv"
local export = require "moonreel.runs.export"
local json = require "moonreel.core.json"

describe("the curve of a run as a table", function()
  local function written(f, steps)
    local texts = {}
    f(steps, function(text) texts[#texts + 1] = text end)
    return table.concat(texts)
  end

  local steps = {
    { kind = "step", step = 1, loss = 0.1, lr = 1e-5, weight = 4.0, wall = 12.5,
      gpu = { power_w = 71.25 } },
    { kind = "skip", step = 2, reason = 'loss nan, "really"', even = true },
    { kind = "step", step = 3, loss = 1 / 3 },
  }

  it("has a row for each step, known columns first, and the shortest form of numbers", function()
    assert.equal("step,loss,lr,wall,even,gpu.power_w,kind,reason,weight\n"
      .. "1,0.1,1e-05,12.5,,71.25,step,,4\n"
      .. '2,,,,true,,skip,"loss nan, ""really""",\n'
      .. "3,0.3333333333333333,,,,,step,,\n", written(export.csv, steps))
  end)

  it("is read back to the same numbers", function()
    local rows = csv.rows(written(export.csv, steps), "t")
    assert.equal(1 / 3, tonumber(rows[3].loss))
    assert.equal('loss nan, "really"', rows[2].reason)
    local lines = {}
    for line in written(export.json, steps):gmatch("[^\n]+") do
      lines[#lines + 1] = json.decode(line)
    end
    assert.same({ kind = "step", step = 1, loss = 0.1, lr = 1e-5, weight = 4, wall = 12.5,
      ["gpu.power_w"] = 71.25 }, lines[1])
    assert.equal(1 / 3, lines[3].loss)
    assert.is_nil(lines[2].loss)
  end)

  it("repeats in each row a field that did not change", function()
    assert.equal("step,loss,even\n1,0.5,8\n2,0.5,8\n3,,8.25\n4,0.5,true\n5,0,true\n6,-0,\n",
      written(export.csv, { { step = 1, loss = 0.5, even = 8 },
        { step = 2, loss = 0.5, even = 8.0 }, { step = 3, even = 8.25 },
        { step = 4, loss = 0.5, even = true },
        { step = 5, loss = 0.0, even = true }, { step = 6, loss = -0.0 } }))
  end)

  it("has null for numbers that JSON lacks, and no rows without steps", function()
    local odd = { { step = 1, loss = 0 / 0, lr = math.huge } }
    assert.equal('{"step":1,"loss":null,"lr":null}\n', written(export.json, odd))
    assert.matches("^step,loss,lr\n1,%-?nan,inf\n$", written(export.csv, odd))
    assert.equal("", written(export.json, {}))
    assert.equal("\n", written(export.csv, {}))
  end)
end)
