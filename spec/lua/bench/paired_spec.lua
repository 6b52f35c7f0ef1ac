describe("measurements in alternation", function()
  local paired = require "moonreel.bench.paired"

  it("call each measurement once a round, in order", function()
    local calls = {}
    local got = paired.rounds({
      function()
        calls[#calls + 1] = "a"
        return #calls
      end,
      function()
        calls[#calls + 1] = "b"
        return 2 * #calls
      end}, 0)
    assert.equal(paired.least_rounds, #got[1])
    assert.equal(("ab"):rep(paired.least_rounds), table.concat(calls))
    assert.same({1, 3, 5}, got[1])
    assert.same({4, 8, 12}, got[2])
  end)

  it("are compared within a round, so that a slow moment does not change their ratio", function()
    local slow = {1, 4, 1, 8, 2}
    local step, peak = {}, {}
    for i, by in ipairs(slow) do
      step[i], peak[i] = 6 / by, 12 / by
    end
    step[1] = 5
    assert.equal(0.5, paired.ratio(step, peak))
  end)

  it("return the median, or the mean of the two values in the middle", function()
    local list = {9, 1, 4}
    assert.equal(4, paired.median(list))
    assert.same({9, 1, 4}, list)
    assert.equal(2.5, paired.median{4, 1, 2, 3})
  end)
end)
