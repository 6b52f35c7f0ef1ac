--- Checkpoints: opens and reads them, saves them while training continues, finds the right one.
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
---@field path string       the opened path
---@field step integer?     nil for plain weights
---@field manifest table? the manifest without files and tensors; nil for plain weights
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

--- {name, why} of tensors in the file that cannot be read.
---@return table[]
function Checkpoint:refused() return self.handle:refused() end

--- Reads a tensor: as raw bytes, or directly into host memory. read(name) and read(name, offset, n)
-- return text; read(name, pointer, bytes) fills `bytes` bytes at a lightuserdata, which must be the
-- whole tensor. Bytes of a checkpoint are first compared with their hash.
function Checkpoint:read(name, where, n)
  if type(where) == "userdata" then
    return self.handle:read_into(name, where, n)
  end
  return self.handle:read(name, where, n)
end

--- Reads tensors or parts of them, all at once and in the order of the files. Blocks of a
-- checkpoint without any of them are not read.
---@param rows table[]  {name =, ptr = address in host memory, bytes =}, and for a part range =
---   {from, to} (elements of the flattened tensor, from 0) or box = {{from, to}, ...} (per
---   dimension)
function Checkpoint:read_slices(rows) self.handle:read_slices(rows) end

--- Bytes read from the files of a checkpoint since it was opened.
---@return integer
function Checkpoint:bytes_read() return self.handle:bytes_read() end

--- {n, zeros, nonfinite, min, max, mean, rms} of one tensor, over its finite elements.
function Checkpoint:stats(name) return self.handle:stats(name) end

--- {n, differing, first, max_abs, distance} between a tensor and one of another checkpoint (of the
-- same name by default), bit for bit.
function Checkpoint:compare(other, name, name_there)
  return self.handle:compare(other.handle, name, name_there)
end

--- Reads every byte and compares all hashes, or the CRCs of weights of torch; raises an error if
-- one differs. Readers that load a checkpoint together verify a share each: the same number of
-- bytes, to one MiB, whatever the files; together each byte once.
---@param part integer|nil   number of the share, from 1 on; nil: all of it
---@param parts integer|nil  number of shares
---@return table|nil rows  {verified = path, tensors, bytes}: prints as a line; nil for a share
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
    self.manifest and "every byte matches its hash" or "every byte matches its CRC")
end

--- Closes the files; a second call has no effect.
function Checkpoint:close() self.handle:close() end
Checkpoint.__close = Checkpoint.close

function Checkpoint:__tostring() return ("mr.Checkpoint: %s"):format(self.path) end

-- fields that not every checkpoint has
local absent = { manifest = true, step = true, verified = true }

-- methods for looking into it (ls, tree, settings, a tensor by name) are loaded from
-- moonreel.ckpt.look on first use
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

--- Opens a checkpoint directory, a .safetensors file, its index file, or a folder with one of
-- these.
---@return mr.Checkpoint
function ckpt.open(path) return wrap(core.open(path)) end

--- Opens a file in the folder of released weights; nil: there is no such file.
---@param source mr.Checkpoint
---@param name string
---@return mr.Checkpoint|nil
function ckpt.companion(source, name)
  local path = source.path .. "/" .. name
  return not source.manifest and base.exists(path) and ckpt.open(path) or nil
end

--- Opens the newest valid checkpoint of a run directory; damaged ones are skipped.
---@param lock userdata?  the run's lock: damaged directories are renamed to .bad-
---@return mr.Checkpoint
---@return string[] notes  one line per skipped checkpoint
function ckpt.newest(run_dir, lock)
  local handle, notes = core.open_newest(run_dir, lock)
  return wrap(handle), notes
end

--- Steps committed in a run directory, newest first.
---@return integer[]
function ckpt.steps(run_dir) return core.steps(run_dir) end

local KEPT, READ_BACK = 3, 2

--- The number of checkpoints that a run keeps: never fewer than the two that passed a read-back.
---@param n integer|nil  keep_n_latest
---@return number  math.huge: all
function ckpt.kept(n)
  n = n or KEPT
  return n > 0 and math.max(n, READ_BACK) or math.huge
end

--- Removes the checkpoints of later steps, which the run no longer needs, newest first.
---@param lock userdata  lock of the run
---@param step integer
function ckpt.drop_after(lock, step) core.drop_after(lock, step) end

--- The directory of one step of a run.
function ckpt.dir(run_dir, step) return ("%s/ckpt/step-%012d"):format(run_dir, step) end

--- The newest checkpoint of the stage before that of a run directory: recipe.previous in its
-- recipe.
---@param run_dir string|nil
---@return string|nil path  nil: it is not a stage, or the first one, or there is no checkpoint
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

--- Writes tensors to one safetensors file.
---@param tensors table[]  rows {name=, dtype=, shape=, ptr= pointer or raw bytes, bytes=}
---@param metadata table?  texts
function ckpt.write(path, tensors, metadata) core.write(path, tensors, metadata) end

---@class mr.Saver
local Saver = {}
Saver.__index = Saver
Saver.__name = "mr.Saver"

--- Starts a saver for a run directory. From then on only its thread accesses the disk. Several
-- ranks write a checkpoint together: each has a saver and saves its own ranges and boxes of the
-- tensors, all in the same order. Rank 0 has the lock and opens first.
---@param run_dir string
---@param opts table|nil  lock (of moonreel.run; else rank 0 takes one itself), rank, ranks (0 of
---   1), fence (from rank 1 on: of rank 0's lock; the current one), keep (newest to keep, 3; -1:
---   all), buffer_bytes (save() writes through a buffer of this size and waits; 0: it copies all
---   and returns), keep_every (multiples of this step are kept for good), attempts (per save, 3),
---   intervals_max (failed saves in a row before check() raises an error, 3), deadline_s (longest
---   time of one save before it counts as stuck and is no longer waited for, 600)
---@return mr.Saver
function ckpt.saver(run_dir, opts)
  opts = opts or {}
  local alone = not opts.lock and (opts.rank or 0) == 0
  local own = alone and core_run.lock(run_dir) or nil
  return setmetatable({ handle = core.saver(opts.lock or own or run_dir, opts), lock = own,
    run = run_dir }, Saver)
end

local read_request = options.declare("saver:save", {
  { "step", "integer", "step of the checkpoint; required" },
  { "tensors", "table", "rows {name =, dtype =, shape =, ptr = pointer or raw bytes, bytes =}; for "
    .. "a part also range = {from, to} or box = {{from, to}, ...}; for device memory exec =, "
    .. "region =, at = bytes instead of ptr" },
  { "meta", "table", "recipe_hash, dataset_fingerprint, sampler (texts), seed (integer), machine "
    .. "{isa, threads, libraries}, and other values for the manifest; from rank 0" },
  { "wait", "boolean", "wait for a free buffer, for the last save of a run", default = false },
})

--- Takes a snapshot and lets the writer thread commit it. The memory may be changed when this
-- returns.
---@param req table  step, tensors, meta, wait
---@return boolean taken  false: the save was skipped, or with buffer_bytes not committed; poll()
---   says why
function Saver:save(req)
  req = read_request(req)
  return self.handle:save(req.step, req.tensors, req.meta and json.encode(req.meta), req.wait)
end

--- Allocates the snapshot buffers for these tensors now, so that no save has to.
function Saver:prepare(tensors, buffers) self.handle:prepare(tensors, buffers) end

--- Some ranks of the save in progress are lost: wait at most this long, in seconds, for the parts
-- of the others.
function Saver:part(seconds) self.handle:part(seconds) end

--- Waits until no save is pending. Raises an error if that takes longer than timeout_s, if a save
-- is stuck, or if the newest save was skipped or failed.
---@param timeout_s number|nil  nil: no limit
function Saver:wait(timeout_s) self.handle:wait(timeout_s) end

--- Raises MR_E_CKPT (exit 8) after three failed saves in a row, MR_E_LOCK if the run was taken
-- over.
function Saver:check() self.handle:check() end

--- {commits, failures, failures_in_row, pending, last_commit}
function Saver:status() return self.handle:status() end

--- The next event not yet returned, or nil: {kind = "commit" | "retry" | "skip" | "fail" | "note",
-- step, bytes, copy_s, write_s, text}.
function Saver:poll() return self.handle:poll() end

--- Finishes pending saves and stops the thread; a second call has no effect.
function Saver:close()
  self.handle:close()
  if self.lock then
    self.lock:close()
  end
end
Saver.__close = Saver.close

--- The differences between the machine that wrote a checkpoint and this one; if empty, a resumed
-- run is the same bit for bit.
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

--- Finds what `--load` or `--ckpt-path` means: see moonreel.ckpt.resolve.
ckpt.resolve = resolve.resolve

--- Opens the newest checkpoint that a spec names, without verification, damaged or not.
---@param spec string      as in resolve
---@param outputs string?  directory of the runs
---@return mr.Checkpoint
---@return table found     from resolve
function ckpt.find(spec, outputs)
  local found = ckpt.resolve(spec, outputs)
  return ckpt.open(found.candidates[1]), found
end

--- Opens the newest checkpoint that resolve found and that can be opened; verifies nothing.
---@param found table  from ckpt.resolve
---@return mr.Checkpoint|nil  nil: none can be opened
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

--- Opens the checkpoint that resolve found.
---@param found table      from ckpt.resolve
---@param lock userdata?   lock of the run, if it continues
---@return mr.Checkpoint
---@return string[] notes  skipped checkpoints and the reasons
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
    -- a stop request does not mean that the checkpoint is damaged
    if not found.fallback or type(result) == "table" and result.code == "MR_E_STOPPED" then
      break
    end
    notes[#notes + 1] = ("%s was skipped: %s"):format(path, tostring(result))
  end
  if type(last) == "table" and last.code then
    error(last, 0)
  end
  base.raise("MR_E_CKPT", ("%s: there is nothing to load: %s"):format(found.spec, tostring(last)))
end

return ckpt
