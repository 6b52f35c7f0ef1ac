--- What a user sees when something is wrong, and that nothing half-written remains.
local base = require "moonreel.core.base"
local demo_data = require "spec.support.demo_data"
local folder = require "spec.support.folder"

describe("moonreel train", function()
  local dir
  setup(function()
    dir = folder.new()
    dir:write("small.lua", ([[return recipe.extend("tiny/demo") { dataset = { data_path = "%s" }, outputs = "%s/out",
      steps = 4, warmup_steps = 2, ckpt_every = 2 }]]):format(demo_data.path(), dir.path))
  end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  -- runs it; gives all it said and the exit code
  local function train(recipe, words, before)
    local out, err, code = folder.moonreel(("train '%s/%s.lua' %s"):format(dir.path,
      recipe, words or ""), before)
    return out .. err, code
  end

  it("refuses a bucket that no sample fits, with what removed the rows", function()
    dir:write("long.lua", 'return recipe.extend("./small") {\n  bucket_config = { ["32px"] = { '
      .. '[500] = { 1.0, 2 } } } }')
    local text, code = train("long")
    assert.equal(4, code, text)
    assert.matches("long%.lua:2: bucket_config%.32px%[500%]: no sample fits; what removed them:\n  "
      .. "300 rows: shorter", text)
    assert.matches("try: leave it out", text)
    assert.is_false(base.exists(dir.path .. "/out/001-long"))
  end)

  it("stops with 8 when no checkpoint finds room, three saves in a row", function()
    -- a limit on the length of files stands for a full disk
    local text, code = train("small", "name=full steps=20", "trap '' XFSZ; ulimit -f 40000;")
    assert.equal(8, code, text)
    assert.matches("save of step 2: ", text)
    assert.matches(
      "no checkpoint was committed in 3 saves in a row; the last one: .*File too large", text)
    for _, name in ipairs(base.list_dir(dir.path .. "/out/001-full/ckpt")) do
      assert.is_nil(name:match("step"), name)
    end
  end)

  it("takes the older checkpoint when the newest is cut off, and says so", function()
    local text, code = train("small", "name=cut")
    assert.equal(0, code, text)
    local run = dir.path .. "/out/002-cut"
    local newest = run .. "/ckpt/step-000000000004"
    os.execute(("truncate -s -100 '%s/r00000-of-00001.safetensors'"):format(newest))
    -- asked for by name it is refused
    text, code = train("small", ("name=cut load='%s@4'"):format(run))
    assert.equal(8, code, text)
    assert.matches("has %d+ bytes, the manifest says %d+\n  try: another step; moonreel ckpt ls ",
      text)
    local shown = select(2, folder.moonreel(("sample '%s/small.lua' load='%s' --prompt x --steps 1 "
      .. "--out '%s/clips'"):format(dir.path, run, dir.path)))
    assert.matches("note: checkpoint step 4 passed over", shown)
    text, code = train("small", "name=cut load=latest steps=6")
    assert.equal(0, code, text)
    assert.matches("checkpoint step 4 passed over and set aside as %.bad%-", text)
    assert.matches("continues .*step%-000000000002 at step 2", text)
    assert.same({ 6, 4, 2 }, require("moonreel.ckpt").steps(run))
  end)
end)
