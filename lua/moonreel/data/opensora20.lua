--- The treatment of samples in Open-Sora 2.0: rate, text, frames. Ref: opensora-2.0.md 9.
-- @module moonreel.data.opensora20
local opensora20 = {}

--- The frame rate for a model, and the interval of the frames that are used.
---@param fps number|nil      of the clip; nil or NaN: not known
---@param fps_max number|nil  nil: no limit
---@return number new_fps  an integer if frames are skipped
---@return integer interval
function opensora20.rate(fps, fps_max)
  if not fps or fps ~= fps then
    return 0, 1
  elseif not fps_max or fps < fps_max then
    return fps, 1
  end
  local interval = math.ceil(fps / fps_max)
  return math.floor(fps / interval), interval
end

-- a number in Python's notation
local function printed(x)
  if math.type(x) == "integer" then
    return ("%d"):format(x)
  elseif x % 1 == 0 and math.abs(x) < 1e16 then
    return ("%.1f"):format(x)
  end
  for digits = 1, 17 do
    local text = ("%." .. digits .. "g"):format(x)
    if tonumber(text) == x then
      return text
    end
  end
end

--- The text that is appended to a caption in training: rate and motion.
---@param row table             {fps, score_vmafmotion}
---@param fps_max number|nil
---@param vmaf boolean          append the motion score
---@param compat boolean|nil    an unchanged rate is written as in the reference, "24.0"
---@return string
function opensora20.suffix(row, fps_max, vmaf, compat)
  local said, fps = {}, opensora20.rate(row.fps, fps_max)
  if fps ~= 0 and (fps_max or 999999999) < 999 then
    said[1] = printed(compat and fps or math.tointeger(fps) or fps) .. " FPS"
  end
  local score = row.score_vmafmotion
  if vmaf and score and score == score then
    said[#said + 1] = ("%d motion score"):format(math.floor(score + 0.5))
  end
  return #said > 0 and " " .. table.concat(said, ", ") .. "." or ""
end

--- A function that returns these texts, by the settings.
---@param settings table  baked: dataset, compat
---@param indexes moonreel.Index[]  by their numbers in batches
---@return nil|fun(source: integer, id: integer): string  id: a batch's, from 0; nil: captions are
---   not extended
function opensora20.teller(settings, indexes)
  local d = settings.dataset
  local fps_max = d.fps_max and d.fps_max > 0 and d.fps_max or nil
  if d.type ~= "video_text" or not (fps_max or d.vmaf) then
    return nil
  end
  return function(source, id)
    local row = indexes[source]:row(id + 1)
    return opensora20.suffix({ fps = row.fps, score_vmafmotion = row.columns.score_vmafmotion },
      fps_max, d.vmaf, settings.compat ~= nil)
  end
end

--- A prompt in the form for the encoders when a video is rendered.
---@param text string
---@param fps number
---@param motion? integer|string
---@return string
function opensora20.prompt(text, fps, motion)
  text = text:match("^%s*(.-)%s*$")
  text = text:sub(-1) == "." and text or text .. "."
  if not text:find("%d+ FPS%.$") then
    text = ("%s %s FPS."):format(text, printed(math.tointeger(fps) or fps))
  end
  return motion and ("%s %s motion score."):format(text, motion) or text
end

--- Frames of a sample that are used, from 0.
---@param frames integer      of the clip
---@param count integer       number of frames to use
---@param interval integer
---@param start integer       first of the possible starts
---@return integer[]|nil  nil: the clip is too short
function opensora20.frames(frames, count, interval, start)
  local last, out = math.min(start + count * interval, frames) - 1, {}
  if last + 1 - start < count then
    return nil
  end
  for i = 0, count - 1 do
    out[i + 1] = count == 1 and start or math.floor(start + i * ((last - start) / (count - 1)))
  end
  return out
end

--- The last frame at which a clip may begin.
function opensora20.last_start(frames, count, interval)
  return math.max(0, frames - count * interval - 1)
end

return opensora20
