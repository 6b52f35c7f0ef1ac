--- moonreel ckpt: list, inspect and compare checkpoints.
-- @module moonreel.cli.ckpt
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local clean = require "moonreel.repl.clean"
local names_of = require "moonreel.ckpt.names"
local listing = require "moonreel.repl.listing"

local sort_natural, matching, kind_of = names_of.sort, names_of.matching, names_of.kind
local size_text, shape_text = listing.size, listing.shape

local command = {
  name = "ckpt",
  summary = "list, inspect and compare checkpoints",
  usage = "ckpt ls [RUN|DIR] | ckpt inspect CKPT|RUN [NAME] | ckpt diff A B",
  options = {
    { "ls [RUN|DIR]", "checkpoints of a run, or of every run in a directory (default: outputs)" },
    { "inspect CKPT|RUN [NAME]", "what is in it; NAME: one tensor with its numbers, or a pattern with *" },
    { "diff A B", "parameters, moments, EMA, sampler state, bit for bit; exit 1 when they differ" },
    { "--outputs DIR", "where runs named by folder or number are looked up (default: outputs)" },
    { "--json", "print JSON" },
  },
  details = "A checkpoint is a directory step-N, a run (its newest one), RUN@STEP, or a safetensors file.",
}

local function usage(text) base.raise("MR_E_USAGE", ("ckpt: %s; usage: moonreel %s"):format(text, command.usage)) end

--- Print rows of texts as columns; `right` marks columns of numbers.
local function print_columns(rows, right)
  local widths = {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, utf8.len(cell) or #cell) end
  end
  for _, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      local pad = (" "):rep(widths[i] - (utf8.len(cell) or #cell))
      cells[i] = right[i] and pad .. cell or cell .. pad
    end
    print((table.concat(cells, "  "):gsub("%s+$", "")))
  end
end

local function open(spec, opts)
  local ckpt = require "moonreel.ckpt"
  local found = ckpt.resolve(spec, opts.outputs)
  return ckpt.open(found.candidates[1])
end

-- ---- ls ----------------------------------------------------------------------------------------

local function names_in(dir)
  local ok, names = pcall(base.list_dir, dir)
  return ok and names or {}
end

--- One row for a directory below ckpt/, or nil for files such as LATEST.
local function describe(run, name)
  local ckpt = require "moonreel.ckpt"
  local path = run .. "/ckpt/" .. name
  local row = { run = run, path = path, step = math.tointeger(tonumber(name:match("step%-(%d+)"))) }
  if not row.step then return nil end
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
    if c.manifest then row.written, row.launch = c.manifest.written, c.manifest.fence end
    c:close()
  end
  return row
end

local function runs_below(dir)
  if base.exists(dir .. "/ckpt/.") then return { dir } end
  local runs = {}
  for _, name in ipairs(sort_natural(names_in(dir))) do
    if base.exists(dir .. "/" .. name .. "/ckpt/.") then runs[#runs + 1] = dir .. "/" .. name end
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
    if not ok or not found.run then base.raise("MR_E_USAGE", ("%s: no such directory or run"):format(where)) end
    where = found.run
  end
  return runs_below(where)
end

local function list(words, opts)
  if #words > 2 then usage("ls takes one run or directory") end
  local rows = json.array()
  for _, run in ipairs(find_runs(words[2], opts)) do
    local of_run = {}
    for _, name in ipairs(names_in(run .. "/ckpt")) do of_run[#of_run + 1] = describe(run, name) end
    table.sort(of_run, function(a, b) return a.step < b.step or (a.step == b.step and a.path < b.path) end)
    table.move(of_run, 1, #of_run, #rows + 1, rows)
  end
  if opts.json then
    print(json.encode(rows, { indent = 2 }))
    return 0
  end
  if #rows == 0 then
    print("no checkpoints")
    return 0
  end
  local out = { { "step", "state", "size", "tensors", "launch", "written", "where" } }
  for _, r in ipairs(rows) do
    out[#out + 1] = { tostring(r.step), r.state, r.bytes and size_text(r.bytes) or "-", tostring(r.tensors or "-"),
      tostring(r.launch or "-"), clean(r.written or "-"), clean(r.path) }
  end
  print_columns(out, { true, false, true, true, true })
  for _, r in ipairs(rows) do
    if r.reason then print(clean(r.reason)) end
  end
  return 0
end

-- ---- inspect -------------------------------------------------------------------------------------

local function elements(info)
  local n = 1
  for _, d in ipairs(info.shape) do n = n * d end
  return n
end

--- The manifest without its long parts.
local function facts(c)
  local out = {}
  for key, value in pairs(c.manifest or {}) do
    if key ~= "files" and key ~= "tensors" then out[key] = value end
  end
  return out
end

local function show_one(c, info, opts)
  local s = c:stats(info.name)
  if opts.json then
    info.stats, info.shape = s, json.array(info.shape)
    print(json.encode(info, { indent = 2 }))
    return 0
  end
  print(("%s  %s %s  %s"):format(clean(info.name), shape_text(info.shape), info.dtype, size_text(info.bytes)))
  print(("  %d elements, %d zero, %d not finite"):format(s.n, s.zeros, s.nonfinite))
  print(("  min %.6g  max %.6g  mean %.6g  rms %.6g"):format(s.min, s.max, s.mean, s.rms))
  return 0
end

local function print_facts(c)
  print(c.path)
  if not c.manifest then
    print("  plain weights, not verified: no hashes")
  else
    local m = c.manifest
    print(("  step %d, written %s by run %s, launch %d"):format(m.step, clean(m.written), clean(m.run), m.fence))
    print(("  recipe %s, data set %s, seed %d"):format(clean(m.recipe_hash), clean(m.dataset_fingerprint), m.seed))
  end
  for key, value in pairs(c.metadata) do print(("  %s = %s"):format(clean(key), clean(value))) end
end

local function print_kinds(c)
  local sums, order = {}, {}
  for _, name in ipairs(c:names()) do
    local kind, info = kind_of(name), c:info(name)
    if not sums[kind] then
      sums[kind] = { n = 0, elements = 0, bytes = 0 }
      order[#order + 1] = kind
    end
    local s = sums[kind]
    s.n, s.elements, s.bytes = s.n + 1, s.elements + elements(info), s.bytes + info.bytes
  end
  local rows = { { "kind", "tensors", "elements", "size" } }
  for _, kind in ipairs(order) do
    local s = sums[kind]
    rows[#rows + 1] = { kind, tostring(s.n), tostring(s.elements), size_text(s.bytes) }
  end
  print_columns(rows, { false, true, true, true })
end

local function inspect(words, opts)
  if #words < 2 or #words > 3 then usage("inspect takes a checkpoint and perhaps a tensor name") end
  local c <close> = open(words[2], opts)
  local exact = words[3] and c:info(words[3])
  if exact then return show_one(c, exact, opts) end
  local names = matching(sort_natural(c:names()), words[3])
  if words[3] and #names == 0 then
    base.raise("MR_E_USAGE", ("%s: no tensor matches '%s'; try: moonreel ckpt inspect %s"):format(c.path, words[3], words[2]))
  end
  if opts.json then
    local rows = json.array()
    for _, name in ipairs(names) do rows[#rows + 1] = c:info(name) end
    for _, row in ipairs(rows) do json.array(row.shape) end
    print(json.encode({ path = c.path, step = c.step, bytes = c.bytes, manifest = c.manifest and facts(c), metadata = c.metadata,
      tensors = rows }, { indent = 2 }))
    return 0
  end
  if not words[3] then
    print_facts(c)
    print_kinds(c)
  end
  local rows = {}
  for _, name in ipairs(names) do
    local info = c:info(name)
    rows[#rows + 1] = { clean(name), shape_text(info.shape), info.dtype, size_text(info.bytes) }
  end
  print_columns(rows, { false, false, false, true })
  return 0
end

-- ---- diff ------------------------------------------------------------------------------------------

-- what a resume depends on; run id, launch and times do not count
local compared_facts = { "step", "seed", "sampler", "dataset_fingerprint" }

local function diff_facts(a, b, found)
  if not (a.manifest and b.manifest) then return end
  for _, key in ipairs(compared_facts) do
    if a.manifest[key] ~= b.manifest[key] then
      found[#found + 1] = { kind = key, a = a.manifest[key], b = b.manifest[key] }
    end
  end
end

local function diff_tensor(a, b, name, found)
  local ia, ib = a:info(name), b:info(name)
  if not (ia and ib) then
    found[#found + 1] = { kind = "tensor", name = name, only = ia and "a" or "b" }
  elseif ia.dtype ~= ib.dtype or shape_text(ia.shape) ~= shape_text(ib.shape) then
    found[#found + 1] = { kind = "tensor", name = name, a = shape_text(ia.shape) .. " " .. ia.dtype,
      b = shape_text(ib.shape) .. " " .. ib.dtype }
  else
    local d = a:compare(b, name)
    if d.differing > 0 then
      found[#found + 1] = { kind = "tensor", name = name, differing = d.differing, of = d.n, first = d.first, max_abs = d.max_abs }
    end
  end
end

-- sampler states are long; --json shows them whole
local function short(value)
  local text = clean(value)
  return #text > 60 and text:sub(1, 60) .. "..." or text
end

local function print_difference(d)
  if d.kind ~= "tensor" then
    print(("%s: %s / %s"):format(d.kind, short(d.a), short(d.b)))
  elseif d.only then
    print(("%s: only in %s"):format(clean(d.name), d.only))
  elseif d.a then
    print(("%s: %s / %s"):format(clean(d.name), d.a, d.b))
  else
    print(("%s: %d of %d elements differ, first at %d, largest difference %.6g"):format(
      clean(d.name), d.differing, d.of, d.first, d.max_abs))
  end
end

local function diff(words, opts)
  if #words ~= 3 then usage("diff takes two checkpoints") end
  local a <close> = open(words[2], opts)
  local b <close> = open(words[3], opts)
  local found, names, seen = json.array(), {}, {}
  diff_facts(a, b, found)
  for _, c in ipairs { a, b } do
    for _, name in ipairs(c:names()) do
      if not seen[name] then
        seen[name] = true
        names[#names + 1] = name
      end
    end
  end
  for _, name in ipairs(sort_natural(names)) do diff_tensor(a, b, name, found) end
  if opts.json then
    print(json.encode({ a = a.path, b = b.path, equal = #found == 0, tensors = #names, differences = found }, { indent = 2 }))
  else
    print(("a: %s\nb: %s"):format(a.path, b.path))
    for _, d in ipairs(found) do print_difference(d) end
    print(#found == 0 and ("equal: %d tensors, bit for bit"):format(#names) or ("%d differences"):format(#found))
  end
  return #found == 0 and 0 or 1
end

-- ---- the command ---------------------------------------------------------------------------------------

local parts = { ls = list, inspect = inspect, diff = diff }

local function parse(args)
  local opts, words, i = { outputs = "outputs" }, {}, 1
  local only_words = false
  while i <= #args do
    local word = args[i]
    local value = word:match("^%-%-outputs=(.*)$")
    if only_words or word:sub(1, 1) ~= "-" then
      words[#words + 1] = word
    elseif word == "--" then
      only_words = true
    elseif word == "--json" then
      opts.json = true
    elseif value or word == "--outputs" then
      if not value then
        i = i + 1
        value = args[i]
      end
      if not value or value == "" then usage("--outputs lacks its value") end
      opts.outputs = value
    else
      usage(("unknown option '%s'"):format(word))
    end
    i = i + 1
  end
  return opts, words
end

---@param args string[]
---@return integer exit code
function command.run(args)
  local opts, words = parse(args)
  local part = parts[words[1]]
  if not part then usage(words[1] and ("'%s' is no part of 'ckpt'"):format(words[1]) or "nothing to do") end
  return part(words, opts)
end

return command
