--- docs/cluster.md, followed as by a reader; both hosts are this one.
local cluster = require "spec.support.cluster"
local page = require "spec.support.page"

describe("docs/cluster.md", function()
  it("leads from a host file to a finished run, from an empty folder", function()
    local hosts <close> = cluster.new("")
    local done = page.follow("docs/cluster.md", { programs = { "printf" },
      env = ("MOONREEL_RSH='%s/rsh' OMP_NUM_THREADS=1"):format(hosts.path),
      change = function(words)
        return (words:gsub("node1", "127.0.0.1"):gsub("node2", "127.0.0.2"))
      end })
    local outputs = {}
    for i, one in ipairs(done) do
      assert.equal(0, one.exit, one.words .. ": " .. one.output)
      outputs[i] = one.output
    end
    assert.equal(13, #done)
    assert.matches("by 4 ranks", outputs[8])
    assert.matches("by 2 ranks", outputs[10])
    assert.matches("done: step 6", outputs[10])
    assert.matches("step%-0+6", outputs[11])
    assert.matches("no ranks of this run are on its hosts", outputs[12])
    assert.matches("\n127%.0%.0%.1 +0 .*\n127%.0%.0%.2 +0 ", outputs[13])
  end)
end)
