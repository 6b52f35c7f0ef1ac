--- Checkpoints: open and read them, save them while training continues, find the right one.
-- Reference: reliability.md section 3; C side: core/include/moonreel/ckpt.h.
-- @module moonreel.ckpt
local core = require "moonreel.core.ckpt"
local core_run = require "moonreel.core.run"
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local options = require "moonreel.text.options"
local run = require "moonreel.run"

local ckpt = {}

---@class mr.Checkpoint
---@field path string       what was opened
---@field step integer?     nil for plain weights
--- @field manifest table? what the manifest says apart from files and tensors; nil for plain
-- weights
---@field metadata table    __metadata__ of a plain file
local Checkpoint = {}
Checkpoint.__name = "mr.Checkpoint"

local function wrap(handle)
  local text = handle:manifest()
  return setmetatable({
    handle = handle,
    path = handle:path(),
    step = handle:step(),
    bytes = handle:bytes(),
    manifest = text and json.decode(text, handle:path() .. "/MANIFEST.json") or nil,
    metadata = handle:metadata(),
  }, Checkpoint)
end

--- Names of all tensors, in file order.
---@return string[]
function Checkpoint:names() return self.handle:names() end

--- {name, dtype, shape, bytes} of one tensor, or nil.
function Checkpoint:info(name) return self.handle:info(name) end

--- {name, why} of tensors that are in the file and cannot be read.
---@return table[]
function Checkpoint:refused() return self.handle:refused() end

--- Read a tensor: as raw bytes, or straight to a place in host memory.
-- read(name) and read(name, offset, n) return text; read(name, pointer, bytes) fills `bytes` bytes
-- at a lightuserdata, which must be the whole tensor. Bytes of a checkpoint are compared with their
-- hash first.
function Checkpoint:read(name, where, n)
  if type(where) == "userdata" then
    return self.handle:read_into(name, where, n)
  end
  return self.handle:read(name, where, n)
end

--- Read tensors or parts of them, in one go and in the order of the files: of a checkpoint no block
-- is read that holds none of them.
---@param rows table[]  {name =, ptr = place in host memory, bytes =}, and of a part range = {from,
---   to} (elements of the flattened tensor, from 0) or box = {{from, to}, ...} (per dimension)
function Checkpoint:read_slices(rows) self.handle:read_slices(rows) end

--- Bytes read from the files of a checkpoint since it was opened.
---@return integer
function Checkpoint:bytes_read() return self.handle:bytes_read() end

--- {n, zeros, nonfinite, min, max, mean, rms} of one tensor, over its finite elements.
function Checkpoint:stats(name) return self.handle:stats(name) end

--- {n, differing, first, max_abs, distance} between a tensor and one of another checkpoint (of the
-- same name unless given), bit for bit.
function Checkpoint:compare(other, name, name_there)
  return self.handle:compare(other.handle, name, name_there)
end

--- Read every byte and compare all hashes, or the CRCs of weights of torch; raises when one
-- differs. Readers that load a checkpoint together verify a share each: as many bytes, to one MiB,
-- whatever the files; together each byte once.
---@param part integer|nil   which of them, from 1 on; nil: all of it
---@param parts integer|nil  how many there are
---@return table|nil rows  {verified = path, tensors, bytes}: prints as a line; nil of a share
function Checkpoint:verify(part, parts)
  self.handle:verify(part, parts)
  if part then
    return
  end
  rawset(self, "verified", true)
  local listing = require "moonreel.text.listing"
  return listing.new({ { verified = self.path, tensors = #self:names(), bytes = self.bytes } },
    { { key = "verified" }, { key = "tensors", right = true },
      { key = "bytes", title = "size", right = true, format = listing.size } },
    self.manifest and "every byte is as its hash says" or "every byte is as its CRC says")
end

--- Close the files; harmless twice.
function Checkpoint:close() self.handle:close() end
Checkpoint.__close = Checkpoint.close

function Checkpoint:__tostring() return ("mr.Checkpoint: %s"):format(self.path) end

-- fields that not every checkpoint has
local absent = { manifest = true, step = true, verified = true }

-- what looks into it (ls, tree, settings, a tensor by name) comes from moonreel.ckpt.look, on first
-- use
function Checkpoint:__index(key)
  if Checkpoint[key] ~= nil then
    return Checkpoint[key]
  end
  if type(key) ~= "string" or absent[key] or not rawget(self, "handle") then
    return nil
  end
  local look = require "moonreel.ckpt.look"
  return look.methods[key] or look.field(self, key)
end

function Checkpoint.__methods()
  local all = { settings = true, lineage = true }
  for key in pairs(Checkpoint) do
    all[key] = true
  end
  return setmetatable(all, { __methods = require("moonreel.ckpt.look").methods })
end

--- Open a checkpoint directory, a .safetensors file, its index file, or a folder with one of these.
---@return mr.Checkpoint
function ckpt.open(path) return wrap(core.open(path)) end

--- Open a file that lies in the folder of released weights; nil: there is none.
---@param source mr.Checkpoint
---@param name string
---@return mr.Checkpoint|nil
function ckpt.beside(source, name)
  local path = source.path .. "/" .. name
  return not source.manifest and base.exists(path) and ckpt.open(path) or nil
end

--- Open the newest valid checkpoint of a run directory; damaged ones are passed over.
---@param run_dir string
---@param lock userdata?  the run's lock: damaged directories are set aside as .bad-
---@return mr.Checkpoint
---@return string[] notes  one line per checkpoint passed over
function ckpt.newest(run_dir, lock)
  local handle, notes = core.open_newest(run_dir, lock)
  return wrap(handle), notes
end

--- Steps committed in a run directory, newest first.
---@return integer[]
function ckpt.steps(run_dir) return core.steps(run_dir) end

local KEPT, READ_BACK = 3, 2

--- How many checkpoints a run keeps: never fewer than the two that passed a read-back.
---@param n integer|nil  keep_n_latest
---@return number  math.huge: all
function ckpt.kept(n)
  n = n or KEPT
  return n > 0 and math.max(n, READ_BACK) or math.huge
end

--- Remove the checkpoints of steps after this one, which the run leaves behind, the newest first.
---@param lock userdata  of the run
---@param step integer
function ckpt.drop_after(lock, step) core.drop_after(lock, step) end

--- The directory of one step of a run.
function ckpt.dir(run_dir, step) return ("%s/ckpt/step-%012d"):format(run_dir, step) end

--- The newest checkpoint of the stage before the one of a run directory: recipe.previous of its
-- recipe.
---@param run_dir string|nil
---@return string|nil path  nil: it is no stage, it is the first, or there is no such file
function ckpt.before(run_dir)
  local outer, before = run.outer(run_dir or ""), nil
  for _, stage in ipairs(outer and run.stages(outer) or {}) do
    if stage.path == run_dir then
      local step = before and ckpt.steps(before)[1]
      return step and ckpt.dir(before, step)
    end
    before = stage.path
  end
end

--- Write tensors to one safetensors file.
---@param tensors table[]  rows {name=, dtype=, shape=, ptr= pointer or raw bytes, bytes=}
---@param metadata table?  texts
function ckpt.write(path, tensors, metadata) core.write(path, tensors, metadata) end

---@class mr.Saver
local Saver = {}
Saver.__index = Saver
Saver.__name = "mr.Saver"

--- Start a saver for a run directory. From then on only its thread asks the disk for anything.
-- Several ranks write a checkpoint together: each has a saver and saves its own ranges and boxes of
-- the tensors, all in the same order; rank 0 has the lock and opens first.
---@param run_dir string
---@param opts table|nil  lock (of moonreel.run; else rank 0 takes one itself), rank, ranks (0 of
---   1), fence (from rank 1 on: of rank 0's lock; that in force), keep (newest to keep, 3; -1:
---   all), buffer_bytes (save() goes through a buffer of this size and waits; 0: it copies all and
---   returns), keep_every (steps that are multiples stay for good), attempts (per save, 3),
---   intervals_max (saves in a row without a commit before check() raises, 3), deadline_s (how
---   long one save may take before it counts as stuck and is not waited for any more, 600)
---@return mr.Saver
function ckpt.saver(run_dir, opts)
  opts = opts or {}
  local alone = not opts.lock and (opts.rank or 0) == 0
  local own = alone and core_run.lock(run_dir) or nil
  return setmetatable({ handle = core.saver(opts.lock or own or run_dir, opts), lock = own,
    run = run_dir }, Saver)
end

local read_request = options.declare("saver:save", {
  { "step", "integer", "that is saved; required" },
  { "tensors", "table", "rows {name =, dtype =, shape =, ptr = pointer or raw bytes, bytes =}; of "
    .. "a part also range = {from, to} or box = {{from, to}, ...}; of what a device keeps exec =, "
    .. "region =, at = bytes instead of ptr" },
  { "meta", "table", "recipe_hash, dataset_fingerprint, sampler (texts), seed (integer), machine "
    .. "{isa, threads, libraries}, and whatever else the manifest shall keep; of rank 0" },
  { "wait", "boolean", "for a free buffer: the last save of a run", default = false },
})

--- Take a snapshot and let the writer thread commit it. Memory is free again when this returns.
---@param req table  step, tensors, meta, wait
---@return boolean taken  false: the save was skipped, or with buffer_bytes not committed; poll()
---   tells why
function Saver:save(req)
  req = read_request(req)
  return self.handle:save(req.step, req.tensors, req.meta and json.encode(req.meta), req.wait)
end

--- Allocate the snapshot buffers for these tensors now, so that no save does.
function Saver:prepare(tensors, buffers) self.handle:prepare(tensors, buffers) end

--- Some ranks of the save that is under way are lost: wait at most this long, in seconds, for the
-- parts of the others.
function Saver:part(seconds) self.handle:part(seconds) end

--- Wait until nothing is pending; raises when that takes longer than timeout_s, when a save is
-- stuck, and when the newest save was skipped or ended without a commit.
---@param timeout_s number|nil  without end
function Saver:wait(timeout_s) self.handle:wait(timeout_s) end

--- Raise MR_E_CKPT (exit 8) after three saves in a row without a commit, MR_E_LOCK when the run was
-- taken over.
function Saver:check() self.handle:check() end

--- {commits, failures, failures_in_row, pending, last_commit}
function Saver:status() return self.handle:status() end

--- The next event not yet returned, or nil: {kind = "commit" | "retry" | "skip" | "fail" | "note",
-- step, bytes, copy_s, write_s, text}.
function Saver:poll() return self.handle:poll() end

--- Finish what is pending and stop the thread; harmless twice.
function Saver:close()
  self.handle:close()
  if self.lock then
    self.lock:close()
  end
end
Saver.__close = Saver.close

--- What differs between the machine that wrote a checkpoint and this one; empty: a resumed run is
-- the same bit for bit.
---@param manifest table
---@param machine table  {isa=, threads=, libraries = {name = version}}
---@return string[]
function ckpt.machine_differences(manifest, machine)
  local lines = {}
  local function compare(name, was, now)
    if was ~= now then
      lines[#lines + 1] = ("%s: %s then, %s now"):format(name, tostring(was), tostring(now))
    end
  end
  local was = manifest.machine
  compare("instruction set", was.isa, machine.isa)
  compare("threads", was.threads, machine.threads)
  local then_libs, now_libs, names = was.libraries or {}, machine.libraries or {}, {}
  for name in pairs(then_libs) do
    names[#names + 1] = name
  end
  for name in pairs(now_libs) do
    if then_libs[name] == nil then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    compare(name, then_libs[name], now_libs[name])
  end
  return lines
end

local resolve = require "moonreel.ckpt.resolve"

--- What `--load` or `--ckpt-path` means: see moonreel.ckpt.resolve.
ckpt.resolve = resolve.resolve

--- Open what a spec means, not verified: the newest that it names, damaged or not.
---@param spec string      as for resolve
---@param outputs string?  directory of the runs
---@return mr.Checkpoint
---@return table found     of resolve
function ckpt.find(spec, outputs)
  local found = ckpt.resolve(spec, outputs)
  return ckpt.open(found.candidates[1]), found
end

--- Open the newest of what resolve found that opens at all; verifies nothing.
---@param found table  of ckpt.resolve
---@return mr.Checkpoint|nil  nil: none opens
function ckpt.glance(found)
  local paths = found.candidates
  if found.fallback and found.run then
    paths = {}
    for i, step in ipairs(ckpt.steps(found.run)) do
      paths[i] = ckpt.dir(found.run, step)
    end
  end
  for _, path in ipairs(paths) do
    local good, source = pcall(ckpt.open, path)
    if good then
      return source
    end
  end
end

--- Open what resolve found.
---@param found table      of ckpt.resolve
---@param lock userdata?   lock of the run, where it continues
---@return mr.Checkpoint
---@return string[] notes  checkpoints passed over and why
function ckpt.load(found, lock)
  if found.fallback and found.run then
    return ckpt.newest(found.run, lock)
  end
  local notes, last = {}, nil
  for _, path in ipairs(found.candidates) do
    local ok, result = pcall(function()
      local c = ckpt.open(path)
      if c.manifest then
        local good, err = pcall(c.verify, c)
        if not good then
          c:close()
          error(err, 0)
        end
      end
      return c
    end)
    if ok then
      return result, notes
    end
    last = result
    -- a request to stop says nothing against what was being read
    if not found.fallback or type(result) == "table" and result.code == "MR_E_STOPPED" then
      break
    end
    notes[#notes + 1] = ("%s passed over: %s"):format(path, tostring(result))
  end
  if type(last) == "table" and last.code then
    local dir = last.code == "MR_E_FORMAT" and found.candidates[1]:match("^(.*)/ckpt/step%-%d+$")
    if dir then
      base.raise(last.code, ("%s\n  try: another step; moonreel ckpt ls %s"):format(last.message,
        dir))
    end
    error(last, 0)
  end
  base.raise("MR_E_CKPT", ("%s: nothing to load: %s"):format(found.spec, tostring(last)))
end

return ckpt
