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

-- seconds: between two heartbeats; without a heartbeat until a side is lost; for a last checkpoint
-- when the launcher is lost; between the message, SIGTERM and SIGKILL
local BEAT_S, SILENT_S, SAVE_S, GRACE_S = 2, 30, 15, 5
local TERM <const> = 15

local Node = {}
Node.__index = Node

function Node:say(message)
  self.there = self.io.output:write(frames.encode(message)) and self.there
end

-- ---- requests of the launcher ----

local orders = {}

-- Reserves the port of rank 0: at the address that the launcher chooses; else at the address by
-- which other hosts reach this host, if it is an address of this host; else at all addresses.
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

-- the streams of ranks: their standard output is "out", the rest is "err"
local STREAMS <const> = { out = "lines", err = "errors" }

-- the launcher no longer reads the output
function orders.drop(self, order)
  local name = STREAMS[order.what]
  self.io[name]:close()
  self.io[name] = nil
end

-- a slow question is answered between two turns of the main loop
function orders.ask(self, order)
  local answer = assert(self.answers[order.what], "there is no such question")
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
  local act = orders[order.kind] or error("there is no such request", 0)
  local good, problem = pcall(act, self, order)
  if not good then
    fail(self, problem)
  end
end

-- continues the answer as far as possible without waiting
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

-- ---- main loop ----

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

-- the streams that it reads
local function open_streams(self)
  local list = { self.there and self.io.input or nil }
  for _, name in pairs(STREAMS) do
    list[#list + 1] = self.io[name]
  end
  return list
end

-- reports ranks of this host that hang, and ends them if they hang too long
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

-- reports a failure at once, and the end of all ranks
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

-- The launcher is lost. The helpers on the other hosts notice the same, so all ranks save together;
-- ranks that do not end are terminated later. A second request would end them immediately.
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

--- Serves the launcher on this process's input and output until the launcher disconnects.
---@param answers table<string, fun(order: table): table>  functions that answer questions, by name
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
