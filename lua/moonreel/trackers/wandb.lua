--- Writes a run as offline W&B runs in RUN/wandb: one folder for each part of the run, all with one
-- run id. A part that continues is marked: after the newest step it resumes, after an older step it
-- rewinds.
-- @module moonreel.trackers.wandb
local base = require "moonreel.core.base"
local facts = require "moonreel.trackers.facts"
local follow = require "moonreel.trackers.follow"
local glance = require "moonreel.runs.glance"
local histograms = require "moonreel.trackers.histograms"
local json = require "moonreel.core.json"
local media = require "moonreel.trackers.media"
local scalars = require "moonreel.trackers.scalars"
local wandblog = require "moonreel.trackers.wandblog"

local wandb = {}

-- version of the SDK whose log format is written
local SDK <const> = "0.31.0"

wandb.whole = wandblog.whole

--- Was a log uploaded? Then nothing may be appended to it.
---@param path string
---@return boolean
function wandb.closed(path) return base.exists(path .. ".synced") end

local Writer = {}
Writer.__index = Writer

-- the time in the name is UTC, so that it does not depend on the time zone
local function folder_of(part)
  return ("%s/wandb/offline-run-%s-%s"):format(part.root,
    os.date("!%Y%m%d_%H%M%S", math.floor(part.wall)), part.id)
end

--- The path of a part's log.
---@param part mr.TrackerPart
---@return string
function wandb.path(part) return ("%s/run-%s.wandb"):format(folder_of(part), part.id) end

--- Creates a writer for a follower.
---@param store table  store of moonreel.trackers.files
---@return table
function wandb.new(store) return setmetatable({ store = store }, Writer) end

local function record(self, field, message)
  self.number = self.number + 1
  local text = wandblog.frame(wandblog.record(self.number, field, message), self.bytes)
  self.bytes = self.bytes + #text
  self.file:write(text)
end

local function text_of(x) return type(x) == "string" and x or nil end

function Writer:begin(part)
  self.part, self.number, self.last, self.ended, self.row = part, 0, {}, nil, nil
  self.pending = {}
  self.file = self.store:file(wandb.path(part))
  local settings, asked = glance.settings(part.dir) or {}, part.session.trackers
  asked = type(asked) == "table" and type(asked.wandb) == "table" and asked.wandb or {}
  local head = wandblog.head((asked.log or settings.wandb_log) == "next" and 1 or 0)
  self.bytes = #head
  self.file:write(head)
  record(self, wandblog.HEADER, wandblog.version(SDK))
  local config = {}
  for name, value in pairs(settings) do
    config[name] = name ~= "resolutions" and name ~= "stages" and value or nil
  end
  local tags = asked.tags or settings.wandb_tags
  record(self, wandblog.RUN, wandblog.run { id = part.id, name = part.name, wall = part.wall,
    project = text_of(asked.project) or text_of(settings.wandb_project) or "moonreel",
    tags = type(tags) == "table" and tags or nil, config = config,
    entity = text_of(asked.entity) or text_of(settings.wandb_entity), resume = part.how == "resume",
    rewind = part.how == "rewind" and part.step or nil })
end

-- a step is one row of the history, with everything up to the next step
local function flush(self)
  local row = self.row
  if row then
    self.row = nil
    record(self, wandblog.HISTORY, wandblog.history(row.step, table.concat(row)))
  end
end

local function add(self, name, value)
  if type(value) == "number" then
    self.last[name] = value
  end
  local list = self.row or self.pending
  list[#list + 1] = wandblog.item(1, name, value)
end

local function wall_of(self, line)
  return follow.wall(line) or self.part.wall
end

function Writer:step(line, step)
  flush(self)
  local wall = wall_of(self, line)
  self.row, self.pending = self.pending, {}
  self.row.step = step
  for _, one in ipairs(scalars.of_step(line)) do
    add(self, one[1], one[2])
  end
  add(self, "_step", step)
  add(self, "_timestamp", wall)
  add(self, "_runtime", wall - self.part.first_wall)
end

-- copies a file that the run uploads into the folder
local function add_media(self, one, step)
  local data = base.read_file(one.path)
  local sum = base.sha256(data)
  local folder = one.clip and "media/videos" or "media/images"
  local path = ("%s/%s_%d_%s.%s"):format(folder, one.name:gsub("[^%w._-]", "-"), step,
    sum:sub(1, 20), one.kind)
  self.store:put(folder_of(self.part) .. "/files/" .. path, data)
  record(self, wandblog.FILES, wandblog.media_file(path))
  local value = { _type = one.clip and "video-file" or "image-file", path = path, sha256 = sum,
    size = #data, caption = one.caption }
  if not one.clip then
    value.format, value.height, value.width = one.kind, media.size(data, one.path)
  end
  add(self, "samples/" .. one.name, value)
end

local function summary(self)
  local names, list = {}, {}
  for name in pairs(self.last) do
    names[#names + 1] = name
  end
  table.sort(names)
  for i, name in ipairs(names) do
    list[i] = wandblog.item(1, name, self.last[name])
  end
  if #list > 0 then
    record(self, wandblog.SUMMARY, table.concat(list))
  end
end

function Writer:note(line, step)
  if not self.file then
    return
  end
  for _, one in ipairs(scalars.of_line(line)) do
    add(self, one[1], one[2])
  end
  for _, one in ipairs(histograms.of_line(line)) do
    local h = one[2]
    add(self, one[1], { _type = "histogram", values = json.array(h.counts),
      bins = json.array { h.min, table.unpack(h.limits) } })
  end
  local found = media.of(line, self.part.dir)
  for _, one in ipairs(found) do
    add_media(self, one, step)
  end
  if #found > 0 then
    add(self, "samples/step", step)
  end
  local words = facts.words(line)
  if words then
    record(self, wandblog.OUTPUT, wandblog.output(wall_of(self, line), words))
  end
  -- a run that is killed keeps its state at the newest checkpoint
  if line.kind == "save" and line.event == "commit" then
    summary(self)
  end
end

function Writer:finish(line, step)
  self.ended = line
  self:note(line, step)
end

function Writer:close(line)
  flush(self)
  summary(self)
  local last = self.ended or line and line.kind == "rollback" and line
  if last then
    local code = math.type(last.signal) == "integer" and 128 + last.signal or 0
    record(self, wandblog.EXIT, wandblog.exit(code,
      math.max(0, math.floor(wall_of(self, last) - self.part.wall))))
  end
  self.file:close()
  self.file = nil
end

return wandb
