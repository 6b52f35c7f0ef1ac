--- The reference's recipe language: verdicts over a committed part of its cases.
local base = require "moonreel.core.base"
local cases = require "moonreel.golden.config_cases"

local function recorder()
  return { count = 0, bad = {}, exact = function(self, name, differing)
    self.count = self.count + 1
    if differing > 0 then
      table.insert(self.bad, name)
    end
  end }
end

describe("config_cases", function()
  it("all have the verdict of the table", function()
    local result = recorder()
    cases.run(base.read_file("spec/golden/recipes/config_cases.json"), result)
    assert.equal("", table.concat(result.bad, "\n"))
    assert.equal(226, result.count)
  end)

  it("fail when a value, an error or a twin is another", function()
    local text = base.read_file("spec/golden/recipes/config_cases.json")
    local function bad(from, to)
      local at, stop = text:find(from, 1, true)
      local result = recorder()
      cases.run(text:sub(1, at - 1) .. to .. text:sub(stop + 1), result)
      return result.bad
    end
    assert.same({ "convert  5 : another value, and no verdict says why" },
      { bad('"value": 5', '"value": 6')[1] })
    assert.equal(1, #bad('"5e-5"', '"5e-6"'))
    assert.equal(1, #bad('"config": "cfg.py"', '"config": "other.py"'))
  end)
end)
