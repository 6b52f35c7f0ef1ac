--- A disk that cannot hold two checkpoints is reported by doctor and at the start of a run.
-- Covers: lua/moonreel/trainer/writer.lua lua/moonreel/cli/doctor.lua
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

-- Runs a command with a file system of some MB at `disk` in a folder. Returns nil when no such file
-- system can be mounted here.
local function on_disk(dir, megabytes, words)
  local done = process.run({ "/bin/sh", "-c", ("cd '%s' && mkdir -p disk && exec unshare -m sh -c "
    .. "'mount -t tmpfs -o size=%dm none disk || exit 99; \"%s\" %s' 2>&1"):format(dir.path,
      megabytes, process.program(), words) }, "", { deadline_s = 600 })
  if done.exit == 99 or done.output:find("unshare", 1, true) then
    return nil
  end
  return done.output, done.exit
end

describe("a disk that cannot hold two checkpoints", function()
  local dir
  setup(function()
    dir = folder.new()
    dir:write("small.lua", [[return recipe.extend("tiny/demo") { model = { depth = 1 },
      allow_empty_buckets = true, threads = 1, num_workers = 1 }]])
  end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  local train = ("train ./small data_path=%s steps=1 outputs=disk"):format(demo_data.path())

  it("is reported when the run begins, before its first step", function()
    local out, code = on_disk(dir, 30, train)
    if not out then
      return pending("no file system of its own can be mounted here")
    end
    assert.equal(8, code, out)
    assert.matches("disk/001%-small: [%d.]+ MiB are free, and two checkpoints of [%d.]+ MiB take "
      .. "[%d.]+ MiB: .*try: outputs=FOLDER", out)
    assert.is_nil(out:find("  step ", 1, true))
    -- on a larger disk the run trains
    out, code = on_disk(dir, 200, train)
    assert.equal(0, code, out)
  end)

  it("is reported by doctor", function()
    local out, code = on_disk(dir, 30, "doctor ./small --outputs disk")
    if not out then
      return pending("no file system of its own can be mounted here")
    end
    assert.equal(1, code, out)
    assert.matches("\nwrong +checkpoints +two of [%d.]+ MiB take [%d.]+ MiB; [%d.]+ MiB are free",
      out)
    out = on_disk(dir, 200, "doctor ./small --outputs disk")
    assert.matches("\nok +checkpoints +two of", out)
  end)
end)
