--- What the demo's little world holds: things, captions, and which combinations are never shown in
-- training. The stream starts here: world -> render -> build (files, CSV) -> index. Nothing here
-- knows pixels or files.
-- @module datasets.demo.world
local base = require "moonreel.core.base"

local world = {}

--- Name -> sRGB, in the order used by tables. Hues stand 60 degrees apart.
world.colours = {
  { "red", { 222, 40, 40 } }, { "yellow", { 228, 216, 40 } }, { "green", { 36, 190, 60 } },
  { "cyan", { 40, 206, 216 } }, { "blue", { 48, 72, 226 } }, { "magenta", { 214, 48, 206 } },
}
world.shapes = { "circle", "square", "triangle" }
--- Name -> unit step (x to the right, y downwards).
world.directions = { { "right", { 1, 0 } }, { "left", { -1, 0 } }, { "up", { 0, -1 } },
  { "down", { 0, 1 } } }
world.backgrounds = { { "black", { 18, 18, 18 } }, { "grey", { 128, 128, 128 } },
  { "white", { 238, 238, 238 } } }

--- Triples that no training clip shows, though each of their parts is shown: two per direction.
world.held_out = {
  { "red", "circle", "right" }, { "green", "square", "left" }, { "blue", "triangle", "up" },
  { "yellow", "circle", "down" }, { "magenta", "square", "right" }, { "cyan", "triangle", "left" },
  { "red", "square", "up" }, { "green", "triangle", "down" },
}
--- Triples that training clips do show, of the same colours and shapes: the comparison.
world.seen = {
  { "red", "circle", "left" }, { "green", "square", "up" }, { "blue", "triangle", "right" },
  { "yellow", "circle", "up" }, { "magenta", "square", "down" }, { "cyan", "triangle", "right" },
  { "red", "square", "down" }, { "green", "triangle", "left" },
}

-- each at most 56 bytes with the longest words
local moving = {
  "a {colour} {shape} moving {direction} on a {background} background",
  "a {colour} {shape} moves {direction} on {background}",
  "a {colour} {shape} drifts {direction} on a {background} background",
  "the {colour} {shape} travels {direction} on {background}",
  "{colour} {shape} going {direction}, {background} background",
  "on {background}, a {colour} {shape} slides {direction}",
}
local still = {
  "a {colour} {shape} on a {background} background",
  "a still {colour} {shape} on {background}",
  "{colour} {shape}, {background} background",
}

-- of motion alone: what a given first frame shows needs no words
local motion = { "it moves {direction}", "moving {direction}", "it drifts {direction}" }

--- A number in [0, 1) that depends on the words alone, equal on every machine.
---@param seed integer
---@param ... string|integer  what is drawn, for which clip
---@return number
function world.draw(seed, ...)
  return (base.mix(seed, ...) >> 11) * 2.0 ^ -53
end

--- 1 .. n in an order that depends on the words alone (Fisher-Yates).
---@param n integer
---@return integer[]
function world.shuffled(n, seed, ...)
  local order = {}
  for i = 1, n do
    order[i] = i
  end
  for i = n, 2, -1 do
    local j = 1 + math.floor(world.draw(seed, "shuffle", i, ...) * i)
    order[i], order[j] = order[j], order[i]
  end
  return order
end

--- Caption number `variant` (counted from 1, wraps around) of a scene; without a direction it is a
-- still.
---@param scene {colour: string, shape: string, background: string, direction: string|nil}
---@param variant integer
---@return string
function world.caption(scene, variant)
  local texts = scene.direction and moving or still
  return (texts[(variant - 1) % #texts + 1]:gsub("{(%a+)}", scene))
end

--- Caption number `variant` of how a scene moves, which names nothing else of it.
---@param scene {direction: string}
---@param variant integer
---@return string
function world.motion(scene, variant)
  return (motion[(variant - 1) % #motion + 1]:gsub("{(%a+)}", scene))
end

local function is_held_out(colour, shape, direction)
  for _, t in ipairs(world.held_out) do
    if t[1] == colour and t[2] == shape and t[3] == direction then
      return true
    end
  end
  return false
end

--- Every (colour, shape, direction) that training may show, in a fixed order.
---@return table[]  of {colour, shape, direction}
function world.training_triples()
  local out = {}
  for _, colour in ipairs(world.colours) do
    for _, shape in ipairs(world.shapes) do
      for _, direction in ipairs(world.directions) do
        if not is_held_out(colour[1], shape, direction[1]) then
          out[#out + 1] = { colour[1], shape, direction[1] }
        end
      end
    end
  end
  return out
end

--- The training set: scenes with captions. Triples, backgrounds and caption texts are spread
-- evenly.
---@param seed integer
---@param clips integer   moving scenes
---@param stills integer  scenes without a direction
---@return table[]  of {id, colour, shape, direction, background, text}
function world.scenes(seed, clips, stills)
  local out = {}
  local triples = world.training_triples()
  local function add(colour, shape, direction, background, variant)
    local scene = { id = #out + 1, colour = colour, shape = shape, direction = direction,
      background = background }
    scene.text = world.caption(scene, variant)
    out[#out + 1] = scene
  end
  -- one shuffled pass over all triples after the other; the background turns by one on each pass
  for i = 1, clips do
    local pass, place = (i - 1) // #triples, (i - 1) % #triples + 1
    local k = world.shuffled(#triples, seed, "triples", pass)[place]
    local background = world.backgrounds[(k + pass) % #world.backgrounds + 1][1]
    local variant = 1 + math.floor(world.draw(seed, "caption", i) * #moving)
    add(triples[k][1], triples[k][2], triples[k][3], background, variant)
  end
  local pairs_n = #world.colours * #world.shapes
  for i = 1, stills do
    local pass, place = (i - 1) // pairs_n, (i - 1) % pairs_n + 1
    local k = world.shuffled(pairs_n, seed, "pairs", pass)[place] - 1
    local background = world.backgrounds[(k + pass) % #world.backgrounds + 1][1]
    local variant = 1 + math.floor(world.draw(seed, "still caption", i) * #still)
    add(world.colours[k // #world.shapes + 1][1], world.shapes[k % #world.shapes + 1],
      nil, background, variant)
  end
  return out
end

return world
