--- docs/cluster.md by copy and paste: every line of its blocks is run, in order, in one folder;
-- both hosts are this one.
local base = require "moonreel.core.base"
local cluster = require "spec.support.cluster"
local demo_data = dofile "spec/support/demo_data.lua"
local process = require "moonreel.core.process"

describe("docs/cluster.md", function()
  local dir
  setup(function() dir = cluster.new("") end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  it("leads from a host file to a finished run", function()
    local ran, outputs = 0, {}
    -- a small model of the same name
    dir:write("demo.lua", "return recipe.extend('tiny/demo') { model = { depth = 1 } }")
    local bin = process.program():match("^(.*)/")
    for line in base.read_file("docs/cluster.md"):gmatch("\n    ([^\n]+)") do
      local words = line:gsub("node1", "127.0.0.1"):gsub("node2", "127.0.0.2")
        :gsub("demo%.mrx", demo_data.path()):gsub("tiny/demo", "./demo")
      local done = process.run({ "/bin/sh", "-c", ("cd '%s' && PATH=%s:$PATH "
        .. "MOONREEL_RSH='%s/rsh' OMP_NUM_THREADS=1 && export PATH MOONREEL_RSH OMP_NUM_THREADS\n"
        .. "{ %s\n} 2>&1"):format(dir.path, bin, dir.path, words) }, "", { deadline_s = 600 })
      assert.equal(0, done.exit, line .. ": " .. done.output)
      ran, outputs[ran + 1] = ran + 1, done.output
    end
    assert.equal(11, ran)
    assert.matches("by 4 ranks", outputs[6])
    assert.matches("by 2 ranks", outputs[8])
    assert.matches("done: step 6", outputs[8])
    assert.matches("step%-0+6", outputs[9])
    assert.matches("no ranks of this run are on its hosts", outputs[10])
    assert.matches("\n127%.0%.0%.1 +0 .*\n127%.0%.0%.2 +0 ", outputs[11])
  end)
end)
