--- How ranks are laid out, and what is said of layouts that cost more than they need.
-- Covers: lua/moonreel/comm/mesh.lua
local mesh = require "moonreel.comm.mesh"

-- a team that is asked for nothing but its groups
local function team(size)
  local group = { split = function() return { rows = function() return 1 end } end,
    size = function() return 4 end, rank = function() return 0 end }
  return { size = size, rank = 0, world = { split = function() return group end } }
end

local function crosses(config, size, heads, here)
  return mesh.new({ plugin_config = config }, team(size), heads, here).crosses
end

describe("a mesh", function()
  it("says when heads are exchanged between hosts, and what keeps them within", function()
    local told = crosses({ sp_size = 4 }, 8, 4, 2)
    assert.equal("4 ranks exchange heads, and a host has 2: tokens cross the network in every "
      .. "attention; try: plugin_config.ulysses_size = 2, and the rest of 4 passes keys on", told)
    assert.is_nil(crosses({ sp_size = 4 }, 8, 4, 4))
    assert.is_nil(crosses({ sp_size = 4 }, 8, 4, 8))
    assert.is_nil(crosses({ sp_size = 4 }, 8, 4, nil))
    assert.is_nil(crosses({ sp_size = 4, ulysses_size = 2 }, 8, 4, 2))
    assert.is_nil(crosses({ sp_size = 4, sequence_parallelism_mode = "ring_attn" }, 8, 4, 2))
    -- groups of four lie across hosts of six
    assert.matches("try: plugin_config%.ulysses_size = 2", crosses({ sp_size = 4 }, 12, 4, 6))
  end)
end)
