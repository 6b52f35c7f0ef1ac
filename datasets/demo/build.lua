--- Renders the demo's clips into real files: `moonreel datasets/demo/build.lua OUT [SEED [FRAMES
-- [motion]]]`: clips of 6 frames, or of FRAMES, in which shapes go as far; with `motion` they
-- begin in the middle, and their captions are of their motion alone.
-- OUT/demo.csv lists them (path from OUT, text, num_frames, height, width, aspect_ratio, fps) and
-- is written last. Half of the clips are MP4 (libx264), half WebM (libvpx), stills are PNG. Same
-- seed, same libraries: same bytes.
package.path = (arg[0]:match("^(.*/)") or "./") .. "../../?.lua;" .. package.path
local base = require "moonreel.core.base"
local clips = require "datasets.demo.clips"
local world = require "datasets.demo.world"

local CLIPS, STILLS = 250, 50
local out, seed = arg[1], math.tointeger(tonumber(arg[2] or 1))
local length = math.tointeger(tonumber(arg[3] or 6))
local moves = arg[4] == "motion"
if not out or not seed or not length or length < 2 or arg[4] and not moves then
  base.raise("MR_E_USAGE", "build.lua: expected OUT [SEED [FRAMES [motion]]], a folder, an "
    .. "integer, a number of frames from 2 on and the word")
end

local scenes = world.scenes(seed, CLIPS, STILLS)
for _, scene in ipairs(scenes) do
  scene.outwards = moves
  scene.text = moves and scene.direction and world.motion(scene, scene.id) or scene.text
end
clips.write(out, scenes, seed, length)
print(("%s: %d clips and %d stills, seed %d"):format(out, CLIPS, STILLS, seed))
