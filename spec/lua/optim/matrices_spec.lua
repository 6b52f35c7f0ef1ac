--- The parameters that Muon updates, their blocks, and errors in patterns.
-- Covers: lua/moonreel/optim/matrices.lua lua/moonreel/recipe/fields/optim.lua
local matrices = require "moonreel.optim.matrices"
local pipeline = require "moonreel.models.pipeline"
local settings = require "moonreel.settings"

local function row(name, shape, more)
  local p = {name = name, shape = shape, count = shape[1] * (shape[2] or 1)}
  for key, value in pairs(more or {}) do
    p[key] = value
  end
  return p
end

local LIST = {row("blocks.0.qkv.weight", {48, 16}), row("blocks.0.qkv.bias", {48}),
  row("blocks.0.fc2.weight", {16, 64}), row("blocks.0.small.weight", {8, 16}),
  row("blocks.0.odd.weight", {16, 80}), row("blocks.1.qkv.weight", {48, 16}, {frozen = true}),
  row("blocks.0.rows.weight", {18, 128})}

local function bake(...) return settings.bake("tiny/demo", {"optim.type=muon", ...}) end

local function matrices_of(s)
  local pipe, names = pipeline.of(s, "f32"), {}
  for _, p in ipairs(pipe.params:list()) do
    names[#names + 1] = p.block > 0 and p.name or nil
  end
  return names, pipe.params
end

describe("the matrices of Muon", function()
  it("are named by patterns, and divided into square blocks", function()
    assert.same({matrices = {"blocks.0.qkv.weight", "blocks.0.fc2.weight"}, block = 256},
      matrices.choose(LIST, {"qkv", "fc2", "0%.qkv"}, 16))
  end)

  it("are refused with a proposal", function()
    for _, case in ipairs{
      {"head", 16, "optim%.muon%.parameters: 'head' names no matrix that trains; try: "},
      {"bias", 16, "'bias' names no matrix that trains"},
      {"blocks%.1", 16, "'blocks%%%.1' names no matrix that trains"},
      {"small", 16, "'blocks%.0%.small%.weight' %[8, 16%] is smaller than a block of 256 elements, "
        .. "optim%.muon%.block squared; try: patterns that leave it to AdamW, or a smaller "},
      {"odd", 16, "'blocks%.0%.odd%.weight' %[16, 80%] cannot be cut into row blocks of 256 "},
      {"rows", 32, "'blocks%.0%.rows%.weight' %[18, 128%] cannot be cut into row blocks of 1024 "
        .. "elements, optim%.muon%.block squared: expected 8 rows or a multiple; try: "},
      {"qkv", 12, "optim%.muon%.block = 12: expected a multiple of 8"},
    } do
      local ok, problem = pcall(matrices.choose, LIST, {case[1]}, case[2])
      assert.is_false(ok)
      assert.equal("MR_E_RECIPE", problem.code)
      assert.matches(case[3], problem.message)
    end
  end)

  it("are by default those of a model's blocks, which come after all else", function()
    local names, params = matrices_of(bake())
    assert.equal(42, #names)
    for _, name in ipairs(names) do
      assert.matches("^%a+_blocks%.%d+%..*%.weight$", name)
    end
    for _, p in ipairs(params:list()) do
      if not p.frozen then
        assert.equal(p.block > 0, p.offset >= params:matrices(), p.name)
        assert.equal(p.block > 0 and 128 * 128 or 0, p.block)
      end
    end
    assert.same({}, (matrices_of(settings.bake("tiny/demo", {"optim.type=adamw"}))))
  end)

  it("are reported with the recipe's line", function()
    local words = {"optim.muon.parameters=[\"^nothing\"]"}
    local ok, problem = pcall(matrices_of, bake(words[1]))
    assert.is_false(ok)
    assert.matches("'^nothing' names no matrix", problem.message, 1, true)
    assert.same({"temporal_blocks.0.mlp.fc1.weight"},
      (matrices_of(bake 'optim.muon.parameters=["temporal_blocks.0.mlp.fc1.weight"]')))
  end)

  it("get as large an update as AdamW's, or as torch's", function()
    assert.near(0.2 * 8, matrices.scale("match_rms", 16, 64), 1e-12)
    assert.near(0.2 * 8, matrices.scale("match_rms", 64, 16), 1e-12)
    assert.equal(2, matrices.scale("original", 64, 16))
    assert.equal(1, matrices.scale("original", 16, 64))
  end)
end)
