--- Checks before a run on several hosts: the same program, recipe and folder everywhere,
-- synchronous clocks, working links, and problems of each host.
-- @module moonreel.cluster.preflight
local base = require "moonreel.core.base"
local clock = require "moonreel.cluster.clock"
local links = require "moonreel.cluster.links"
local speed = require "moonreel.comm.links"
local process = require "moonreel.core.process"
local remote = require "moonreel.cluster.remote"
local survey = require "moonreel.cluster.survey"

local preflight = {}

local CLOCK <const> = { ok = "ok", ["no service"] = "note", apart = "wrong", steps = "wrong" }

local Report = {}
Report.__index = Report
function Report:add(host, what, state, text)
  self[#self + 1] = { host = host, what = what, state = state, text = text }
end

local function same_program(report, hosts)
  for _, link in ipairs(hosts.cluster.links) do
    local other = remote.other_build(link)
    if link.up and other then
      report:add(link.host.name, "program", "wrong", other)
    end
  end
end

-- asks the reachable hosts; the others have been reported already
local function ask(hosts, what, more)
  local rows = {}
  for i, row in ipairs(hosts:ask(what, more)) do
    rows[#rows + 1] = not hosts.cluster.links[i].gone and row or nil
  end
  return rows
end

local function same_recipe(report, hosts, recipe)
  local own = require("moonreel.settings").bake(recipe).hash
  for _, row in ipairs(ask(hosts, "recipe", { recipe = recipe, dir = process.real_path "." })) do
    local hash = row.answer and row.answer.hash
    report:add(row.host, "recipe", hash == own and "ok" or "wrong", not hash and row.reason
      or hash == own and hash or ("%s, but %s here; expected the same files; try: copy the "
      .. "recipe to this host"):format(hash, own))
  end
end

-- checks that all hosts use one file system: they can read what this host writes
local function same_store(report, hosts, dir)
  base.make_dir(dir)
  local path = ("%s/.moonreel-doctor-%d"):format(process.real_path(dir), base.pid())
  local text = ("%s %.9f"):format(path, base.wall_s())
  base.replace_file(path, text)
  for _, row in ipairs(ask(hosts, "store", { path = path, text = text })) do
    local shared = row.answer and row.answer.shared
    report:add(row.host, "store", shared and "ok" or "wrong", shared and dir
      or row.reason or dir .. " is not the same folder here; try: a file system of all hosts")
  end
  os.remove(path)
end

local function clocks(report, hosts)
  for i, row in ipairs(clock.measure(hosts)) do
    local a = row.answer
    if not hosts.cluster.links[i].gone then
      report:add(row.host, "clock", a and CLOCK[a.verdict] or "wrong",
        a and ("%s +- %s, %s"):format(clock.text(a.offset_s, true), clock.text(a.bound_s),
          a.verdict)
          or row.reason)
    end
  end
end

local function links_between(report, opts)
  local found, problem = links.measure(opts)
  report:add("all", "links", found and "ok" or "wrong", found
    and ("%s per host in a sum of all"):format(speed.text(found.sum)) or problem)
  local rows, slowest = speed.judge(found or { hosts = {}, rate = {} })
  for _, row in ipairs(rows) do
    report:add(row.host, "links", row.fault and "wrong" or "ok", row.fault
      or ("sends %s, receives %s, %.2f ms there and back"):format(speed.text(row.sends),
        speed.text(row.receives), row.way_s * 1e3))
  end
  if slowest.slow then
    report:add("all", "slow link", "wrong", speed.describe(slowest))
  end
end

local function own_checks(report, hosts, dir)
  for _, row in ipairs(ask(hosts, "doctor", { outputs = dir })) do
    local fine = 0
    for _, check in ipairs(row.answer or {}) do
      if check.state == "ok" then
        fine = fine + 1
      else
        report:add(row.host, check.what, check.state, check.text)
      end
    end
    report:add(row.host, "checks", row.answer and "ok" or "wrong",
      row.answer and fine .. " ok" or row.reason)
  end
end

--- Runs the checks; the exit code is 6 if a host did not answer.
---@param opts table          hostfile, include, exclude, outputs
---@param recipe string|nil
---@return table[] rows       {host, what, state, text}
---@return integer exit code  0, or 6
function preflight.rows(opts, recipe)
  local hosts <close>, report = survey.open(opts), setmetatable({}, Report)
  local missing = 0
  for _, link in ipairs(hosts.cluster.links) do
    if link.gone then
      missing = missing + 1
      report:add(link.host.name, "host", "wrong", link.gone)
    end
  end
  same_program(report, hosts)
  if recipe then
    same_recipe(report, hosts, recipe)
  end
  same_store(report, hosts, opts.outputs)
  clocks(report, hosts)
  own_checks(report, hosts, opts.outputs)
  if missing == 0 then
    links_between(report, opts)
  end
  return setmetatable(report, nil), missing > 0 and 6 or 0
end

return preflight
