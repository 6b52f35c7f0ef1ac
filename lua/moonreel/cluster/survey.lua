--- Asks all hosts of a file, or this host alone; shared by the commands about hosts.
-- @module moonreel.cluster.survey
local answers = require "moonreel.cluster.answers"
local base = require "moonreel.core.base"
local hosts = require "moonreel.comm.hosts"
local remote = require "moonreel.cluster.remote"

local survey = {}

local ANSWER_S = 20

--- Options of these commands.
survey.options = {
  { "--hostfile FILE", "file that lists the hosts (default: only this host)" },
  { "--include HOSTS", "only these hosts, as a,b" },
  { "--exclude HOSTS", "all hosts except these" },
  { "--json", "print JSON" },
}

local Survey = {}
Survey.__index = Survey
function Survey:close()
  if self.cluster then
    self.cluster:close()
  end
end
Survey.__close = Survey.close

--- Connects to the hosts that the options name.
---@param opts table  hostfile, include, exclude
---@param own table|nil  further answers of this host (default: moonreel.cluster.answers)
function survey.open(opts, own)
  local self = setmetatable({ own = own or answers }, Survey)
  if opts.hostfile then
    self.cluster = remote.open(hosts.filter(hosts.read(opts.hostfile), opts.include, opts.exclude))
  elseif opts.include or opts.exclude then
    base.raise("MR_E_USAGE", "--include and --exclude need --hostfile, whose hosts they choose "
      .. "from")
  end
  return self
end

--- Asks all hosts the same question: {host, answer} or {host, reason}, in the order of the file.
---@param what string
---@param more table|nil  fields of the question
---@param wait_s number|nil  additional time for the answer
---@return table[]
function Survey:ask(what, more, wait_s)
  local question = { kind = "ask", what = what }
  for key, value in pairs(more or {}) do
    question[key] = value
  end
  if not self.cluster then
    return { { host = answers.hostname(), answer = self.own[what](question) } }
  end
  local rows = self.cluster:ask(question, ANSWER_S + (wait_s or 0))
  for i, row in ipairs(rows) do
    local other = remote.other_build(self.cluster.links[i])
    if other then
      row.answer, row.reason = nil, other
    elseif row.answer then
      row.answer = require("moonreel.core.json").decode(row.answer.json)
    end
  end
  return rows
end

--- Have all hosts answered?
---@param rows table[]  of ask
---@return boolean
function survey.all_there(rows)
  for _, row in ipairs(rows) do
    if not row.answer then
      return false
    end
  end
  return true
end

--- Prints why each missing host has not answered, unless the output is JSON.
---@param rows table[]  of ask
---@param opts table
---@return integer exit code  6 if a host has not answered
function survey.tell_missing(rows, opts)
  local code = 0
  for _, row in ipairs(rows) do
    if not row.answer then
      code = 6
      io.write(opts.json and "" or ("host %s: %s\n"):format(row.host, row.reason))
    end
  end
  return code
end

--- Prints rows about hosts. For hosts that did not answer it prints the reason. The exit code is 0
-- only if all hosts have answered.
---@param rows table[]     result of ask; JSON contains them unchanged
---@param columns table[]  columns of the table after the host
---@param lines fun(row: table): table[]  makes the lines of one host's answer
---@param opts table
---@return integer exit code
function survey.print(rows, columns, lines, opts)
  local list = {}
  for _, row in ipairs(rows) do
    for _, line in ipairs(row.answer and lines(row) or {}) do
      line.host = row.host
      list[#list + 1] = line
    end
  end
  if opts.json then
    for _, row in ipairs(rows) do
      row.came_s = nil
    end
    print(require("moonreel.core.json").encode(rows))
  elseif #list > 0 then
    require("moonreel.text.table").print({ { key = "host" }, table.unpack(columns) }, list, {})
  end
  return survey.tell_missing(rows, opts)
end

--- Runs a whole command: asks all hosts, judges each answer and prints the result.
---@param command table    its options are survey.options
---@param args string[]    of the command line
---@param what string      the question
---@param judge fun(answer: table)  adds conclusions to an answer
---@param columns table[]  as for survey.print, as is `lines`
---@param lines fun(row: table): table[]
---@param more fun(rows: table[], opts: table)|nil  adds to the answers of all hosts
---@return integer exit code
function survey.run(command, args, what, judge, columns, lines, more)
  local opts = require("moonreel.settings.words").parse(args, command).options
  local asked <close> = survey.open(opts)
  local rows = asked:ask(what)
  if more and survey.all_there(rows) then
    more(rows, opts)
  end
  for _, row in ipairs(rows) do
    if row.answer then
      judge(row.answer)
    end
  end
  return survey.print(rows, columns, lines, opts)
end

return survey
