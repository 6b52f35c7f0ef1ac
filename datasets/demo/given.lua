--- What a model that is given a first frame is asked: to go on from it in the direction that the
-- words name. The same words with frames of other colours, and the same frames with other words,
-- tell whether it looks at both.
-- @module datasets.demo.given
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local render = require "datasets.demo.render"
local world = require "datasets.demo.world"

local given = {}

--- The sets of questions, in order.
given.sets = { "held-out", "other frame", "other text" }

-- seed of what scenes differ in besides their words; clips to train on have others
local SEED <const> = 4711

-- the name `steps` places behind another one in a list of the world, round and round
local function next_name(rows, name, steps)
  for i, row in ipairs(rows) do
    if row[1] == name then
      return rows[(i - 1 + steps) % #rows + 1][1]
    end
  end
end

-- the first frame of a scene, as a picture
local function write_frame(folder, name, scene, height, width)
  local path = ("%s/%s.png"):format(folder, name)
  data.png(path, render.frames(scene, SEED, 1, height, width), { height = height, width = width })
  return path
end

--- Questions about the held-out triples.
---@param folder string   where first frames are written
---@param height integer  of these, pixels
---@param width integer
---@return table[]  {set, prompt, asked = {colour, shape, direction, background}, reference, found,
---   clips}
function given.questions(folder, height, width)
  local out = {}
  base.make_dir(folder)
  local function add(set, i, frame, asked)
    asked.colour, asked.shape, asked.background = frame.colour, frame.shape, frame.background
    out[#out + 1] = { set = set, asked = asked, prompt = world.motion(asked, 1), found = {},
      clips = {}, reference = write_frame(folder, ("%d-%s"):format(i, frame.colour), frame, height,
        width) }
  end
  for k, set in ipairs(given.sets) do
    for i, triple in ipairs(world.held_out) do
      local frame = { id = i, colour = triple[1], shape = triple[2], direction = triple[3],
        background = world.backgrounds[(i - 1) % #world.backgrounds + 1][1] }
      if k == 2 then
        frame.colour = next_name(world.colours, frame.colour, 1 + i % (#world.colours - 1))
      end
      add(set, i, frame, { direction = k < 3 and triple[3]
        or next_name(world.directions, triple[3], 1 + i % (#world.directions - 1)) })
    end
  end
  return out
end

return given
