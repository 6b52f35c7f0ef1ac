--- Do recipes fit, or why not?
local check = require "moonreel.plan.check"
local mesh = require "moonreel.plan.mesh"
local process = require "moonreel.core.process"

local ONE = { "bucket_config=recipe.replace{['144p'] = {[51] = {1.0, 8}}}", "model.depth=1" }

local function run(...)
  local done = process.run({ process.program(), "plan", ... }, "", { deadline_s = 60 })
  return done.exit, done.output
end

describe("a check", function()
  it("has a row for each stage on each mesh, and a reason where nothing can be planned", function()
    local rows = check.rows({ "opensora-1.2/lambda/tutorial", "opensora-1.2/sample", "no/such" },
      { mesh.parse "H100", mesh.parse "8xH100" }, ONE)
    local seen = {}
    for i, row in ipairs(rows) do
      seen[i] = ("%s %s %s"):format(row.stage, row.gpus, row.fits)
    end
    assert.equal("stage1 1 H100 true\nstage1 8 H100 true\nstage2 1 H100 true",
      table.concat(seen, "\n", 1, 3))
    assert.equal(7 * 2 + 2 + 1, #rows)
    assert.is_true(rows[1].total > rows[2].total)
    assert.matches("no recipe 'no/such'", rows[#rows].why)
    assert.is_nil(rows[#rows].fits)
  end)

  it("is a command that ends with 5 when one does not fit", function()
    local exit, text = run("--check", "opensora-1.2/lambda/stage1", "--gpus", "1,8", ONE[1], ONE[2])
    assert.equal(0, exit)
    assert.matches("\nopensora%-1.2/lambda/stage1 +%- +1 H100 +[%d.]+ GB +144p 51x%d+x%d+ +fits\n",
      text)
    exit, text = run("--check", "opensora-1.2/lambda/stage1", "--gpus", "1xH100",
      "bucket_config=recipe.replace{['144p'] = {[51] = {1.0, 999}}}", ONE[2])
    assert.equal(5, exit)
    assert.matches("does NOT fit", text)
    assert.matches("\non 1 H100 does NOT fit: opensora%-1.2/lambda/stage1: bucket 144p 51x%d+x%d+ "
      .. "of 999 needs .* too many %(.-%)\n  fits with any of: .*a batch of %d+ %(", text)
    exit, text = run("--check", "opensora-1.2/lambda/stage1",
      "bucket_config=recipe.replace{['77x'] = {[51] = {1.0, 1}}}")
    assert.equal(3, exit)
    assert.matches("there is no resolution of this name", text)
  end)

  it("of the recipes of Open-Sora 1.2 says that they fit where they are meant to run", function()
    local function told(gpus, names, ...)
      local seen = {}
      for i, row in ipairs(check.rows(names, { mesh.parse(gpus) }, { ... })) do
        seen[i] = ("%s %s"):format(row.recipe, row.why or row.fits)
      end
      return table.concat(seen, "\n")
    end
    -- the tutorial's stages have the tables of these three; it ran on 24 nodes of eight
    assert.equal("opensora-1.2/stage1 true\nopensora-1.2/stage3 true",
      told("24x8xH100", { "opensora-1.2/stage1", "opensora-1.2/stage3" }))
    -- on one node where attention is recomputed too
    local one = "bucket_config=recipe.replace{['1024'] = {[1] = {0.3, 36}}, ['480p'] = {[102] = "
      .. "{1.0, 3}}}"
    assert.matches("stage3 bucket 1024 1x512x2048 of 36 needs", told("8xH100",
      { "opensora-1.2/stage3" }, one))
    assert.equal("opensora-1.2/stage3 true", told("8xH100", { "opensora-1.2/stage3" }, one,
      "grad_ckpt_keep_attention=false"))
  end)
end)
