--- Steps that vary in length on a busy machine raise no alarm. The pauses stay below the minimum of
-- the limits, as in a real run, where they are some seconds of nine.
-- Covers: lua/moonreel/life/watch.lua
local launch = require "moonreel.core.launch"
local folder = require "spec.support.folder"
local watch = require "moonreel.life.watch"

-- 10000 makes this spec longer
local STEPS <const> = tonumber(os.getenv "MOONREEL_JITTER" or 150)
local RANKS <const>, FLOOR_S <const> = 3, 1.5

local dir = folder.new()
teardown(function() dir:remove() end)

local PROGRAM = [[
  local base, core = require "moonreel.core.base", require "moonreel.core.life"
  local T, world = require "moonreel.core.tensor", require("moonreel.comm").world()
  math.randomseed(17, world:rank())
  for step = 1, %d do
    core.step(step)
    for _, phase in ipairs(require("moonreel.life.watch").phases) do
      core.phase(phase)
      local draw = math.random()
      -- many short, some long, few as long as a third of the limit
      base.sleep(draw < 0.9 and 0 or draw < 0.9995 and 0.002 or 0.5)
      if phase == "reduce" then
        world:all_reduce(T.new("f32", { 8 }))
      end
    end
  end
]]

describe("a watch", function()
  it("raises no alarm for jitter", function()
    local floors = {}
    for _, phase in ipairs(watch.phases) do
      floors[phase] = FLOOR_S
    end
    local program = dir:write("rank.lua", PROGRAM:format(STEPS))
    local running = launch.start({ "moonreel", program }, RANKS)
    local page, begun = running:page(), false
    local eye = watch.new(page, floors)
    while running:look(5) > 0 do
      begun = begun or page:rank(0).steps > 0 and page:rank(1).steps > 0 and page:rank(2).steps > 0
      for _, event in ipairs(begun and eye:look() or {}) do
        assert.equal("none", event.kind, event.text)
      end
    end
    assert.equal(0, running:ended().exit)
    assert.equal(STEPS, page:rank(0).step)
    running:close()
  end)
end)
