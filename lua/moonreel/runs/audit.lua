--- Proves from a journal that a run repeated and skipped no sample: compares the digest of each
-- step's samples with that of the micro-batches which the order of the data gives there.
-- @module moonreel.runs.audit
local digest = require "moonreel.data.digest"
local find = require "moonreel.runs.find"
local lineage = require "moonreel.runs.lineage"
local events = require "moonreel.runs.events"
local tail = require "moonreel.runs.tail"

local audit = {}

local PARENTS_MAX <const> = 100 -- runs that continue each other; more are a circle

local function whole(value) return math.type(value) == "integer" and value or nil end

-- drops what a checkpoint of a step does not include: jumps in the order from that step on
local function stand_at(self, step)
  for i = #self.jumps, 1, -1 do
    if self.jumps[i].at >= step then
      table.remove(self.jumps, i)
    end
  end
end

-- Handles the line "start": the run continues from its own checkpoint, or begins from scratch. The
-- path of a checkpoint is that of the launch; if the run was moved since, its id identifies it.
local function start(self, entry)
  local source = type(entry.parent) == "string" and lineage.source(entry.parent)
  local own = source and source.part and (lineage.same(source.part, self.dir)
    or entry.run ~= nil and entry.run == self.run)
  self.run = entry.run
  if not own or entry.step == 0 then
    self.jumps, self.base, self.first = {}, entry.step > 0 and source or nil, entry.step
  else
    stand_at(self, entry.step)
  end
  self.launches[#self.launches + 1] = { at = entry.step, settings = entry.settings,
    dataset = entry.dataset }
end

-- handles the line "rollback": the batches of some steps are left out from there on
local function roll_back(self, entry)
  local skipped = whole(entry.skipped) or 0
  stand_at(self, entry.step)
  if skipped > 0 then
    table.insert(self.jumps, { at = entry.step, batches = skipped * self.micros })
  end
end

--- Reads from a journal how a run went through its data.
---@param dir string  with journal.jsonl: a run, or a stage of it
---@return table      steps: lines that count, by number; highest; first: the step at which the run
---   began, mostly 0; base: from lineage.source, if it continued in the data of another run; jumps:
---   {at = step, number of batches left out after it}; micros: micro-batches of a whole step;
---   launches: {at, settings, dataset} of each line "start"; dir
function audit.read(dir)
  local lines = events.new()
  local self = { dir = dir, jumps = {}, launches = {}, micros = 1, first = 0, undone = 0 }
  for entry in tail.open(dir .. "/journal.jsonl"):entries() do
    local what = lines:add(entry)
    if what == "session" then
      start(self, entry)
    elseif what == "rollback" then
      roll_back(self, entry)
    elseif what == "step" then
      self.micros = math.max(self.micros, whole(entry.batches) or 1)
    end
  end
  self.steps, self.highest, self.undone = lines.steps, lines.highest, #lines.undone
  return self
end

-- number of micro-batches left out directly after a step
local function jump_behind(self, step)
  local batches = 0
  for _, jump in ipairs(self.jumps) do
    batches = batches + (jump.at == step and jump.batches or 0)
  end
  return batches
end

-- the present place of a run that was moved: next to the run that names it
local function place_of(source, dir)
  if find.is_run(source.part or source.dir) then
    return source.part
  end
  local outer = dir:match("^(.*)/stages/[^/]+$") or dir
  local sibling = (outer:match("^(.*)/[^/]+$") or ".") .. "/" .. find.name(source.dir)
    .. (source.stage and "/stages/" .. source.stage or "")
  return find.is_run(sibling) and sibling or nil
end

--- The number of micro-batches that a run had drawn from the order at the end of a step.
---@param record table    from audit.read
---@param step integer  at most record.highest
---@param depth integer|nil  number of runs that were followed so far
---@return integer|nil  nil: a journal with the number is missing
---@return string|nil   then the reason
function audit.position(record, step, depth)
  depth = depth or 0
  local at = 0
  if record.base then
    local dir = place_of(record.base, record.dir)
    if not dir or depth > PARENTS_MAX then
      return nil, ("the journal of %s, from which this run continues at step %d, does not "
        .. "exist"):format(
        record.base.part or record.base.dir, record.first)
    end
    local parent = audit.read(dir)
    if parent.highest < record.first then
      return nil, ("the journal of %s ends before step %d, from which this run continues"):format(
        dir,
        record.first)
    end
    local drawn, problem = audit.position(parent, record.first, depth + 1)
    if not drawn then
      return nil, problem
    end
    at = drawn
  end
  for number = record.first + 1, step do
    local line = record.steps[number]
    at = at + jump_behind(record, number - 1) + (line and whole(line.batches) or record.micros)
  end
  return at
end

-- the digest and counts of a step with these micro-batches of the order
local function expected(order, batches, list)
  local draws, samples, by_source, epoch = {}, 0, {}, nil
  for _ = 1, batches do
    if order:over() then
      break
    end
    local draw = order:next()
    local name = list[draw.source].name
    draws[#draws + 1], epoch = draw, draw.epoch
    samples, by_source[name] = samples + #draw.keys, (by_source[name] or 0) + #draw.keys
  end
  return { keys = digest.of(draws), samples = samples, epoch = epoch, draws = draws,
    batches = #draws, by_source = by_source }
end

--- Goes through the steps that count, each with the order's micro-batches.
---@param record table    from audit.read
---@param order mr.Order  at its beginning
---@param list table[]  its sources, {name}
---@param see fun(number: integer, line: table|nil, want: table)  want: keys = the digest, samples,
---   epoch, draws, batches; line: of the journal, nil if it is missing
---@return integer left_out  number of samples that rollbacks have left out
---@return string|nil problem  the position of the beginning is not known
function audit.walk(record, order, list, see)
  local at, problem = audit.position(record, record.first)
  local left_out = 0
  if not at then
    return 0, problem
  end
  order:skip(at)
  for number = record.first + 1, record.highest do
    left_out = left_out + expected(order, jump_behind(record, number - 1), list).samples
    local line = record.steps[number]
    see(number, line, expected(order, line and whole(line.batches) or record.micros, list))
  end
  return left_out
end

-- the fault of a line; nil: it has the right samples
local function fault_of(line, want)
  if not line then
    return "missing", "the journal has no line for this step"
  elseif type(line.keys) ~= "string" then
    return "no digest", "its line has no digest: it was written by an older version"
  elseif line.keys ~= want.keys then
    return "other samples", ("its samples are not those of the order: digest %s, expected %s"
      ):format(line.keys, want.keys)
  elseif line.samples ~= want.samples then
    return "samples", ("its line has %s samples, but the order has %d"):format(line.samples,
      want.samples)
  end
end

-- finds the step whose samples another step repeats
local function name_repeats(problems, step_of)
  for _, one in ipairs(problems) do
    local other = one.keys and step_of[one.keys]
    if other then
      one.text = ("it repeats the samples of step %d"):format(other)
    end
  end
end

--- Compares a journal with the order of the data.
---@param record table      from audit.read
---@param order mr.Order  at its beginning, with the run's quarantine
---@param list table[]    its sources, {name}
---@return table          steps, samples: number compared; epochs; left_out: number of samples that
---   rollbacks have left out; undone: steps that were discarded and do not count; problems = {step,
---   what, text}; unknown: the reason why a comparison was impossible, or nil
function audit.compare(record, order, list)
  local found = { steps = 0, samples = 0, epochs = 0, undone = record.undone, problems = {} }
  local step_of = {}
  found.left_out, found.unknown = audit.walk(record, order, list, function(number, line, want)
    local what, text = fault_of(line, want)
    found.steps, found.samples = found.steps + 1, found.samples + want.samples
    found.epochs = math.max(found.epochs, (want.epoch or -1) + 1)
    step_of[want.keys] = step_of[want.keys] or number
    if what then
      table.insert(found.problems, { step = number, what = what, text = text,
        keys = line and line.keys ~= want.keys and line.keys or nil })
    end
  end)
  name_repeats(found.problems, step_of)
  return found
end

return audit
