--- The other pages, followed as by a reader: README's first hour, docs/plan.md, docs/sample.md,
-- docs/steps.md. MOONREEL_EVERY=1 runs all commands of docs/plan.md, some of which take a minute.
local base = require "moonreel.core.base"
local page = require "spec.support.page"

describe("README.md", function()
  it("leads through the first hour", function()
    -- the results of `make` and `make demo-data` already exist here
    local data = "moonreel datasets/demo/build.lua build/demo/clips &&\n"
      .. "moonreel data ingest build/demo/clips/demo.csv -o build/demo/demo.mrx &&\n"
    local done = page.follow("README.md", { programs = { "build/cpu/moonreel" },
      change = function(words)
        local before = data
        data = ""
        -- a hundred steps take a while here
        return before .. words:gsub("^build/cpu/moonreel", "moonreel"):gsub("steps=100", "steps=8")
      end })
    for _, one in ipairs(done) do
      assert.equal(0, one.exit, one.words .. ": " .. one.output)
    end
    assert.equal(10, #done)
    assert.matches("  done: step 8, loss ", done[4].output)
    assert.matches("by 2 ranks", done[8].output)
  end)
end)

describe("docs/plan.md", function()
  it("has commands that print the text below them", function()
    -- spec/lua/plan/doc_spec.lua computes the figures of the others
    local every = os.getenv "MOONREEL_EVERY"
    local done, seen = page.follow("docs/plan.md", { change = function(words)
      return (every or words:find "mlperf/" or words:find "opensora%-2") and words or ":"
    end }), 0
    for _, one in ipairs(done) do
      assert.equal(0, one.exit, one.words .. ": " .. one.output)
      if one.words:find "mlperf/" then
        for _, line in ipairs(one.below) do
          assert.is_truthy(one.output:find(line, 1, true), line .. "\n" .. one.output)
          seen = seen + 1
        end
      end
    end
    assert.equal(4, seen)
  end)
end)

describe("docs/steps.md", function()
  it("prints a row from an empty folder #slow", function()
    local done = page.follow("docs/steps.md", { change = function(words)
      return (words:gsub("steps=%d+", "steps=2 num_sampling_steps=2"))
    end })
    assert.equal(3, #done)
    for i = 1, 2 do
      assert.equal(0, done[i].exit, done[i].output)
    end
    -- two steps train nothing, so the demo's conditions fail
    assert.equal(1, done[3].exit, done[3].output)
    assert.matches("held%-out direction %d+ of 32.*result.json are in build/demo/muon%-7",
      done[3].output)
  end)
end)

describe("pages of docs/ with commands", function()
  it("are all followed by a spec", function()
    local specs = ""
    for _, name in ipairs(base.list_dir "spec/lua/docs") do
      specs = specs .. base.read_file("spec/lua/docs/" .. name)
    end
    for _, name in ipairs(base.list_dir "docs") do
      local text = name:find "%.md$" and base.read_file("docs/" .. name) or ""
      if ("\n" .. text):find "\n    moonreel " then
        assert.is_truthy(specs:find("docs/" .. name, 1, true), name)
      end
    end
  end)
end)

describe("docs/sample.md", function()
  it("has commands that lack only the released weights", function()
    local done = page.follow "docs/sample.md"
    assert.equal(4, #done)
    for _, one in ipairs(done) do
      assert.matches(": %./ckpts/[%w_.]+: no such run", one.output, one.words)
    end
  end)
end)
