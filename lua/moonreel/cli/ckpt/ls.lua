--- moonreel ckpt ls: the checkpoints of runs, including damaged, replaced and unfinished ones.
-- @module moonreel.cli.ckpt.ls
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local clean = require "moonreel.text.clean"
local listing = require "moonreel.text.listing"
local natural_sort = require("moonreel.ckpt.names").sort

local function names_in(dir)
  local ok, names = pcall(base.list_dir, dir)
  return ok and names or {}
end

-- one row for a directory below ckpt/, or nil for files such as LATEST.
local function describe(run, name)
  local ckpt = require "moonreel.ckpt"
  local path = run .. "/ckpt/" .. name
  local row = { run = run, path = path, step = math.tointeger(tonumber(name:match("step%-(%d+)"))) }
  if not row.step then
    return nil
  end
  if name:match("^%.bad%-") then
    row.state = "set aside: damaged"
  elseif name:match("%.tmp%-") then
    local owner = require("moonreel.run").owner(run)
    row.state = owner.owned and not owner.dead and "being written" or "left over"
  elseif name:match("^%.") then
    row.state = "being removed"
  else
    local ok, c = pcall(ckpt.open, path)
    if not ok then
      row.state = "damaged"
      row.reason = tostring(c)
      return row
    end
    row.state, row.bytes, row.tensors = "committed", c.bytes, #c:names()
    if c.manifest then
      row.written, row.launch = c.manifest.written, c.manifest.fence
    end
    c:close()
  end
  return row
end

-- add a run, or its stages
local function add_run(runs, dir)
  if base.exists(dir .. "/ckpt/.") then
    runs[#runs + 1] = dir
  end
  for _, stage in ipairs(require("moonreel.run").stages(dir) or {}) do
    runs[#runs + 1] = stage.path
  end
  return runs
end

local function runs_below(dir)
  local runs = add_run({}, dir)
  if #runs > 0 then
    return runs
  end
  for _, name in ipairs(natural_sort(names_in(dir))) do
    add_run(runs, dir .. "/" .. name)
  end
  return runs
end

local function find_runs(where, opts)
  where = (where or opts.outputs):gsub("(.)/+$", "%1")
  if not base.exists(where .. "/.") and base.exists(opts.outputs .. "/" .. where .. "/.") then
    where = opts.outputs .. "/" .. where
  end
  if not base.exists(where .. "/.") then
    local ok, found = pcall(require("moonreel.ckpt").resolve, where, opts.outputs)
    if not ok or not found.run then
      base.raise("MR_E_USAGE", ("%s: no such directory or run"):format(where))
    end
    where = require("moonreel.run").outer(found.run) or found.run
  end
  return runs_below(where)
end

local columns = { { key = "step", right = true }, { key = "state" },
  { key = "bytes", title = "size", right = true, format = listing.size },
  { key = "tensors", right = true }, { key = "launch", right = true }, { key = "written" },
    { key = "path", title = "where" } }

return function(opts, where)
  local rows = json.array()
  for _, run in ipairs(find_runs(where, opts)) do
    local of_run = {}
    for _, name in ipairs(names_in(run .. "/ckpt")) do
      of_run[#of_run + 1] = describe(run, name)
    end
    table.sort(of_run, function(a, b)
      return a.step < b.step or (a.step == b.step and a.path < b.path)
    end)
    table.move(of_run, 1, #of_run, #rows + 1, rows)
  end
  if opts.json then
    print(json.encode(rows, { indent = 2 }))
  elseif #rows == 0 then
    print("no checkpoints")
  else
    listing.new(rows, columns):all()
    for _, r in ipairs(rows) do
      if r.reason then
        print(clean(r.reason))
      end
    end
  end
  return 0
end
