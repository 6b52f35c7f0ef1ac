--- Conditions that select runs.
local filter = require "moonreel.runs.filter"

describe("a condition on runs", function()
  local tree = { optim = { lr = 1e-3, fused = true }, model = { type = "STDiT3" },
    seed = 7, bucket_config = { ["240p"] = { ["16"] = { 1.0, 4 } } } }
  local row = { name = "001-demo", state = "running", step = 12, loss = 0.5 }

  local function holds(word) return filter.holds(filter.read(word), row, tree) end

  it("is a name followed by an operator", function()
    for _, word in ipairs { "lr=1", "optim.lr>=2", "a.b-c!=x", "state=running" } do
      assert.is_true(filter.is(word))
    end
    for _, word in ipairs { "outputs", "../x", "001-a", "=3", "" } do
      assert.is_false(filter.is(word))
    end
  end)

  it("compares fields of the recipe, by all of their names", function()
    for word, want in pairs { ["optim.lr=1e-3"] = true, ["optim.lr=0.001"] = true,
      ["lr=1e-3"] = true, ["optim.lr==2e-3"] = false, ["optim.lr!=2e-3"] = true,
      ["optim.lr>1e-4"] = true, ["optim.lr>1e-3"] = false, ["optim.lr>=1e-3"] = true,
      ["optim.lr<1e-3"] = false, ["optim.lr<=1e-3"] = true, ["model.type=STDiT3"] = true,
      ["model.type~DiT"] = true, ["model.type~Dot"] = false, ["seed=7"] = true,
      ["load=none"] = true, ["load!=none"] = false, ["load>1"] = false } do
      assert.equal(want, holds(word), word)
    end
  end)

  it("compares columns of the list", function()
    for word, want in pairs { ["state=running"] = true, ["state!=running"] = false,
      ["name~demo"] = true, ["step>=12"] = true, ["loss<0.5"] = false, ["total=none"] = true,
      ["total>3"] = false } do
      assert.equal(want, holds(word), word)
    end
  end)

  it("is false for a run without settings, but not for one that lacks the field", function()
    assert.is_false(filter.holds(filter.read "seed=7", row, nil))
    assert.is_true(filter.holds(filter.read "seed!=7", row, nil))
  end)

  it("refuses unknown fields and values without an order", function()
    for word, says in pairs { ["optim.lrr=1"] = "runs: optim.lrr=1: optim.lrr is not a field, did "
      .. "you mean 'optim.lr'%?; try: moonreel help fields, or one of name, state",
      ["stat=x"] = "did you mean 'state'",
      ["seed>seven"] = "runs: seed>seven: expected a number after >, got 'seven'",
      ["seed!7"] = "'seed!7' is not a condition; expected FIELD=VALUE" } do
      local _, problem = pcall(filter.read, word)
      assert.matches(says, tostring(problem))
      assert.equal(2, problem.exit)
    end
  end)
end)
