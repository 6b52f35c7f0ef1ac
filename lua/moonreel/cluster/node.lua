--- The helper on a host, which the launcher starts through the remote shell. It starts the ranks of
-- its host, forwards their output and their end, and answers questions. If the launcher ends or
-- becomes silent, the helper ends everything that it has started.
-- @module moonreel.cluster.node
local base = require "moonreel.core.base"
local build = require "moonreel.cluster.build"
local core = require "moonreel.core.launch"
local frames = require "moonreel.cluster.frames"
local json = require "moonreel.core.json"
local launch = require "moonreel.comm.launch"
local process = require "moonreel.core.process"
local stream = require "moonreel.core.stream"
local watch = require "moonreel.life.watch"

local node = {}

-- seconds: between two signs of life; without one; for a last checkpoint when the launcher is lost;
-- between the message, SIGTERM and SIGKILL
local BEAT_S, SILENT_S, SAVE_S, GRACE_S = 2, 30, 15, 5
local TERM <const> = 15

local Node = {}
Node.__index = Node

function Node:say(message)
  self.there = self.io.output:write(frames.encode(message)) and self.there
end

-- ---- what the launcher asks for ----

local orders = {}

-- the port at which rank 0 will listen: where the launcher chooses, else at the address by which
-- other hosts know this one, where it is one of this host's own; else everywhere
function orders.listen(self, order)
  local addr = order.addr and (order.addr:match "^[%d.]+$" or order.addr:match ":") and order.addr
  local own, fd, port = pcall(core.listen, order.at or addr)
  if not own then
    fd, port = core.listen(order.at)
  end
  process.set("MOONREEL_LISTENER", tostring(fd))
  self:say { kind = "port", port = port }
end

function orders.start(self, order)
  for _, variable in ipairs(order.env) do
    local name, value = variable:match("^([^=]+)=(.*)$")
    process.set(name, value)
  end
  process.set("MOONREEL_SECRET", tostring(core.hide(order.secret)))
  process.enter(order.dir)
  self.running = core.start(order.words, math.tointeger(tonumber(order.ranks)), {
    first = math.tointeger(tonumber(order.first)), world = math.tointeger(tonumber(order.world)),
    grace_s = GRACE_S })
  self.patience = tonumber(order.patience)
  if order.watch then
    self.page = self.running:page()
    self.eye = watch.new(self.page, json.decode(order.watch))
  end
end

function orders.signal(self, order)
  if self.running then
    self.requested = true
    self.running:signal(math.tointeger(tonumber(order.number)))
  end
end

-- another host has failed
function orders.stop(self, order)
  if self.running then
    self.reported = true
    self.running:stop(order.text)
  end
end

-- Where the streams of ranks go: what they print as "out", the rest as "err".
local STREAMS <const> = { out = "lines", err = "errors" }

-- no one reads them any more
function orders.drop(self, order)
  local name = STREAMS[order.what]
  self.io[name]:close()
  self.io[name] = nil
end

-- what takes its time waits between two turns of the helper's day
function orders.ask(self, order)
  local answer = assert(self.answers[order.what], "no such question")
  self.asked[#self.asked + 1] = coroutine.create(function()
    local value, bytes = answer(order, coroutine.yield)
    return json.encode(value), bytes
  end)
end

function orders.beat() end

local function fail(self, problem)
  self:say { kind = "failed", code = type(problem) == "table" and problem.code or "MR_E_FAIL",
    text = type(problem) == "table" and problem.message or tostring(problem) }
end

local function obey(self, order)
  local act = orders[order.kind] or error("no such order", 0)
  local good, problem = pcall(act, self, order)
  if not good then
    fail(self, problem)
  end
end

-- go on with what was asked, as far as it goes without waiting
local function answer(self)
  for i = #self.asked, 1, -1 do
    local good, result, bytes = coroutine.resume(self.asked[i])
    if coroutine.status(self.asked[i]) == "dead" then
      table.remove(self.asked, i)
      if good then
        self:say { kind = "answer", json = result, bytes = bytes }
      else
        fail(self, result)
      end
    end
  end
end

-- ---- its day ----

local function hear(self)
  local bytes = self.io.input:read()
  if not bytes then
    self.there = false
  elseif bytes ~= "" then
    self.heard = base.now_s()
    local good, list = pcall(self.reader.feed, self.reader, bytes)
    if not good then
      self.there = false
      return
    end
    for _, order in ipairs(list) do
      obey(self, order)
    end
  end
end

local function pass_on(self, kind)
  local stream_of_ranks = self.io[STREAMS[kind]]
  local text = stream_of_ranks and stream_of_ranks:read() or ""
  if text ~= "" then
    self:say { kind = kind, text = text }
  end
  return text ~= ""
end

local function pass_all(self)
  local more = pass_on(self, "out")
  return pass_on(self, "err") or more
end

-- the streams that it listens to
local function open_streams(self)
  local list = { self.there and self.io.input or nil }
  for _, name in pairs(STREAMS) do
    list[#list + 1] = self.io[name]
  end
  return list
end

-- ranks of this host that stand still are reported, and ended when they do so for too long
local function look_at_ranks(self)
  for _, event in ipairs(self.eye:look()) do
    self:say { kind = "err", text = ("moonreel: host %s: %s\n"):format(
      os.getenv "MOONREEL_HOST", event.text) }
  end
  local standing, times = self.eye:standing()
  if standing and times > self.patience then
    self.running:fail(standing.rank, standing.text)
    self.eye, self.named = nil, "yes"
  end
end

-- how it went, as soon as one has failed and when all have ended
local function tell_ends(self, left)
  local ended = self.running:ended()
  local message = { exit = ended.exit, rank = ended.rank or -1, text = ended.text or "",
    named = self.named }
  if ended.rank and not self.failed then
    self.failed, message.kind = true, "rank"
    self:say(message)
  end
  if left == 0 then
    repeat until not pass_all(self)
    local dir, step, met = launch.stand(self.running:page())
    message.kind, message.run, message.step = "ended", dir, step
    message.met = met and "yes" or "no"
    self:say(message)
    self.running:close()
    self.running, self.eye = nil, nil
  end
end

-- The launcher is lost. Its other hosts find the same, so that all ranks save together; where they
-- do not, they are ended. A second request would end them at once.
local function let_end(self, now)
  if not self.lost then
    self.lost = now
    if not self.requested then
      self.running:signal(TERM)
    end
  elseif now - self.lost > SAVE_S then
    self.reported = true
    self.running:stop(("the launcher of host %s is lost"):format(self.host))
  end
end

local function beat(self)
  local now = base.now_s()
  if now - self.beaten >= BEAT_S then
    self.beaten = now
    self:say { kind = "beat" }
  end
  if self.there and now - self.heard > SILENT_S then
    self.there = false
  end
  if not self.there and self.running and not self.reported then
    let_end(self, now)
  end
end

--- Serve the launcher at this process's input and output until it hangs up.
---@param answers table<string, fun(order: table): table>  to questions, by their name
---@return integer exit code
function node.run(answers)
  local now = base.now_s()
  local self = setmetatable({ io = stream.standard(), reader = frames.reader(true), there = true,
    heard = now, beaten = now, answers = answers, asked = {},
    host = base.read_file("/proc/sys/kernel/hostname"):match("%S*") }, Node)
  self.io.output:write(frames.GREETING)
  self:say { kind = "hello", version = require("moonreel.app").version,
    program = build.here().program, plugins = build.here().plugins, host = self.host }
  while self.there or self.running do
    stream.wait(open_streams(self), 50)
    if self.there then
      hear(self)
    end
    answer(self)
    pass_all(self)
    if self.running then
      tell_ends(self, self.running:look(0))
    end
    if self.eye then
      look_at_ranks(self)
    end
    self.io.output:write("")
    beat(self)
  end
  return 0
end

return node
