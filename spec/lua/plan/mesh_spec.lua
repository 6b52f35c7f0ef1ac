--- How many GPUs a run has, and the share of each.
local fails = require "spec.support.fails"
local mesh = require "moonreel.plan.mesh"
local settings = require "moonreel.settings"

local function demo(...)
  return settings.bake("tiny/demo", { ... })
end

describe("a mesh", function()
  it("is read from counts and a machine", function()
    for text, want in pairs { ["24x8xH100"] = { 24, 8, "H100" }, ["8xH200"] = { 1, 8, "H200" },
        h100 = { 1, 1, "H100" }, ["192"] = { 24, 8, "A100" }, ["3x4"] = { 3, 4, "A100" },
        ["16xB200"] = { 2, 8, "B200" },
        ["24X8xH100"] = { 24, 8, "H100" }, ["8XH100"] = { 1, 8, "H100" } } do
      local got = mesh.parse(text, not text:lower():find "[hb]%d" and "A100" or nil)
      assert.same(want, { got.nodes, got.gpus, got.machine.name }, text)
      assert.equal(want[1] * want[2], got.ranks)
    end
    assert.equal("24 x 8 H100", mesh.parse("24x8xH100"):text())
    assert.equal("8 H100", mesh.parse("8"):text())
  end)

  it("grows by filling nodes", function()
    for _, case in ipairs { { "2xH100", 2, 1, 4 }, { "8xH100", 2, 2, 8 }, { "4xH100", 8, 4, 8 },
        { "3x8xH100", 4, 12, 8 } } do
      local text, times, nodes, gpus = table.unpack(case)
      local got = mesh.parse(text):with({ zero = 1, sequence = 2 }):larger(times)
      assert.same({ nodes, gpus, 1, 2 }, { got.nodes, got.gpus, got.zero, got.sequence }, text)
    end
    -- one rank shares nothing; more of them share like a recipe without these fields
    assert.equal(1, mesh.parse("H100"):larger(2).zero)
  end)

  it("that is impossible is refused with what is possible", function()
    local usage = "MR_E_USAGE"
    fails(usage, "12 GPUs do not fill whole nodes; try: 8 or 16", mesh.parse, "12xH100")
    fails(usage, "try: 24x8xH100", mesh.parse, "1x2x3xH100")
    for _, text in ipairs { "0xH100", "99999999999999999999xH100", "99999999999999999999" } do
      fails(usage, "expected counts from 1 to a million", mesh.parse, text)
    end
    for _, text in ipairs { "", "8x", "24x8x", "x8", "1.5" } do
      fails(usage, ("--gpus '%s': expected NODESxGPUSxMACHINE"):format(text), mesh.parse, text)
    end
    fails(usage, "%-%-gpus 8xH100 and %-%-machine H200 both name a machine; try: %-%-gpus 8xH100, "
      .. "or %-%-gpus 8 %-%-machine H200", mesh.parse, "8xH100", "H200")
    fails(usage, "did you mean 'H100'?", mesh.parse, "8xH10")
    fails(usage, "there is no machine file './none.lua'; try: one of A100", mesh.parse,
      "8x./none.lua")
    local four = mesh.parse("4xH100")
    fails(usage, "plugin_config.sp_size=3: 4 ranks cannot be divided into groups of 3 that share "
      .. "their tokens; try: sp_size = 2 or 4", function()
      local s = demo "plugin_config.sp_size=3"
      four:of(s):check(s, 4)
    end)
    -- of 8 ranks only 2 can share 6 heads
    fails(usage, "8 ranks cannot be divided into groups of 3 that share their tokens; try: sp_size "
      .. "= 2", function()
      local s = demo "plugin_config.sp_size=3"
      mesh.parse("8xH100"):of(s):check(s, 6)
    end)
    fails(usage, "4 ranks cannot share 6 attention heads; try: sp_size = 2", function()
      local s = demo "plugin_config.sp_size=4"
      four:of(s):check(s, 6)
    end)
  end)

  it("assigns a rank its stage's share of updates and micro-steps", function()
    local eight = mesh.parse("8xH100")
    for stage, want in pairs { [0] = 1, 1 / 8, 1 / 8, 1 / 8 } do
      assert.equal(want, eight:with({ zero = stage }):share(), stage)
    end
    -- a step made for 20 ranks, of two micro-batches each
    local s = demo("virtual_ranks=20", "accumulate=2")
    assert.same({ 40, 5, false }, { eight:micros(s), eight:rounds(s), eight:keeps_gradients(s) })
    -- added up over a step if there is more than one
    local kept = "plugin_config.reduce_each=false"
    assert.is_true(eight:keeps_gradients(demo(kept, "accumulate=2")))
    assert.is_false(eight:keeps_gradients(demo(kept)))
    assert.same({ 2, 1 }, { eight:micros(demo "virtual_ranks=2"),
      eight:rounds(demo "virtual_ranks=2") })
    assert.equal(2, eight:with { sequence = 4 }.data)
  end)

  it("has the bytes that ranks send to share tokens", function()
    local s, sixteen = demo(), mesh.parse("2x8xH100"):with { sequence = 16 }
    local ring = demo("plugin_config.sequence_parallelism_mode=ring_attn")
    local both = demo("plugin_config.ulysses_size=4")
    local tokens, width = 4096, 64
    local all = tokens * width
    -- 8 B S h / P x (P - 1) / P, forward and as much backward
    assert.same({ 2 * 8 * all / 16 * 15 / 16, 0 }, { sixteen:exchange(s, 16, tokens, width) })
    local eight = mesh.parse("8xH100"):with { sequence = 8 }
    -- 4 B S h (P - 1) / P twice, and 8 B S h
    assert.same({ 2 * 4 * all * 7 / 8 + 8 * all, 0 }, { eight:exchange(ring, 16, tokens, width) })
    -- heads by 4 within nodes, whose pairs are rings, two of which pass theirs on
    assert.same({ 2 * 8 * all / 16 * 3 / 4 + 2 * (2 * 4 + 2 * 8) * all / 16,
      (2 * 4 + 2 * 8) * all / 16 }, { sixteen:exchange(both, 16, tokens, width) })
  end)

  it("takes its ZeRO stage from the recipe, or reports the assumed one", function()
    local eight = mesh.parse("8xH100")
    local got, notes = eight:of(demo())
    assert.equal(1, got.zero)
    assert.matches("does not set plugin_config.zero_stage: ZeRO 1 is assumed", notes[1])
    got, notes = eight:of(demo "plugin=zero1")
    assert.same({ 1, 0 }, { got.zero, #notes })
    got = eight:of(demo("plugin=zero2", "plugin_config.zero_stage=3"))
    assert.equal(3, got.zero)
    assert.equal(0, mesh.parse("H100"):of(demo "plugin=zero2").zero)
  end)
end)
