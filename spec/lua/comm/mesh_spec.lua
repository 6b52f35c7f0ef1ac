--- How ranks are arranged, and warnings about slow arrangements.
-- Covers: lua/moonreel/comm/mesh.lua
local fails = dofile "spec/support/fails.lua"
local mesh = require "moonreel.comm.mesh"

-- a team that has groups and nothing else
local function team(size)
  local group = { split = function() return { op_group = function() return 1 end } end,
    size = function() return 4 end, rank = function() return 0 end }
  return { size = size, rank = 0, world = { split = function() return group end } }
end

local function crosses(config, size, heads, here)
  return mesh.new({ plugin_config = config }, team(size), heads, here).crosses
end

describe("a mesh", function()
  it("warns when hosts exchange heads, and proposes how to keep heads within a host", function()
    local report = crosses({ sp_size = 4 }, 8, 4, 2)
    assert.equal("4 ranks exchange heads, and a host has 2: tokens cross the network in every "
      .. "attention; try: plugin_config.ulysses_size = 2, so that the 4 ranks pass keys "
      .. "between hosts in a ring", report)
    assert.is_nil(crosses({ sp_size = 4 }, 8, 4, 4))
    assert.is_nil(crosses({ sp_size = 4 }, 8, 4, 8))
    assert.is_nil(crosses({ sp_size = 4 }, 8, 4, nil))
    assert.is_nil(crosses({ sp_size = 4, ulysses_size = 2 }, 8, 4, 2))
    assert.is_nil(crosses({ sp_size = 4, sequence_parallelism_mode = "ring_attn" }, 8, 4, 2))
    -- groups of four span hosts of six ranks
    assert.matches("try: plugin_config%.ulysses_size = 2", crosses({ sp_size = 4 }, 12, 4, 6))
  end)

  it("keeps a ring within a host when its ranks fit there", function()
    local function shape(config, ranks, here)
      local laid = mesh.shape({ plugin_config = config }, ranks, 4, here)
      return { laid.heads, laid.inner, laid.outer }
    end
    local ring = { sp_size = 8, sequence_parallelism_mode = "ring_attn" }
    assert.same({ 1, 8, 1 }, shape(ring, 8, nil))
    assert.same({ 1, 4, 2 }, shape(ring, 8, 4))
    assert.same({ 1, 2, 4 }, shape(ring, 8, 6))
    assert.same({ 2, 2, 2 }, shape({ sp_size = 8, ulysses_size = 2 }, 8, 4))
    assert.same({ 4, 1, 2 }, shape({ sp_size = 8, ulysses_size = 4 }, 8, 4))
  end)

  it("proposes the nearest sizes that divide its ranks and its heads", function()
    local function refused(text, ranks, heads, ...)
      local settings = require("moonreel.settings").bake("recipes/tiny/demo", { ... })
      fails("MR_E_USAGE", text, mesh.shape, settings, ranks, heads)
    end
    -- 3 and 6 divide the ranks, but not the heads
    refused("6 ranks cannot be divided into groups of 4 [^\n]*try: sp_size = 2$", 6, 4,
      "plugin_config.sp_size=4")
    refused("try: sp_size = 3 or 6$", 6, 4, "plugin_config.sp_size=4",
      "plugin_config.sequence_parallelism_mode=ring_attn")
    refused("8 ranks cannot share 4 attention heads; try: sp_size = 4, or ", 8, 4,
      "plugin_config.sp_size=8")
    refused("8 ranks that share tokens cannot be divided into groups of 3 that exchange heads; "
      .. "try: ulysses_size = 2 or 4", 8,
      4, "plugin_config.sp_size=8", "plugin_config.ulysses_size=3")
    -- tensor parallelism and pipeline parallelism
    refused("plugin_config%.tp_size=3: 8 ranks cannot be divided into groups of tp_size = 3 that "
      .. "share their layers; try: tp_size = 2 or 4$", 8, 4, "plugin_config.tp_size=3")
    refused("4 ranks for each of tp_size = 2 cannot be divided into groups of 8 that share their "
      .. "tokens; try: sp_size = 2$", 8, 4, "plugin_config.tp_size=2", "plugin_config.sp_size=8")
    refused("pp_size = 2: no ranks share the depth; they share layers %(tp_size%), tokens "
      .. "%(sp_size%) and state %(zero_stage%); try: pp_size = 1, with plugin_config.zero_stage = "
      .. "3, or plugin_config.tp_size within a host$", 1, 4, "plugin_config.pp_size=2")
  end)

  it("refuses layers that the ranks cannot share, and proposes what works", function()
    local function refused(text, ...)
      local settings = require("moonreel.settings").bake(...)
      fails("MR_E_USAGE", text, mesh.split, settings, 0)
    end
    refused("plugin_config%.tp_size=8: tp_size = 8: 8 ranks cannot share 4 attention heads "
      .. "%(num_heads%) of model%.type = flux; try: tp_size = 4$", "opensora-2.0/train/stage1", {
        "plugin_config.tp_size=8", "model.num_heads=4" })
    refused("tp_size = 5: 5 ranks cannot share 16 attention heads [^\n]* try: tp_size = 4 or 8$",
      "opensora-1.2/stage1", { "plugin_config.tp_size=5" })
    -- 1152 channels are 72 times 16
    refused("tp_size = 16: 16 ranks cannot share 72 groups of 16 channels %(hidden_size, linear = "
      .. "f8%) of model%.type = STDiT3%-XL/2; try: tp_size = 8$", "opensora-1.2/stage1", {
        "plugin_config.tp_size=16", "model.linear=f8" })
    refused("tp_size = 2: ranks cannot share layers of model%.type = dc_ae, only those of STDiT3, "
      .. "STDiT3%-3B/2, STDiT3%-XL/2, flux; try: tp_size = 1, with plugin_config.zero_stage = 3$",
      "opensora-2.0/vae/train_dc_ae", { "plugin_config.tp_size=2" })
    refused("tp_size = 2: optim%.type = muon updates whole matrices, [^\n]*; try: tp_size = 1 with "
      .. "plugin_config.zero_stage = 3, or optim.type = adamw$", "opensora-1.2/stage1", {
        "plugin_config.tp_size=2", "optim.type=muon" })
  end)

  it("gives two groups that communicate at the same time a lane each", function()
    local lanes = {}
    local comm = { size = function() return 8 end, split = function(_, _, how)
      lanes[#lanes + 1] = how.lane
      return { op_group = function() return 1 end }
    end }
    require("moonreel.nn.sequence").new { heads = 2, inner = 2, outer = 2, comm = comm }
    -- from ring to ring; within a ring; heads
    assert.same({ 1, 0, 0 }, lanes)
  end)
end)
