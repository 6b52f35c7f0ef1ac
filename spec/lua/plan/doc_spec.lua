--- docs/plan.md has commands that exist, with the figures that they print.
local base = require "moonreel.core.base"
local command = require "moonreel.cli.plan"
local compiled = require "moonreel.plan.compiled"
local course = require "moonreel.plan.course"
local mesh = require "moonreel.plan.mesh"
local plan = require "moonreel.plan"
local settings = require "moonreel.settings"
local show = require "moonreel.plan.show"
local words = require "moonreel.settings.words"

-- why a step of Open-Sora 2.0's stage 1 takes so long
local function why_stage1()
  local of = mesh.parse "28x8xH200"
  local cache <close> = compiled.new(of.machine)
  local p = plan.of(settings.bake("opensora-2.0/train/stage1",
    { "bucket_config=recipe.replace{['256px']={[129]={1.0,3}}}" }), { mesh = of, compiled = cache })
  return show.why(p, p.buckets[1])
end

-- MLPerf's FLUX.1
local function yardstick(gpus)
  local of, s = mesh.parse(gpus), settings.bake "mlperf/flux1"
  local cache <close> = compiled.new(of.machine)
  local p = plan.of(s, { mesh = of, compiled = cache })
  p.course = course.of(p, s, {})
  return show.text(p)
end

-- clips through the causal autoencoder of Open-Sora 2.0
local function reconstruction()
  local of = mesh.parse "H100"
  local cache <close> = compiled.new(of.machine)
  return show.text(plan.of(settings.bake "opensora-2.0/vae/hunyuan",
    { mesh = of, compiled = cache }))
end

describe("docs/plan.md", function()
  it("uses only words that the command accepts", function()
    local seen = 0
    for line in base.read_file("docs/plan.md"):gmatch("moonreel plan ([^\n`]+)") do
      local list = {}
      for word in line:gmatch("%S+") do
        list[#list + 1] = word
      end
      assert.has_no.errors(function() words.parse(list, command) end, line)
      seen = seen + 1
    end
    assert.is_true(seen >= 7, seen)
  end)

  it("shows what the command prints today", function()
    local of, plans = mesh.parse "24x8xH100", {}
    local cache <close> = compiled.new(of.machine)
    for i = 1, 7 do
      local stage = "stage" .. i
      local one = settings.bake("opensora-1.2/lambda/tutorial", {}, { stage = stage })
      local p = plan.of(one, { mesh = of, compiled = cache })
      p.stage, p.course = stage, course.of(p, one, { stage = stage })
      plans[i] = p
    end
    local third = plans[3]
    local slowest = third.buckets[1]
    for _, b in ipairs(third.buckets) do
      slowest = b.seconds.step > slowest.seconds.step and b or slowest
    end
    local text, doc = show.stages(plans) .. show.text(third) .. show.why(third, slowest)
      .. why_stage1() .. yardstick "8x8xH100" .. yardstick "8xH100" .. reconstruction(),
      base.read_file "docs/plan.md"
    local seen = 0
    for line in doc:gmatch "\n    ([^\n]+)" do
      if not line:find "^moonreel " then
        assert.is_truthy(text:find(line:gsub(" %.%.%.$", ""), 1, true), line)
        seen = seen + 1
      end
    end
    assert.is_true(seen > 15, seen)
    -- sentences
    local steps, hours = 0, 0
    for i = 1, 3 do
      steps, hours = steps + plans[i].course.steps, hours + plans[i].course.gpu_hours
    end
    local prose = doc:gsub("\n", " ")
    local function report(form, ...)
      assert.is_truthy(prose:find(form:format(...), 1, true), form:format(...))
    end
    report("%s steps of the first three", show.count(steps))
    report("are %s hours, %.0f %% below the 18,000", show.count(steps * 12 * 192 / 3600),
      100 * (1 - steps * 12 * 192 / 3600 / 18000))
    report("need %s GPU hours for the first three stages", show.count(hours))
    local b, kept = third.largest.bytes, 0
    for _, one in ipairs(third.largest.live) do
      kept = kept + (one.purpose == "kept" and one.block ~= "" and one.bytes or 0)
    end
    report("%.1f GB of weights, %.0f GB of encoders and %.1f GB while they work, %.0f GB for",
      b.weights / 1e9, b.encoders / 1e9, b.encoding / 1e9, b.reserve / 1e9)
    report("and %.0f GB of activations, of which %.0f GB are what blocks keep", b.arena / 1e9,
      kept / 1e9)
    report("Another %.0f GB are inputs", b.slots / 1e9)
  end)

  it("has the parts of the published step as --published has them", function()
    local rows, yard, doc = {}, {}, base.read_file "docs/plan.md"
    for _, row in ipairs(require("moonreel.bench.formulas").rows()) do
      rows[#rows + 1] = row.run:find "a step of 129 frames" and row or nil
      yard[#yard + 1] = row.run:find "MLPerf" and row or nil
    end
    for i, part in ipairs { "products, 46 of 57 blocks recomputed",
        "attention, whose results blocks keep", "norms, gates, rotations: what goes by memory",
        "clips and captions encoded" } do
      local line = ("| %s | %.2f s | %.2f s |"):format(part, rows[i].published, rows[i].planned)
      assert.is_truthy(doc:find(line, 1, true), line)
    end
    assert.is_truthy(doc:find(("in our graph it takes %.1f"):format(yard[1].planned), 1, true))
    assert.is_truthy(doc:find(("are planned at %.0f,"):format(yard[2].planned), 1, true))
    for _, line in ipairs { ("nothing hides | - | %.2f s |"):format(rows[5].planned),
        ("all of a step | 4.84 s | %.2f s |"):format(rows[6].planned),
        ("outside a step | 5.4 s | %.1f s |"):format(10.2 - rows[6].planned) } do
      assert.is_truthy(doc:find(line, 1, true), line)
    end
  end)
end)
