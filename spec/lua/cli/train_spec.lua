--- What `train` does before it trains: variables of the recipe, stages by name.
-- Covers: lua/moonreel/recipe/variables.lua lua/moonreel/trainer/setup.lua
-- Covers: lua/moonreel/trainer/samples.lua
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"

describe("train", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  local function train(text, before)
    local recipe = dir:write("mine.lua", text)
    return folder.moonreel(("train '%s' data_path='%s' outputs='%s' model.depth=1 steps=1"):format(
      recipe, demo_data.path(), dir.path .. "/out"),
      before)
  end

  it("starts itself again with the recipe's variables, unless the environment has them", function()
    local text = 'return recipe.extend("tiny/demo") { env = { OMP_NUM_THREADS = "3" } }'
    local output, errors, code = train(text, "unset OMP_NUM_THREADS;")
    assert.equal(0, code, errors)
    assert.matches(", 3 threads%)", output)
    assert.matches(", 1 threads%)", (train(text, "OMP_NUM_THREADS=1")))
  end)

  it("refuses stages that set different values of one variable", function()
    local text = [[return recipe { stages = { { name = "a", recipe = "tiny/demo", env = { OMP_PROC_BIND = "true" } },
      { name = "b", recipe = "tiny/demo", env = { OMP_PROC_BIND = "close" } } } }]]
    local _, errors, code = train(text)
    assert.equal(3, code)
    assert.matches('stages a and b set env.OMP_PROC_BIND to "true" and "close", but one process '
      .. 'trains both', errors)
  end)

  it("resumes a run by its folder in any place, and reports what ends it", function()
    assert.equal(0, select(3, train 'return recipe.extend("tiny/demo") { name = "folder" }'))
    local home = demo_data.run_dir(dir.path .. "/out", "folder")
    local output, errors, code = folder.moonreel("train " .. home)
    assert.equal(0, code, errors)
    assert.matches("done: step 1, all steps were done before; to continue: moonreel train "
      .. home:gsub("%p", "%%%0") .. " steps=N, with N above 1, or more epochs\n", output)
    assert.is_true(os.rename(home, dir.path .. "/moved"))
    output, errors, code = folder.moonreel("train ./moved steps=2", ("cd '%s' &&"):format(dir.path))
    assert.equal(0, code, errors)
    assert.matches("done: step 2, loss [%d.]+, %./moved\n", output)
    -- killed before its first checkpoint
    os.execute(("rm -rf '%s/moved/ckpt'"):format(dir.path))
    errors, code = select(2, folder.moonreel("train moved", ("cd '%s' &&"):format(dir.path)))
    assert.equal(2, code)
    assert.matches("run moved has no checkpoint yet; try: its recipe.lua, which begins a new run: "
      .. "moonreel train moved/recipe.lua", errors)
  end)

  it("finds a relative data_path of a run that resumes in another folder, or names both", function()
    local data = demo_data.path():match "^(.*)/"
    local function from(place, words)
      return folder.moonreel("train " .. words, ("cd '%s' &&"):format(place))
    end
    local _, errors, code = from(data, ("tiny/demo name=far data_path=demo.mrx outputs='%s/out' "
      .. "model.depth=1 steps=1"):format(dir.path))
    assert.equal(0, code, errors)
    assert.is_true(os.rename(demo_data.run_dir(dir.path .. "/out", "far"), dir.path .. "/far"))
    for step = 2, 3 do
      errors, code = select(2, from(dir.path, "./far steps=" .. step))
      assert.equal(0, code, errors)
    end
    errors, code = select(2, from(dir.path, "./far steps=4 data_path=none.mrx"))
    assert.equal(4, code, errors)
    assert.is_truthy(errors:find(("'none.mrx' is neither here, in %s, nor where the run began, in "
      .. "%s; try: data_path=PATH"):format(dir.path, data), 1, true), errors)
  end)

  it("repeats the command line of a run that it resumes, and reports that", function()
    dir:write("mine.lua", 'return recipe.extend("tiny/demo") { model = { depth = 1 } }')
    local function launch(words)
      return folder.moonreel(("train '%s/mine.lua' outputs='%s/again' %s"):format(dir.path,
        dir.path, words))
    end
    local _, errors, code = launch(("data_path='%s' steps=1 lr=0.25"):format(demo_data.path()))
    assert.equal(0, code, errors)
    assert.is_nil(errors:find("started with", 1, true))
    local output
    output, errors, code = launch("--load latest steps=2")
    assert.equal(0, code, errors)
    assert.matches("note: the run that is continued was started with data_path=%S+ lr=0%.25, which "
      .. "apply again; arguments given now win\n", errors)
    assert.matches("done: step 2,", output)
    output = launch("--load latest steps=3 lr=0.5")
    assert.matches("optim%.lr: 0%.25 when the checkpoint was made, 0%.5 now by lr=0%.5", output)
  end)
end)
