--- Tar shards: tar files with each clip and its metadata, KEY.mp4 and KEY.json, as `data export
-- shards` writes them. Also extracts the clips and a list from them, of which ingest makes the
-- original index.
-- @module moonreel.data.shards
local base = require "moonreel.core.base"
local hint = require "moonreel.text.hint"
local json = require "moonreel.core.json"
local tar = require "moonreel.data.tar"
local whole = require "moonreel.data.whole"

local shards = {}

local PIECE = 1 << 20
local LIST = "shards.jsonl"
local AGAIN <const> = "copy or download the shards again"

-- ---- a clip's bytes ----

-- Passes `bytes` of a file on in pieces, and returns their hash: the hash of the hashes of the
-- pieces. nil: the file ended before.
local function pass(file, bytes, write)
  local hashes, left = {}, bytes
  while left > 0 do
    local piece = file:read(math.min(left, PIECE))
    if not piece then
      return nil
    end
    hashes[#hashes + 1] = base.hash128(piece)
    write(piece)
    left = left - #piece
  end
  return base.hash128(table.concat(hashes))
end

local function nowhere() end

-- ---- writing ----

-- the source name in the keys of an index; nil: there are several
local function source_of(index)
  local found, several = nil, false
  local function visit(t)
    for key, value in pairs(t) do
      if type(value) == "table" then
        visit(value)
      elseif key == "source" then
        several = several or found ~= nil and found ~= value
        found = value
      end
    end
  end
  visit(json.decode(index.meta.sources, index.meta.path))
  return not several and found or nil
end

-- writes a clip; returns the hash of its bytes
local function add_clip(out, r, name)
  local file, problem = io.open(r.file, "rb")
  if not file then
    base.raise("MR_E_DATA", ("%s: cannot open: %s; try: moonreel data scan"):format(r.file,
      whole.reason(problem)))
  end
  local _ <close> = setmetatable({}, { __close = function() file:close() end })
  out.write(tar.header(name, r.bytes))
  local hash = pass(file, r.bytes, out.write)
  if not hash then
    base.raise("MR_E_DATA", ("%s: is shorter than the %d bytes of the index; try: moonreel data "
      .. "scan"):format(r.file, r.bytes))
  end
  out.write(tar.padding(r.bytes))
  return hash
end

-- The folder for shards, which has to be closed: without keep() all added files are removed.
local function target_folder(folder)
  local there, added = base.exists(folder), {}
  if shards.is(folder) then
    base.raise("MR_E_USAGE", ("%s: already has shards; try: another folder, or remove it")
      :format(folder))
  end
  base.make_dir(folder)
  local self = {}
  function self.add(path) added[#added + 1] = path end
  function self.keep() added, there = {}, true end
  return setmetatable(self, { __close = function()
    for _, path in ipairs(added) do
      os.remove(path)
    end
    if not there then
      os.remove(folder)
    end
  end })
end

-- Writes rows of the index from i on into one shard, until it is large enough; returns the first
-- row of the next.
local function write_shard(index, i, path, facts_of, most, tick)
  local out <close>, held, source = whole.open(path), 0, source_of(index)
  while i <= #index and held < most do
    local r = index:row(i)
    local facts = facts_of(r)
    facts.path, facts.source, facts.rows = r.path, source, #index
    facts.hash = add_clip(out, r, r.key .. (r.path:match("%.%w+$") or ".mp4"))
    local text = json.encode(facts)
    out.write(tar.header(r.key .. ".json", #text), text, tar.padding(#text))
    held = held + tar.span(r.bytes) + tar.span(#text)
    tick(i, #index)
    i = i + 1
  end
  out.write(tar.close)
  out.finish()
  return i
end

--- Copies all clips into tar files of a folder without shards. If that fails or a tick raises an
-- error, all of them are removed.
---@param index moonreel.Index
---@param folder string     000000.tar, 000001.tar, ...
---@param facts_of fun(row: table): table  the metadata of a clip
---@param given table  shard_bytes: a shard is closed when it is at least this large (1 GB); tick
---@return integer shards
function shards.write(index, folder, facts_of, given)
  local i, shard = 1, 0
  local to <close> = target_folder(folder)
  while i <= #index do
    local path = ("%s/%06d.tar"):format(folder, shard)
    i = write_shard(index, i, path, facts_of, given.shard_bytes or 1e9, given.tick or nowhere)
    to.add(path)
    shard = shard + 1
  end
  to.keep()
  return shard
end

-- ---- reading ----

-- the shards of a folder in their order
local function files_of(folder)
  local files = {}
  for _, name in ipairs(base.list_dir(folder)) do
    files[#files + 1] = name:match("^%d%d%d%d%d%d%.tar$")
  end
  table.sort(files)
  return files
end

--- Is it a folder of shards?
---@param path string
---@return boolean
function shards.is(path)
  local good, files = pcall(files_of, path)
  return good and #files > 0
end

local function fail(path, at, ...)
  base.raise("MR_E_DATA", ("%s: byte %d: %s"):format(path, at, (...):format(select(2, ...))))
end

-- the path for a clip; files are never written outside the folder
local function target(folder, facts, path, at)
  local inside = facts.path
  if type(inside) ~= "string" or inside == "" then
    fail(path, at, "metadata without 'path'; expected metadata of data export shards; try: for "
      .. "shards of other programs tar xf FILE -C clips, and moonreel data ingest clips")
  end
  inside = inside:gsub("^/+", "")
  if ("/" .. inside .. "/"):find("/%.%.?/") or inside:find "%c" then
    fail(path, at, "the path %q leads outside; expected a path inside the folder", facts.path)
  end
  return inside, folder .. "/" .. inside
end

-- the hash of a file of `bytes` bytes; nil if its size differs
local function hash_of(path, bytes)
  local file = io.open(path, "rb")
  local _ <close> = setmetatable({}, { __close = function() return file and file:close() end })
  return file and file:seek("end") == bytes and file:seek("set") and pass(file, bytes, nowhere)
end

-- Extracts the clip at `clip` in the shard. An existing equal file is kept.
local function unpack_clip(file, path, clip, facts, to)
  if base.exists(to) then
    if hash_of(to, clip.bytes) == facts.hash then
      return
    end
    fail(path, clip.at, "%s exists and differs; try: another --root", to)
  end
  base.make_dir(to:match("^(.*)/"))
  local out <close> = whole.open(to)
  file:seek("set", clip.at)
  if pass(file, clip.bytes, out.write) ~= facts.hash then
    fail(path, clip.at, "damaged: %s differs from the exported clip; try: export or copy the "
      .. "shard again",
      clip.name)
  end
  out.finish()
end

local function facts_at(file, path, bytes, at)
  local text = file:read(bytes) or ""
  local good, facts = pcall(json.decode, text, path)
  if not good or type(facts) ~= "table" then
    fail(path, at, "damaged: invalid metadata of a clip: %s", good and text or facts)
  end
  return facts
end

-- the clips of one shard and their lines of the list
local function unpack_file(path, folder, all)
  local file, problem = io.open(path, "rb")
  if not file then
    base.raise("MR_E_IO", ("%s: cannot open: %s"):format(path, whole.reason(problem)))
  end
  local _ <close> = setmetatable({}, { __close = function() file:close() end })
  local clip
  for name, bytes, at in tar.members(file, path) do
    if name:find "%.json$" then
      local key = name:sub(1, -6)
      if not clip or clip.name:match("^(.*)%.") ~= key then
        fail(path, at, "%s does not follow a clip of that name", name)
      end
      local facts = facts_at(file, path, bytes, at)
      local inside, to = target(folder, facts, path, at)
      unpack_clip(file, path, clip, facts, to)
      all.source, all.rows, all.done = all.source or facts.source, facts.rows, all.done + 1
      facts.path, facts.source, facts.rows, facts.hash = inside, nil, nil, nil
      all.list.write(json.encode(facts), "\n")
      all.tick(all.done)
      clip = nil
    elseif clip then
      fail(path, clip.at, "%s has no metadata after it", clip.name)
    else
      clip = { name = name, bytes = bytes, at = at }
    end
  end
end

--- Extracts the clips of shards into a folder, each to its original path, and writes a list of them
-- next to them.
---@param from string    the folder of the shards
---@param folder string  folder for the clips; equal existing files are kept
---@param tick? fun(done: integer)
---@return string list     the list, for ingest
---@return string|nil source  the source name in the keys of the shards' index
function shards.unpack(from, folder, tick)
  base.make_dir(folder)
  local path = folder .. "/" .. LIST
  local list <close> = whole.open(path)
  local all = { list = list, done = 0, tick = tick or nowhere }
  for i, name in ipairs(files_of(from)) do
    local expected = ("%06d.tar"):format(i - 1)
    if name ~= expected then
      base.raise("MR_E_DATA", ("%s: %s is missing: the next one is %s; try: %s"):format(from,
        expected, name, AGAIN))
    end
    hint(AGAIN, unpack_file, from .. "/" .. name, folder, all)
  end
  if all.done ~= all.rows then
    base.raise("MR_E_DATA", ("%s: the shards hold %d of %s samples; is the last of them missing? "
      .. "try: %s"):format(from, all.done, all.rows, AGAIN))
  end
  list.finish()
  return path, all.source
end

return shards
