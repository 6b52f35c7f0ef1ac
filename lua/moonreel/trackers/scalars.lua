--- Selects the numbers of a journal line that a chart shows.
-- @module moonreel.trackers.scalars
local scalars = {}

-- numbers that JSON does not have, as a skipped step writes them
local words = { nan = 0 / 0, ["-nan"] = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }

-- loss and norm of a skipped step, if they are not finite: the journal has them as text
local function add_lost(list, reason)
  local loss, norm = reason:match "^loss (%S+), gradient norm (%S+)$"
  for _, row in ipairs { { "loss", words[loss] }, { "grad_norm", words[norm] } } do
    if row[2] then
      list[#list + 1] = row
    end
  end
end

local function is_number(x) return type(x) == "number" end

local function add(list, tag, x)
  if is_number(x) then
    list[#list + 1] = { tag, x }
  end
end

-- the numbers of a table, sorted by name
local function add_all(list, prefix, values)
  local names = {}
  for name, x in pairs(type(values) == "table" and values or {}) do
    if type(name) == "string" and is_number(x) then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    list[#list + 1] = { prefix .. name, values[name] }
  end
end

--- The numbers of a line "step" or "skip": {{tag, number}, ...}, always in the same order. `loss`,
-- `grad_norm`, `lr`, `t` and `epoch` have the names of the line; time/step_s and time/data_wait_s
-- are seconds; loss_by_bucket/FxHxW is present if all micro-batches are of one bucket; gpu/
-- contains power, clock and so on. A line may contain further numbers under `scalars`.
---@param line table  line of the journal
---@return table[]
function scalars.of_step(line)
  local list = {}
  add(list, "loss", line.loss)
  add(list, "grad_norm", line.grad_norm)
  if line.kind == "skip" then
    add_lost(list, tostring(line.reason))
    list[#list + 1] = { "skipped", 1 }
  end
  add(list, "lr", line.lr)
  add(list, "t", line.t)
  add(list, "epoch", line.epoch)
  if is_number(line.time_s) then
    if is_number(line.samples) and line.time_s > 0 then
      add(list, "samples_per_s", line.samples / line.time_s)
    end
    add(list, "time/step_s", line.time_s)
  end
  add(list, "time/data_wait_s", line.data_wait_s)
  if type(line.bucket) == "string" and is_number(line.loss) then
    list[#list + 1] = { "loss_by_bucket/" .. line.bucket:match "^%S*", line.loss }
  end
  add_all(list, "gpu/", line.gpu)
  add_all(list, "", line.scalars)
  return list
end

--- The numbers under `scalars` of any other line: {{tag, number}, ...}.
---@param line table  line of the journal
---@return table[]
function scalars.of_line(line)
  local list = {}
  add_all(list, "", line.scalars)
  return list
end

return scalars
