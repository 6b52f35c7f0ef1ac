--- Prints lines of a journal, of its notes and of its quarantine as text for people.
-- @module moonreel.runs.words
local clean = require "moonreel.text.clean"
local json = require "moonreel.core.json"

local words = {}

local MOST <const> = 160 -- most characters of the fields of an unknown line
local LAST_WALL <const> = 1e11 -- larger seconds since 1970 are not a time

local function number(value) return type(value) == "number" and value or nil end

-- a number in a format, "-" if there is no number
local function shown(form, value)
  return number(value) and form:format(value) or "-"
end

-- a whole number, even if a journal has it as 3.0 or lacks it
local function count(value) return shown("%.0f", value) end

local function size(value)
  return number(value) and require("moonreel.text.listing").size(value) or "- B"
end

local function milliseconds(value)
  return number(value) and ("%.1f ms"):format(value * 1000) or "- ms"
end

-- the text of each kind of line: function(entry, context)
local texts = {}

function texts.start(entry, context)
  local machine = type(entry.machine) == "table" and entry.machine or {}
  local libraries = type(machine.libraries) == "table" and machine.libraries or {}
  return ("launch %s starts at step %s%s%s: %s rank%s, %s%s"):format(count(entry.branch),
    count(entry.step), number(entry.total) and " of " .. count(entry.total) or "",
    context.stage and (" of stage " .. context.stage) or "", count(entry.ranks),
    entry.ranks == 1 and "" or "s", tostring(libraries.device or "unknown device"),
    type(entry.parent) == "string" and ", from " .. entry.parent or "")
end

function texts.step(entry, context)
  return ("step %s%s  loss %s  norm %s  lr %s  %s  data wait %s"):format(count(entry.step),
    context.total and "/" .. count(context.total) or "", shown("%.4f", entry.loss),
    shown("%.3g", entry.grad_norm), shown("%.3g", entry.lr), milliseconds(entry.time_s),
    milliseconds(entry.data_wait_s))
end

function texts.skip(entry)
  return ("step %s skipped: %s"):format(count(entry.step), tostring(entry.reason or "no reason"))
end

function texts.spike(entry)
  return ("step %s is a spike of the %s: %s, limit %s%s; action %s"):format(count(entry.step),
    entry.cause == "loss" and "loss" or "gradient norm", shown("%.4g", entry.value),
    shown("%.4g", entry.limit), type(entry.group) == "string" and " of " .. entry.group or "",
    tostring(entry.action or "-"))
end

function texts.rollback(entry)
  local skipped = number(entry.skipped) or 0
  return ("step %s: back to step %s%s: %s"):format(count(entry.from), count(entry.step),
    skipped > 0 and (", the batches of %s steps are left out"):format(count(skipped)) or "",
    tostring(entry.why or "no reason"))
end

function texts.save(entry)
  if entry.event == "commit" then
    return ("checkpoint of step %s: %s, copied in %s, written in %s"):format(count(entry.step),
      size(entry.bytes), milliseconds(entry.copy_s), milliseconds(entry.write_s))
  end
  return ("save of step %s: %s: %s"):format(count(entry.step), tostring(entry.event or "-"),
    tostring(entry.text or ""))
end

function texts.samples(entry)
  local at = ("samples of step %s, %s"):format(count(entry.step), tostring(entry.set or "-"))
  if entry.event == "fail" or entry.event == "skip" then
    return ("%s: not rendered: %s"):format(at, tostring(entry.text or "no reason"))
  end
  return ("%s: %d files in %s s, %s%s"):format(at, type(entry.files) == "table" and #entry.files
    or 0, shown("%.1f", entry.seconds), tostring(entry.path or "-"),
    type(entry.text) == "string" and "; a metric failed: " .. entry.text or "")
end

function texts.stop(entry)
  return ("stopped on request (signal %s) at step %s"):format(count(entry.signal),
    count(entry.step))
end

--- The text for a launch that found no step to do.
---@param step any    the last one
---@param name string  the name of the run for the command line
---@param stage string|nil
---@return string
function words.complete(step, name, stage)
  local at = stage and ("stages.%s."):format(stage) or ""
  return ("done: step %s, all steps were done before; to continue: moonreel train %s %ssteps=N, "
    .. "with N above %s, or more epochs"):format(count(step), name, at, count(step))
end

-- did the launch draw no batch?
local function asked_none(entry)
  local data = type(entry.data) == "table" and entry.data or {}
  return data.hits == 0 and data.waits == 0
end

texts["end"] = function(entry, context)
  if not entry.loss and asked_none(entry) then
    return words.complete(entry.step, "RUN", context.stage)
  end
  return ("done: step %s, loss %s"):format(count(entry.step), shown("%.4f", entry.loss))
end

function texts.error(entry)
  return ("error at step %s: %s"):format(count(entry.step), tostring(entry.text or entry.code))
end

function texts.weights(entry)
  local function length(list) return type(list) == "table" and #list or 0 end
  return ("weights of %s: %d missing, %d unexpected, %d dropped, %d resized"):format(
    tostring(entry.path or "-"), length(entry.missing), length(entry.unexpected),
    length(entry.dropped), length(entry.resized))
end

function texts.bucket(entry)
  return ("bucket %s is compiled: about %s a micro-step"):format(
    tostring(entry.bucket or entry.key or "-"), milliseconds(entry.seconds))
end

function texts.replicas(entry)
  return ("step %s: replicas differ: %s"):format(count(entry.step), tostring(entry.text or "-"))
end

function texts.nonfinite(entry)
  local list = type(entry.tensors) == "table" and entry.tensors or {}
  return ("step %s: %s values are not finite, in %s%s; it is not saved"):format(count(entry.step),
    count(entry.values), tostring(list[1] or "-"), #list > 1 and " and others" or "")
end

function texts.output(entry) return tostring(entry.text or "the log has lost its reader") end

function texts.gap(entry)
  return ("%s lines of the journal are missing: the disk did not accept them"):format(
    count(entry.lines))
end

function texts.weight_norms(entry)
  local all = {}
  for _, name in ipairs { "norm", "update_ratio", "dead", "ema_drift" } do
    all[name] = type(entry.scalars) == "table" and entry.scalars["weights/all/" .. name] or nil
  end
  local parts = {}
  for _, part in ipairs { { "norm", "weights have norm %.4g" },
    { "update_ratio", "an update moves %.2g of it" }, { "dead", "%.2g of their units are dead" },
    { "ema_drift", "averages are off by %.2g of it" } } do
    parts[#parts + 1] = number(all[part[1]]) and part[2]:format(all[part[1]])
  end
  return ("step %s: %s"):format(count(entry.step), #parts > 0 and table.concat(parts, ", ")
    or "weights without a norm")
end

function texts.histograms(entry)
  local n = 0
  for _ in pairs(type(entry.histograms) == "table" and entry.histograms or {}) do
    n = n + 1
  end
  return ("step %s: %d histograms of weights and gradients"):format(count(entry.step), n)
end

-- one value of each GPU of a host
local function gpus_of(scalars, name)
  local list = {}
  for tag, x in pairs(scalars) do
    if type(tag) == "string" and tag:find("/gpu%d+/" .. name .. "$") and number(x) then
      list[#list + 1] = x
    end
  end
  return list
end

function texts.node(entry)
  local scalars, parts = type(entry.scalars) == "table" and entry.scalars or {}, {}
  local function own(name) return scalars[("node/%s/%s"):format(tostring(entry.host), name)] end
  local watts, total = gpus_of(scalars, "power_w"), 0
  for _, w in ipairs(watts) do
    total = total + w
  end
  if #watts > 0 then
    parts[1] = ("%d GPUs, %.0f W"):format(#watts, total)
  end
  local hot, clocks = gpus_of(scalars, "temperature_c"), gpus_of(scalars, "clock_mhz")
  if #hot > 0 then
    parts[#parts + 1] = ("at most %.0f C"):format(math.max(table.unpack(hot)))
  end
  if #clocks > 0 then
    parts[#parts + 1] = ("at least %.0f MHz"):format(math.min(table.unpack(clocks)))
  end
  parts[#parts + 1] = ("load %s, %s of memory free"):format(shown("%.2f", own "load"),
    size(own "free_memory_bytes"))
  for _, fault in ipairs(type(entry.faults) == "table" and entry.faults or {}) do
    parts[#parts + 1] = tostring(fault)
  end
  return ("host %s: %s"):format(tostring(entry.host or "-"), table.concat(parts, "; "))
end

function texts.alarm(entry)
  return ("step %s: alarm: %s"):format(count(entry.step), tostring(entry.text or "-"))
end

function texts.note(entry)
  return "note: " .. tostring(entry.text or "")
end

--- The text of a line of quarantine.jsonl: a sample that could not be read.
---@param entry table
---@return string
function words.failed(entry)
  return clean(("sample %s could not be read (%s): %s"):format(
    tostring(entry.path or entry.key or "-"), tostring(entry.class or "-"),
    tostring(entry.detail or "no detail")))
end

-- a line of a kind that this version does not know: its plain fields
local function other(entry)
  local fields = {}
  for key, value in pairs(entry) do
    if key ~= "kind" and key ~= "wall" and type(value) ~= "table" and value ~= json.null then
      fields[#fields + 1] = ("%s %s"):format(key, tostring(value))
    end
  end
  table.sort(fields)
  return ("%s: %s"):format(tostring(entry.kind or "line"),
    table.concat(fields, ", "):sub(1, MOST))
end

--- The local time of a line, 19 characters; blanks if it has no valid time.
---@param wall any  seconds since 1970
---@return string
function words.time(wall)
  local good = number(wall) and wall >= 0 and wall < LAST_WALL
  return good and os.date("%Y-%m-%d %H:%M:%S", wall // 1 | 0) or (" "):rep(19)
end

--- The text of a line of a journal.
---@param entry table
---@param context table|nil  total: steps of the launch; stage: name of the stage
---@return string            without line ends and control characters
function words.of(entry, context)
  local text = texts[entry.kind]
  return clean((text or other)(entry, context or {}))
end

return words
