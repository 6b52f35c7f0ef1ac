--- Copies the checkpoints of a run on another host, without the state of its optimizer, through the
-- remote shell. Copied checkpoints are complete: the checkpoint writer commits shards, then the
-- manifest, by one rename.
-- @module moonreel.watch.pull
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local hosts = require "moonreel.comm.hosts"
local json = require "moonreel.core.json"
local remote = require "moonreel.cluster.remote"

local pull = {}

-- bytes of a message; seconds: for an answer, until a silent helper is called again, between calls
local CHUNK <const>, ANSWER_S <const>, SILENT_S <const>, AGAIN_S <const> = 1 << 19, 120, 15, 10
local MARK <const> = "pulled.json" -- marks a folder as a copy

local Pull = {}
Pull.__index = Pull

-- parses HOST:RUN; HOST may have a user, and is in brackets if it contains colons
local function parse(text)
  local host, path = text:match "^(%S-%[[^%]]+%]):(.+)$"
  if not host then
    host, path = text:match "^([^:%s]+):(.+)$"
  end
  if not host then
    base.raise("MR_E_USAGE", ("watch: --pull: expected HOST:RUN, got '%s'"):format(text))
  end
  return hosts.parse(host, "--pull"), path
end

--- Begins to copy checkpoints.
---@param text string      HOST:RUN
---@param dir string|nil   target folder; nil: pulled/NAME
---@param o table          last_step: checkpoints up to it are not copied; note: fun(line)
---@return table           dir; pull(): copies new checkpoints, true when the run has ended; close()
function pull.open(text, dir, o)
  local list, path = parse(text)
  dir = dir or "pulled/" .. path:gsub("/+$", ""):match "[^/]+$"
  if base.exists(dir .. "/lock") and not base.exists(dir .. "/" .. MARK) then
    base.raise("MR_E_USAGE", ("watch: --pull: %s is the folder of another run; expected a folder "
      .. "for copies; try: another folder as RUN"):format(dir))
  end
  local self = setmetatable({ hosts = list, path = path, dir = dir, note = o.note,
    last_step = o.last_step or -1, heard_s = 0, tried_s = -AGAIN_S }, Pull)
  self:checkpoints()
  base.make_dir(dir .. "/ckpt")
  base.replace_file(dir .. "/" .. MARK, json.encode { from = text } .. "\n")
  return { dir = dir, pull = function() return self:look() end,
    close = function() self:close() end }
end

function Pull:close()
  if self.cluster then
    self.cluster:close()
    self.cluster = nil
  end
end

-- connects to a helper on the host, unless one is connected
local function connected(self)
  if self.cluster and base.now_s() - self.heard_s > SILENT_S then
    self:close()
  end
  self.cluster = self.cluster or remote.open(self.hosts)
  return self.cluster
end

-- asks the host; raises MR_E_NODE if it does not answer
local function ask(self, what, more)
  local question = { kind = "ask", what = what }
  for key, value in pairs(more) do
    question[key] = value
  end
  local cluster = connected(self)
  local row = cluster:ask(question, ANSWER_S)[1]
  local other = remote.other_build(cluster.links[1])
  self.heard_s = base.now_s()
  if other or not row.answer then
    if cluster.links[1].gone then
      self:close()
    end
    base.raise("MR_E_NODE", ("%s: %s"):format(row.host, other or row.reason))
  end
  return json.decode(row.answer.json), row.answer.bytes
end

-- the steps on the host, and whether the run has ended
function Pull:checkpoints()
  local found = ask(self, "checkpoints", { run = self.path })
  self.remote_dir = found.dir
  return found.steps, found.ended
end

-- the bytes of a tensor
local function fetch(self, step, info)
  local parts = {}
  for offset = 0, info.bytes - 1, CHUNK do
    local count = math.min(CHUNK, info.bytes - offset)
    local _, bytes = ask(self, "tensor", { dir = self.remote_dir, step = step, name = info.name,
      offset = offset, count = count })
    if #(bytes or "") ~= count then
      base.raise("MR_E_NODE", ("step %d: received %d of %d bytes of '%s'"):format(step, #(bytes
        or ""),
        count, info.name))
    end
    parts[#parts + 1] = bytes
  end
  return table.concat(parts)
end

-- copies one checkpoint
local function copy(self, step)
  local about = ask(self, "checkpoint", { dir = self.remote_dir, step = step })
  local rows = {}
  for i, info in ipairs(about.tensors) do
    rows[i] = { name = info.name, dtype = info.dtype, shape = info.shape, bytes = info.bytes,
      ptr = fetch(self, step, info) }
  end
  local meta = about.manifest
  local saver <close> = ckpt.saver(self.dir, { keep = -1 })
  saver:save { step = step, tensors = rows, wait = true, meta = { recipe_hash = meta.recipe_hash,
    dataset_fingerprint = meta.dataset_fingerprint, sampler = meta.sampler, seed = meta.seed,
    machine = meta.machine, settings = meta.settings, name = meta.name, dtype = meta.dtype,
    parent = meta.parent, run_state = meta.run_state } }
  saver:wait()
end

-- copies new checkpoints, oldest first
local function bring(self)
  local steps, ended = self:checkpoints()
  local here = {}
  for _, step in ipairs(ckpt.steps(self.dir)) do
    here[step] = true
  end
  table.sort(steps)
  for _, step in ipairs(steps) do
    if step > self.last_step and not here[step] then
      local good, why = pcall(copy, self, step)
      if not good then
        self.note(("step %d is not copied: %s"):format(step, tostring(why)))
        error(why, 0)
      end
    end
  end
  return ended
end

--- Copies what is new. A host that cannot be reached is asked again later.
---@return boolean ended  the run has ended, and all of its checkpoints are copied
function Pull:look()
  if base.now_s() - self.tried_s < AGAIN_S then
    return false
  end
  local good, ended = pcall(bring, self)
  if good then
    self.missed = nil
    return ended
  elseif type(ended) == "table" and ended.code == "MR_E_STOPPED" then
    error(ended, 0)
  end
  self.tried_s = base.now_s()
  if self.missed ~= tostring(ended) then
    self.missed = tostring(ended)
    self.note(("%s; it is tried again every %d s"):format(self.missed, AGAIN_S))
  end
  return false
end

return pull
