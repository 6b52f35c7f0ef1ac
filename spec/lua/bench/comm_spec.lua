local json = require "moonreel.core.json"
local run = require "spec.support.bench_run"

describe("bench comm", function()
  it("reports rates between ranks, and those of MPI's own calls when MPI is installed", function()
    local text, exit = run("comm", "--seconds", "0.01", "--bytes", "200000", "--json")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.equal(2, r.ranks)
    assert.equal(#require("moonreel.bench.comm").rows(4), #r.rows)
    for _, row in ipairs(r.rows) do
      assert.is_true(row.shared > 0 and row.plain > 0 and row.sealed > 0 and row.hidden > 0)
      assert.is_true(row.sealed_ratio > 0 and row.hidden_ratio > 0)
      assert.is_true(r.mpi_missing ~= nil or row.mpi > 0 and row.raw > 0 and row.ratio > 0)
    end
  end)
end)
