--- Writes a run as TensorBoard event files in RUN/tensorboard, one file for each part of the run. A
-- part that continues begins with a session start event, at which the reader drops later steps of
-- earlier files.
-- @module moonreel.trackers.tensorboard
local facts = require "moonreel.trackers.facts"
local follow = require "moonreel.trackers.follow"
local histograms = require "moonreel.trackers.histograms"
local media = require "moonreel.trackers.media"
local scalars = require "moonreel.trackers.scalars"
local tfevents = require "moonreel.trackers.tfevents"

local tensorboard = {}

tensorboard.whole = tfevents.whole

local Writer = {}
Writer.__index = Writer

--- The path of a part's file. TensorBoard reads files in the order of their names.
---@param part mr.TrackerPart
---@return string
function tensorboard.path(part)
  return ("%s/tensorboard/events.out.tfevents.%010d.moonreel.%s.%06d"):format(part.root,
    math.floor(part.wall), part.id, part.number)
end

--- Creates a writer for a follower.
---@param store table  store of moonreel.trackers.files
---@return table
function tensorboard.new(store) return setmetatable({ store = store }, Writer) end

local function event(self, text) self.file:write(tfevents.record(text)) end

function Writer:begin(part)
  self.part, self.ended = part, nil
  self.file = self.store:file(tensorboard.path(part))
  -- TensorBoard takes the first session start of a run as its beginning, and later ones as restarts
  local list = { tfevents.record(tfevents.version(part.wall)),
    tfevents.record(tfevents.start(part.wall, part.step + 1)) }
  if part.opens then
    local recipe = facts.recipe(part.dir)
    local values = (recipe and tfevents.text("recipe", "```lua\n" .. recipe .. "\n```") or "")
      .. tfevents.hparams(facts.chosen(part.dir), { "loss" })
    list[#list + 1] = tfevents.record(tfevents.values(part.wall, part.step, values))
  end
  self.file:write(table.concat(list))
end

local function wall_of(self, line)
  return follow.wall(line) or self.part.wall
end

local function put_values(self, line, step, list)
  if #list > 0 then
    event(self, tfevents.values(wall_of(self, line), step, table.concat(list)))
  end
end

local function add_scalars(list, rows)
  for _, row in ipairs(rows) do
    list[#list + 1] = tfevents.scalar(row[1], row[2])
  end
end

function Writer:step(line, step)
  local list = {}
  add_scalars(list, scalars.of_step(line))
  put_values(self, line, step, list)
end

function Writer:note(line, step)
  if not self.file then
    return
  end
  local list, words = {}, facts.words(line)
  add_scalars(list, scalars.of_line(line))
  for _, one in ipairs(histograms.of_line(line)) do
    list[#list + 1] = tfevents.histogram(one[1], one[2])
  end
  if words then
    list[#list + 1] = tfevents.text(line.kind == "note" and "notes" or "events", words)
  end
  for _, one in ipairs(media.of(line, self.part.dir)) do
    local good, data, h, w = pcall(media.picture, one)
    list[#list + 1] = good and tfevents.image("samples/" .. one.name, data, h, w)
      or tfevents.text("samples/" .. one.name, "this file could not be shown: "
        .. one.path:sub(#self.part.dir + 2))
  end
  put_values(self, line, step, list)
end

function Writer:finish(line, step)
  self:note(line, step)
  event(self, tfevents.values(wall_of(self, line), step,
    tfevents.hparams_end(line.kind == "end")))
end

function Writer:close()
  self.file:close()
  self.file = nil
end

return tensorboard
