--- Numbers as text.
local exact = require "moonreel.text.exact"

describe("text.exact", function()
  it("has the fewest digits that identify the number", function()
    for text, x in pairs { ["5.1"] = 5.1, ["0.1"] = 0.1, ["0.30000000000000004"] = 0.1 + 0.2,
      ["1e+300"] = 1e300, ["2"] = 2.0, ["-0.3333333333333333"] = -1 / 3,
      ["9007199254740993"] = 9007199254740993, ["-9223372036854775808"] = math.mininteger } do
      assert.equal(text, exact(x))
      assert.equal(x, tonumber(exact(x)))
    end
  end)
end)
