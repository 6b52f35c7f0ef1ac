--- Folders of runs as a training leaves them, made without training: settings, a journal of
-- artificial lines, a lock.
local json = require "moonreel.core.json"
local run = require "moonreel.run"

local made_run = {}

local SETTINGS = [[return recipe { dataset = { data_path = "d.mrx" }, vae = { type = "dct" },
  text_encoder = { type = "bytes" }, steps = 40, log_every = 10, %s }]]

--- Lines of a journal.
function made_run.start(step, more)
  local line = { kind = "start", step = step, total = 40, updates = step, wall = 100 + step,
    branch = 1, ranks = 1 }
  for key, value in pairs(more or {}) do
    line[key] = value
  end
  return line
end

function made_run.step(n, loss, more)
  local line = { kind = "step", step = n, loss = loss, lr = 0.5, grad_norm = 1, time_s = 0.75,
    data_wait_s = 0.25, batches = 1, samples = 2, epoch = 0, wall = 100 + n }
  for key, value in pairs(more or {}) do
    line[key] = value
  end
  return line
end

--- Lines as the text of a journal.
---@param lines table[]
---@return string
function made_run.text(lines)
  local texts = {}
  for i, line in ipairs(lines) do
    texts[i] = type(line) == "string" and line or json.encode(line)
  end
  return #texts > 0 and table.concat(texts, "\n") .. "\n" or ""
end

--- Makes a run below a folder of the specs.
---@param dir table         of spec.support.folder
---@param name string
---@param lines table[]|nil of the journal; nil: no journal yet
---@param fields string|nil of the recipe, as Lua; false: no settings
---@return string path
function made_run.make(dir, name, lines, fields)
  local path = dir:write(name .. "/x", ""):sub(1, -3)
  os.remove(path .. "/x")
  if fields ~= false then
    local baked = dir:bake(SETTINGS:format(fields or ""))
    dir:write(name .. "/settings.json", baked:to_json())
  end
  if lines then
    dir:write(name .. "/journal.jsonl", made_run.text(lines))
  end
  -- taken and released, as by a launch that has ended
  run.lock(path):close()
  return path
end

return made_run
