--- The launcher's side of several hosts: a helper on each, started through the remote shell, and
-- their answers. Hosts that cannot be reached, or become silent, are given up with a reason; the
-- others continue.
-- @module moonreel.cluster.remote
local base = require "moonreel.core.base"
local build = require "moonreel.cluster.build"
local frames = require "moonreel.cluster.frames"
local process = require "moonreel.core.process"
local stream = require "moonreel.core.stream"

local remote = {}

-- the number of hosts called at once, and seconds: until a host must have answered, between two
-- heartbeats, without a heartbeat until a host is lost, for a helper to end
local FAN_OUT, ANSWER_S, BEAT_S, SILENT_S, CLOSE_S = 64, 15, 2, 20, 1
local MOST <const>, PIPES <const> = 2048, 3 -- the most hosts; pipes to a remote shell

-- the messages that helpers send, and the texts in each
local SAYS = { hello = { "program", "version" }, beat = {}, port = { "port" }, out = { "text" },
  err = { "text" }, rank = { "text", "exit" }, ended = { "text", "exit" }, failed = { "text" },
  answer = { "json" } }

---@class moonreel.cluster.Link
---@field host moonreel.comm.Host
---@field up boolean        its helper has answered
---@field gone string|nil   why it is lost
---@field hello table       the first message of the helper
---@field said string[]     the last lines of its remote shell

--- Describes a host whose helper is another build than this program; nil: the builds are the same.
---@param link moonreel.cluster.Link
---@return string|nil
function remote.other_build(link) return link.hello and build.other(link.hello) end

--- The words that start the helper on a host. MOONREEL_RSH replaces ssh.
---@param host moonreel.comm.Host
---@return string[]
function remote.words(host)
  local words, program = {}, process.program()
  for word in (os.getenv "MOONREEL_RSH" or ""):gmatch("%S+") do
    words[#words + 1] = word
  end
  words[1] = words[1] or "ssh"
  -- ssh passes the rest to a login shell, so the words must need no quoting
  if not program:match("^[%w_./+-]+$") then
    base.raise("MR_E_NODE", ("%s: a remote shell would misread this path; try: a path of letters, "
      .. "digits and ._/+-"):format(program))
  end
  local own = words[1]:match("[^/]*$") == "ssh" and { "-o", "BatchMode=yes", "-o",
    "ConnectTimeout=5" } or {}
  if host.port then
    own[#own + 1], own[#own + 2] = "-p", tostring(host.port)
  end
  table.move(own, 1, #own, #words + 1, words)
  local name = host.user and host.user .. "@" .. host.name or host.name
  return table.move({ "--", name, program, "node" }, 1, 4, #words + 1, words)
end

local Cluster = {}
Cluster.__index = Cluster

local function start(link)
  local good, child = pcall(stream.spawn, remote.words(link.host))
  link.heard, link.began = base.now_s(), base.now_s()
  if not good then
    link.gone = child.message
    return
  end
  link.child, link.reader = child, frames.reader()
end

-- Waits a moment, once for all of them, for children that are no longer needed to end by
-- themselves. Returns the exit code of the last.
local function end_all(children)
  local ends, code = base.now_s() + CLOSE_S, nil
  for _, child in ipairs(children) do
    child.input:close()
  end
  for _, child in ipairs(children) do
    repeat
      code = stream.reap(child.pid)
      stream.wait({}, code and 0 or 5)
    until code or base.now_s() > ends
    child.output:close()
    child.errors:close()
    code = code or stream.reap(child.pid, true)
  end
  return code
end

-- the children of links, which are removed from them
local function children_of(links)
  local list = {}
  for _, link in ipairs(links) do
    list[#list + 1], link.child = link.child, nil
  end
  return list
end

-- marks hosts as lost, each with its reason
local function lose(reasons)
  local links = {}
  for link, reason in pairs(reasons) do
    local last = link.said[#link.said]
    link.gone = reason .. (not link.up and last and ": " .. last or "")
    links[#links + 1] = link
  end
  end_all(children_of(links))
end

--- Calls all hosts; returns when each host has answered or is lost.
---@param list moonreel.comm.Host[]
---@return table cluster  links: moonreel.cluster.Link[], in the order of the list
function remote.open(list)
  if #list > MOST then
    base.raise("MR_E_USAGE", ("%d hosts: expected at most %d at once; try: --include, --exclude, "
      .. "or srun or mpirun, which start ranks by themselves"):format(#list, MOST))
  end
  require("moonreel.core.launch").allow_files(#list * PIPES, #list .. " hosts")
  local self = setmetatable({ links = {}, beat = base.now_s() }, Cluster)
  for i, host in ipairs(list) do
    self.links[i] = { host = host, said = {}, up = false, heard = 0 }
  end
  local waiting = 1
  repeat
    local calling, open = 0, false
    for _, link in ipairs(self.links) do
      if link.child and not link.up then
        calling = calling + 1
      end
    end
    while calling < FAN_OUT and self.links[waiting] do
      start(self.links[waiting])
      waiting, calling = waiting + 1, calling + 1
    end
    self:turn(50)
    local late = {}
    for _, link in ipairs(self.links) do
      if link.child and not link.up and base.now_s() - link.began > ANSWER_S then
        late[link] = ("it did not answer within %d s"):format(ANSWER_S)
      end
      open = open or not (link.up or link.gone or late[link])
    end
    lose(late)
  until not open
  return self
end

-- the lines that the remote shell itself prints
local function listen_to_shell(link)
  local text = link.child.errors:read()
  link.quiet = not text
  text = text or ""
  for line in text:gmatch("[^\r\n]+") do
    link.said[#link.said + 1] = base.printable(line):sub(1, 300)
    if #link.said > 5 then
      table.remove(link.said, 1)
    end
  end
end

-- decodes messages; raises a text if a helper of this build would not send them
local function understand(reader, bytes)
  local messages = reader:feed(bytes)
  for _, message in ipairs(messages) do
    local sound = SAYS[message.kind] ~= nil
    for _, name in ipairs(SAYS[message.kind] or {}) do
      sound = sound and message[name] ~= nil
    end
    for name, value in pairs(message) do
      sound = sound and type(value) == "string" and (name ~= "exit" or value:match("^%d+$") ~= nil)
    end
    if not sound then
      error(("it sent the message '%s', which no helper of this build sends"):format(
        base.printable(message.kind):sub(1, 40)), 0)
    end
  end
  return messages
end

local function listen_to(link, events)
  local bytes = link.child.output:read()
  listen_to_shell(link)
  if not bytes then
    -- its last message may still arrive
    for _ = 1, 20 do
      if not stream.wait({ link.child.errors }, 10) then
        break
      end
      listen_to_shell(link)
    end
    local code = end_all(children_of { link })
    link.gone = (link.up and "its helper has ended" or "it cannot be reached")
      .. (", exit code %d"):format(code)
      .. (link.said[#link.said] and ": " .. link.said[#link.said] or "")
    events[#events + 1] = { link = link, kind = "gone" }
    return
  elseif bytes == "" then
    return
  end
  link.heard = base.now_s()
  local good, messages = pcall(understand, link.reader, bytes)
  if not good then
    lose { [link] = tostring(messages) }
    events[#events + 1] = { link = link, kind = "gone" }
    return
  end
  for _, message in ipairs(messages) do
    if message.kind == "hello" then
      link.up, link.hello = true, message
    elseif message.kind ~= "beat" then
      message.link = link
      events[#events + 1] = message
    end
  end
end

local function watch(self, events)
  local now = base.now_s()
  local beat = now - self.beat >= BEAT_S
  self.beat = beat and now or self.beat
  local silent = {}
  for _, link in ipairs(self.links) do
    if link.up and link.child then
      if beat then
        link.child.input:write(frames.encode { kind = "beat" })
      end
      if now - link.heard > SILENT_S then
        silent[link] = ("no message from it for %d s; try: check that the host is up and that the "
          .. "network reaches it")
          :format(SILENT_S)
        events[#events + 1] = { link = link, kind = "gone" }
      end
    end
  end
  lose(silent)
end

--- Waits at most `ms` for messages of hosts. Each message has its link; {kind = "gone"} reports a
-- host that is lost.
---@param ms integer
---@return table[]
function Cluster:turn(ms)
  local streams, events = {}, {}
  for _, link in ipairs(self.links) do
    if link.child then
      streams[#streams + 1] = link.child.output
      streams[#streams + 1] = not link.quiet and link.child.errors or nil
    end
  end
  if stream.wait(streams, ms) then
    for _, link in ipairs(self.links) do
      if link.child then
        listen_to(link, events)
      end
    end
  end
  -- writes what could not be written before
  for _, link in ipairs(self.links) do
    if link.child then
      link.child.input:write("")
    end
  end
  watch(self, events)
  return events
end

--- Sends a message to one host, or to all hosts that are reachable.
---@param message table
---@param link moonreel.cluster.Link|nil
function Cluster:tell(message, link)
  for _, one in ipairs(self.links) do
    if one.child and one.up and (one == link or not link) then
      one.child.input:write(frames.encode(message))
    end
  end
end

--- Asks all hosts the same question. Returns {host, answer or reason} in the order of the list.
---@param question table  a message
---@param deadline_s number
---@return table[]
function Cluster:ask(question, deadline_s)
  local answers, open, ends = {}, 0, base.now_s() + deadline_s
  for _, link in ipairs(self.links) do
    open = open + (link.child and 1 or 0)
  end
  self:tell(question)
  while open > 0 and base.now_s() < ends do
    for _, event in ipairs(self:turn(50)) do
      if not answers[event.link] then
        event.came_s = base.now_s()
        answers[event.link], open = event, open - 1
      end
    end
  end
  local list = {}
  for i, link in ipairs(self.links) do
    local event = answers[link]
    list[i] = { host = link.host.name, came_s = event and event.came_s,
      answer = event and event.kind == "answer" and event or nil,
      reason = link.gone or event and event.text
        or not event and ("it did not answer within %g s"):format(deadline_s) or nil }
  end
  return list
end

--- Disconnects; helpers then end by themselves.
function Cluster:close()
  end_all(children_of(self.links))
end
Cluster.__close = Cluster.close

return remote
