--- Merges the rings of ranks and finds the first call in which they differ.
local rings = require "moonreel.life.rings"

-- a log: "all_reduce:64" ended, "barrier!" in progress; group 0 unless "@3" follows
local function log(text, from)
  local list, seq, clock = {}, {}, from or 0
  for word in text:gmatch "%S+" do
    local kind, count, group, open = word:match "^([%a_]+):?(%d*)@?(%d*)(!?)$"
    group, clock = tonumber(group) or 0, clock + 1
    seq[group] = (seq[group] or -1) + 1
    list[#list + 1] = { number = #list + 1, group = group, seq = seq[group], kind = kind,
      count = tonumber(count) or 0, dtype = "f32", began_s = clock, where = "train.lua:" .. clock,
      ended_s = open == "" and clock + 0.5 or nil }
  end
  return list
end

describe("rings of ranks", function()
  it("have no difference when they are alike, also when old calls were overwritten", function()
    assert.is_nil(rings.first_difference { [0] = log "barrier all_reduce:4!",
      [1] = log "barrier all_reduce:4!" })
    local short = log "barrier all_reduce:4!"
    table.remove(short, 1)
    assert.is_nil(rings.first_difference { [0] = log "barrier all_reduce:4!", [1] = short })
    assert.is_nil(rings.first_difference {})
  end)

  it("name the rank that left a call out", function()
    local found = rings.first_difference { [0] = log "barrier all_reduce:64!",
      [1] = log "all_reduce:64!", [2] = log "barrier all_reduce:64!" }
    assert.equal(1, found.rank)
    assert.equal("rank 1 makes all_reduce 0 (64 f32) at train.lua:1, where others make barrier 0",
      rings.describe(found))
  end)

  it("name the rank with another count", function()
    local found = rings.first_difference { [3] = log "all_reduce:64!", [4] = log "all_reduce:64!",
      [5] = log "all_reduce:63!" }
    assert.equal(5, found.rank)
    assert.matches("makes all_reduce 0 %(63 f32%) .*others make all_reduce 0 %(64 f32%)",
      rings.describe(found))
  end)

  it("name the rank for which the others wait", function()
    local found = rings.first_difference { [0] = log "barrier@0 all_reduce:8@7!",
      [1] = log "barrier@0 all_reduce:8@7!", [2] = log "barrier@0 all_reduce:8@7 barrier@0!" }
    assert.equal(0, found.rank) -- rank 2 is in a later call of group 0 than rank 0
    found = rings.first_difference { [0] = log "barrier barrier!", [1] = log "barrier",
      [2] = log "barrier barrier!" }
    assert.same({ 1, true }, { found.rank, found.late })
    assert.equal("rank 1 has not reached barrier 1, in which other ranks wait; its last call was "
      .. "barrier 0 at train.lua:1", rings.describe(found))
  end)

  it("do not count ranks outside a group as late", function()
    assert.is_nil(rings.first_difference { [0] = log "barrier@1!", [1] = log "barrier@2!" })
  end)
end)
