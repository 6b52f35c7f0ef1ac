local run = require "spec.support.bench_run"

describe("bench order", function()
  it("reports the cost of planning an epoch, with the aim of each line", function()
    local output, code = run("order", "--rows", "1000")
    assert.equal(0, code)
    for _, line in ipairs {"plan +[%d.]+ +ns/row +<= 50 .- 0%.1 M rows, 894 buckets",
        "plan +[%d.]+ +MB +<= 16 ", "select .- us/sample +<= 75 ", "state +[%d.]+ +kB +<= 4 ",
        "look up .- us/row +<= 4 .- 1000 rows, warm", "open .- ms +<= 1 "} do
      assert.matches("\n" .. line, output)
    end
  end)
end)
