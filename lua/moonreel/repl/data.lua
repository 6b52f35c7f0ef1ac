--- Samples, clips, runs and recipes at the prompt.
-- @module moonreel.repl.data
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local clean = require "moonreel.text.clean"
local listing = require "moonreel.text.listing"
local options = require "moonreel.text.options"

local data = {}

-- ---- clips

--- Decoded pixels: a tensor u8 [T, 3, H, W] with show() and save(); clip[3] is frame 3.
---@class moonreel.Clip
local clip_methods = setmetatable({}, { __methods = T.methods })
local Clip = { __name = "moonreel.Clip", __methods = clip_methods }

-- frames, and whatever else a tensor can do
function Clip.__index(self, key)
  local pixels = rawget(self, "pixels")
  local found = clip_methods[key] or pixels[key]
  if clip_methods[key] or type(found) ~= "function" then
    return found
  end
  return function(_, ...) return found(pixels, ...) end
end
function Clip.__tensor(self) return rawget(self, "pixels") end
function Clip.__len(self) return self.pixels.shape[1] end
function Clip.__tostring(self)
  local s = self.pixels.shape
  return ("clip %s: %d frames, %d x %d, %.3g fps"):format(clean(self.facts.path or ""),
    s[1], s[4], s[3], self.facts.fps)
end

--- Draws a frame in the terminal, or saves it.
---@param frame integer|nil  from 0, default 0
---@param given table|nil    png = "f.png"
function clip_methods:show(frame, given)
  if type(frame) == "table" then
    frame, given = 0, frame
  end
  require("moonreel.look.tensor").imshow(self.pixels[frame or 0], given)
end

--- Writes the clip as .mp4, or in any other format that a tensor supports.
function clip_methods:save(path) return self.pixels:save(path) end

--- The pixels, u8 [T, 3, H, W].
function clip_methods:tensor() return self.pixels end

local read_decode = options.declare("decode", {
  { "frames", "integer", "the most frames; absent: all frames" },
  { "height", "integer", "height in pixels; absent: as the clip is displayed" },
  { "width", "integer", "width in pixels; absent: as the clip is displayed" },
  { "start", "integer", "the first frame, counted from 0", default = 0 },
  { "interval", "integer", "step from one decoded frame to the next", default = 1 },
})

--- Decodes a file.
---@param path string
---@param given table|nil  frames, height, width, start, interval
---@return moonreel.Clip
function data.decode(path, given)
  local o, facts = read_decode(given), require("moonreel.data").scan(path)
  local height, width = o.height or facts.height, o.width or facts.width
  -- a shorter clip gives fewer frames
  local interval = math.max(1, o.interval)
  local left = math.max(1, (facts.frames - o.start + interval - 1) // interval)
  local frames = math.min(o.frames or left, left)
  local pixels = require("moonreel.data").decode(path,
    { frames = frames, height = height, width = width, start = o.start, interval = o.interval })
  facts.path = path
  return setmetatable({ pixels = T.from({ frames, 3, height, width }, pixels, "u8"),
    facts = facts }, Clip)
end

-- ---- samples

--- A row of an index, with fields text, file, ...
---@class moonreel.Sample
local Sample = { __name = "moonreel.Sample" }
local sample_methods = {}
Sample.__index = sample_methods

--- Decodes its clip.
---@param given table|nil  frames, height, width, start, interval
function sample_methods:decode(given) return data.decode(self.file, given) end

function Sample.__tostring(self)
  local lines = { ("sample %d: %s"):format(self.id, clean(self.path)),
    ("  %d frames, %d x %d, %.4g fps, %s, %s"):format(self.frames, self.width,
      self.height, self.fps,
      clean(self.codec), listing.size(self.bytes)) }
  for _, text in ipairs(self.captions) do
    lines[#lines + 1] = ("  %s"):format(clean(text))
  end
  return table.concat(lines, "\n")
end

-- reference names of fields, which where() also accepts
local spellings = { num_frames = "frames", caption = "text" }

local index_methods = {}
local Index = { __name = "moonreel.PromptIndex", __methods = index_methods }

function Index.__index(self, key)
  if math.type(key) == "integer" then
    return self:sample(key)
  end
  return index_methods[key]
end
function Index.__len(self) return #self.index end
function Index.__tostring(self)
  return ("index %s: %d samples; index[0], index:where(\"frames > 50\")"):format(clean(self.path),
    #self.index)
end

--- One sample, by its number from 0.
function index_methods:sample(i)
  if i < 0 or i >= #self.index then
    base.raise("MR_E_RANGE", ("there is no sample %d; the index has %d, counted from 0")
      :format(i, #self.index))
  end
  return setmetatable(self.index:row(i + 1), Sample)
end

--- The samples for which a condition holds: "num_frames > 50 and width >= 512", with the fields of
-- a sample.
---@param condition string|function
---@param most integer|nil  stop after this many
function index_methods:where(condition, most)
  local test = condition
  if type(condition) == "string" then
    local row
    local env = setmetatable({ string = string, math = math }, { __index = function(_, key)
      local value = row[spellings[key] or key]
      if value == nil then
        error(("a sample has no field '%s'; try: help(index[0])"):format(tostring(key)), 0)
      end
      return value
    end })
    local f, problem = load("return " .. condition, "=where", "t", env)
    if not f then
      base.raise("MR_E_USAGE", ("where: %s; try: index:where(\"num_frames > 50\")"):format(problem))
    end
    test = function(r)
      row = r
      return f()
    end
  end
  local rows = {}
  for i = 0, #self.index - 1 do
    local sample = self:sample(i)
    if test(sample) then
      rows[#rows + 1] = sample
    end
    if most and #rows >= most then
      break
    end
  end
  return listing.new(rows, { { key = "id", right = true }, { key = "frames", right = true },
    { key = "width", right = true },
    { key = "height", right = true }, { key = "fps", right = true }, { key = "path" },
      { key = "text", format = function(text)
      return #text > 60 and text:sub(1, (utf8.offset(text, 0, 58) or 58) - 1) .. "..." or text
    end } }, ("%d of %d samples"):format(#rows, #self.index))
end

--- Opens an index.
---@param path string
function data.index(path)
  return setmetatable({ index = require("moonreel.data").open(path), path = path }, Index)
end

-- ---- runs and recipes

--- A run: its journal and its checkpoints.
---@class moonreel.Run
---@field path string
---@field name string
local Run = { __name = "moonreel.Run" }
Run.__index = Run

-- the numbers of the steps that count, and their losses
local function curve_of(self)
  local steps, losses = {}, {}
  local events = require("moonreel.runs.events").read(self.path, function(line)
    return type(line.loss) == "number" and line.loss or "none"
  end)
  for number = 1, events.highest do
    if type(events.steps[number]) == "number" then
      steps[#steps + 1], losses[#losses + 1] = number, events.steps[number]
    end
  end
  return steps, losses
end

--- The losses of the steps that count, from the journal: without steps that a rollback or a later
-- session took back.
---@return table rows  {step, loss}
function Run:losses()
  local steps, losses = curve_of(self)
  local rows = {}
  for i, step in ipairs(steps) do
    rows[i] = { step = step, loss = losses[i] }
  end
  return listing.new(rows, { { key = "step", right = true }, { key = "loss", right = true } })
end

--- The settings that the run was launched with.
---@return table
function Run:settings()
  return require("moonreel.settings").load(self.path .. "/settings.json")
end

--- The lines of its journal, oldest first.
---@param kind string|nil  only lines of this kind: "step", "session", "error", ...
---@return table[]
function Run:journal(kind)
  local rows = {}
  for line in require("moonreel.run").entries(self.path) do
    if not kind or line.kind == kind then
      rows[#rows + 1] = line
    end
  end
  return rows
end

--- The steps of its checkpoints, newest first.
---@return integer[]
function Run:steps() return require("moonreel.ckpt").steps(self.path) end

function Run:__tostring()
  local steps, losses = curve_of(self)
  local last = steps[#steps]
  local head = ("run %s: %s, checkpoints of steps %s"):format(clean(self.name),
    last and ("step %d, loss %.4g"):format(last, losses[#losses]) or "no step yet",
    #self:steps() > 0 and table.concat(self:steps(), ", ") or "none")
  if #losses < 2 then
    return head
  end
  return head .. "\n" .. require("moonreel.look.chart").text(require("moonreel.look.chart").new(
    losses, { title = "loss", from = steps[1], to = last })):gsub("\n$", "")
end

--- Opens a run by its directory.
---@param path string
---@return moonreel.Run
function data.run(path) return setmetatable({ path = path, name = path:match("[^/]+$") }, Run) end

--- Says where a value of settings comes from.
---@param settings table
---@param key string
function data.why(settings, key)
  local provenance = require "moonreel.settings.provenance"
  return listing.new(provenance.rows(settings, key), provenance.columns)
end

return data
