-- Runs with planted faults, one after the other in one process, or in each of several ranks:
-- moonreel [-n N] spec/support/planted_run.lua PLANS.json RESULTS.json. A plan: words of train, and
-- a fault: kind = "loss" (of micro-batch `micro`), "gradient", "state" (an element of a region),
-- "bit" (one of an element), "rate" or "norm" (grows over `steps`); step: before which it is
-- planted, once; rank; value: "nan", "inf", "-inf" or a factor. Rank 0 writes the result of each
-- run: exit, problem, and for each step {step, before, after}: hashes of the state, with the fault.
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local loop = require "moonreel.trainer.loop"
local replicas = require "moonreel.trainer.replicas"

local VALUES <const> = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }
local plans, results = json.decode(base.read_file(arg[1])), json.array()
local plan, result, planted

local function hash_of(r)
  local list = {}
  for _, row in ipairs(r.exec:regions()) do
    if row.bytes > 0 and not row.transient and not row.name:match "^grad" and not row.shared then
      list[#list + 1] = row.name .. r.exec:hash(row.name, 0, (row.stop - row.start) // row.per)
    end
  end
  return base.hash128(table.concat(list, " "))
end

-- the first region of a name, or of its parts
local function region_of(r, name)
  for _, row in ipairs(r.exec:regions()) do
    if row.name == name or row.name:match "^(.-)%.%d+$" == name then
      return row
    end
  end
  error("no region " .. name)
end

-- an element of a parameter, not of a gap
local function element(r, row, share)
  local within = {}
  for _, p in ipairs(r.pipe.params:list()) do
    if p.frozen == (row.role == "frozen") and p.offset >= row.start
        and p.offset + p.count <= row.stop then
      within[#within + 1] = p
    end
  end
  local p = within[1 + math.floor(share * #within)]
  return (p.offset + math.floor(share * p.count) - row.start) // row.per
end

local plant = {}

function plant.state(r)
  local row = region_of(r, plan.region)
  r.exec:write(row.name, element(r, row, plan.share), T.from({ 1 }, { VALUES[plan.value] },
    row.dtype))
end

function plant.bit(r)
  local row = region_of(r, plan.region)
  local at = element(r, row, plan.share)
  local dtype = row.dtype == "bf16" and "u8" or "i32"
  local scale = row.dtype == "bf16" and 2 or 1
  local bits = r.exec:read(row.name, dtype, at * scale, { 1 }):totable()[1]
  r.exec:write(row.name, at * scale, T.from({ 1 }, { bits ~ 1 << plan.bit }, dtype))
end

-- the factor of the losses of a micro-batch, for these steps
local function factor_of(r, micro)
  local now = r.step + 1 - plan.step
  if plan.kind == "loss" and now >= 0 and now < plan.steps and micro == plan.micro then
    return VALUES[plan.value] or plan.value
  elseif plan.kind == "norm" and now >= 0 and now < plan.steps then
    return plan.value ^ now
  end
end

local function spoil(r)
  local get, lr_at, start = r.programs.get, r.lr_at, r.update.start
  function r.programs.get(...)
    local micro = get(...)
    return setmetatable({ stage = function(_, input)
      r.drawn = r.drawn_step == r.step and r.drawn + 1 or 1
      r.drawn_step = r.step
      local factor, was = not r.planted_all and r.team.rank == plan.rank
        and factor_of(r, r.drawn), input.weight
      local list = {}
      for b, weight in ipairs(was) do
        list[b] = factor and weight * factor or weight
      end
      input.weight = list
      micro:stage(input)
      input.weight = was
    end }, { __index = micro })
  end
  function r.lr_at(update)
    local now = r.step + 1 - plan.step
    return lr_at(update) * (plan.kind == "rate" and not r.planted_all and now >= 0
      and now < plan.steps and plan.value or 1)
  end
  function r.update.start(self, given)
    if plan.kind == "gradient" and not planted and r.step + 1 == plan.step
        and r.team.rank == plan.rank then
      planted = true
      local row = region_of(r, "grad")
      r.exec:write(row.name, element(r, row, plan.share), T.from({ 1 }, { VALUES[plan.value] },
        row.dtype))
    end
    return start(self, given)
  end
end

local step = loop.step
function loop.step(r)
  if not r.spoilt then
    r.spoilt = true
    spoil(r)
  end
  pcall(r.saver.wait, r.saver)
  -- steps that are repeated after a rollback have no fault
  local highest = r.was or 0
  r.planted_all = r.planted_all or r.step < highest
  r.was = r.step
  local row = { step = r.step + 1 }
  if plant[plan.kind] and not planted and r.step + 1 == plan.step then
    planted = true
    if r.team.rank == plan.rank then
      plant[plan.kind](r)
    end
  end
  row.before = hash_of(r)
  local more = step(r)
  row.after = hash_of(r)
  result.steps[#result.steps + 1] = row
  return more
end

for i, one in ipairs(plans) do
  plan, planted, result = one, false, { steps = json.array() }
  replicas.every = one.every or 100
  local good, problem = pcall(require("moonreel.cli.train").run,
    table.move(one.words, 1, #one.words, 1, {}))
  result.exit = good and problem or problem.exit or 1
  result.problem = not good and tostring(problem.message or problem) or nil
  results[i] = result
end
if require("moonreel.comm.place").find().rank == 0 then
  base.replace_file(arg[2], json.encode(results))
end
