--- make demo-data keeps clips unchanged that a run may be reading.
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

describe("make demo-data", function()
  local dir = folder.new()
  teardown(function() dir:remove() end)

  local function make()
    local target = dir.path .. "/demo.mrx/data.sum"
    local done = process.run({ "/bin/sh", "-c", 'exec make -s "$@" 2>&1',
      "sh", "DEMO=" .. dir.path, "MOONREEL=" .. process.program(), target },
      "", { deadline_s = 600 })
    assert.equal(0, done.exit, done.output)
    local index <close> = data.open(dir.path .. "/demo.mrx")
    return index:row(1).file, index.meta.fp_order
  end

  it("draws clips once, into a folder of the version, and replaces an open index",
    function()
    local file, fingerprint = make()
    assert.matches("/clips%-%d+/", file)
    local open <close> = data.open(dir.path .. "/demo.mrx")
    -- after a touch of the script, the index is older than it
    os.execute(("touch -d 1990-01-01 '%s/demo.mrx/data.sum' '%s'"):format(dir.path, file))
    local again, same = make()
    assert.equal(file, again)
    assert.equal(fingerprint, same)
    assert.is_true(os.execute(("find '%s' ! -newermt 1991-01-01 | grep -q ."):format(file)))
    assert.equal(file, open:row(1).file)
    assert.equal(2, #base.list_dir(dir.path))
  end)
end)
