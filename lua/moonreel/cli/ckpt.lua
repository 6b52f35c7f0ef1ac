--- moonreel ckpt: list, inspect, compare, verify, convert and prune checkpoints.
-- @module moonreel.cli.ckpt
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local clean = require "moonreel.text.clean"
local names_of = require "moonreel.ckpt.names"
local listing = require "moonreel.text.listing"

local sort_natural, matching, kind_of = names_of.sort, names_of.matching, names_of.kind
local size_text, shape_text = listing.size, listing.shape

local command = {
  name = "ckpt",
  summary = "list, inspect, compare, verify, convert and prune checkpoints",
  usage = "ckpt ls [RUN|DIR] | inspect CKPT|RUN [NAME] | diff A B | verify CKPT|RUN | convert CKPT OUT.safetensors | prune RUN --keep N",
  options = {
    { "ls [RUN|DIR]", "checkpoints of a run, or of every run in a directory (default: outputs)" },
    { "inspect CKPT|RUN [NAME]", "what is in it; NAME: one tensor with its numbers, or a pattern with *" },
    { "diff A B", "parameters, moments, EMA, sampler state, bit for bit; exit 1 when they differ" },
    { "verify CKPT|RUN", "read everything; compare all hashes where there are any" },
    { "convert CKPT OUT.safetensors", "weights alone under their released names (--ema: the averaged ones); also from .pth and .bin" },
    { "prune RUN --keep N", "remove all but the newest N checkpoints (--every STEPS: multiples stay too; --dry-run: only say)" },
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

-- add a run, or its stages
local function add_run(runs, dir)
  if base.exists(dir .. "/ckpt/.") then runs[#runs + 1] = dir end
  for _, stage in ipairs(require("moonreel.run").stages(dir) or {}) do runs[#runs + 1] = stage.path end
  return runs
end

local function runs_below(dir)
  local runs = add_run({}, dir)
  if #runs > 0 then return runs end
  for _, name in ipairs(sort_natural(names_in(dir))) do add_run(runs, dir .. "/" .. name) end
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
    where = require("moonreel.run").outer(found.run) or found.run
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

-- ---- verify, convert, prune ---------------------------------------------------------------------------

local function verify(words, opts)
  if #words ~= 2 then usage("verify takes one checkpoint") end
  local c <close> = open(words[2], opts)
  local nonfinite = 0
  if c.manifest then
    c:verify()
  else
    -- no hashes: what can be said is that every byte reads, and which values are numbers
    for _, name in ipairs(c:names()) do nonfinite = nonfinite + c:stats(name).nonfinite end
  end
  if opts.json then
    print(json.encode({ path = c.path, tensors = #c:names(), bytes = c.bytes, hashes = c.manifest ~= nil,
      nonfinite = not c.manifest and nonfinite or nil }, { indent = 2 }))
  elseif c.manifest then
    print(("%s: %d tensors, %s: all hashes match"):format(c.path, #c:names(), size_text(c.bytes)))
  else
    print(("%s: %d tensors, %s: all read, no hashes to compare, %d values not finite"):format(c.path, #c:names(),
      size_text(c.bytes), nonfinite))
  end
  return 0
end

local function convert(words, opts)
  if #words ~= 3 then usage("convert takes a checkpoint and a file to write") end
  if not words[3]:match("%.safetensors$") then usage(("convert: '%s': expected a name that ends in .safetensors"):format(words[3])) end
  local c <close> = open(words[2], opts)
  local rows = {}
  for _, name in ipairs(sort_natural(c:names())) do
    local kind, parameter = kind_of(name)
    if kind == "weights" then
      local from = opts.ema and c:info("ema." .. name) and "ema." .. name or name
      rows[#rows + 1] = { name = parameter, from = from }
    end
  end
  c.handle:convert(words[3], rows)
  local written <close> = require("moonreel.ckpt").open(words[3])
  if opts.json then
    print(json.encode({ from = c.path, path = words[3], tensors = #rows, bytes = written.bytes }, { indent = 2 }))
  else
    print(("%s: %d tensors, %s"):format(words[3], #rows, size_text(written.bytes)))
  end
  return 0
end

local function prune(words, opts)
  if #words ~= 2 then usage("prune takes one run") end
  if not opts.keep or opts.keep < 1 then usage("prune needs --keep N, 1 or more") end
  local ckpt = require "moonreel.ckpt"
  local run = ckpt.resolve(words[2], opts.outputs).run
  if not run then usage(("prune: %s is no run"):format(words[2])) end
  local removed, kept, bytes = json.array(), json.array(), 0
  -- nobody else may write to the run meanwhile
  local _ <close> = require("moonreel.core.run").lock(run)
  for i, step in ipairs(ckpt.steps(run)) do
    local stays = i <= opts.keep or (opts.every and step % opts.every == 0)
    local dir = ckpt.dir(run, step)
    if stays and i == 1 then
      -- nothing is removed for the sake of one that is damaged
      local newest <close> = ckpt.open(dir)
      newest:verify()
    elseif not stays then
      local ok, old = pcall(ckpt.open, dir)
      if ok then
        bytes = bytes + old.bytes
        old:close()
      end
      if not opts.dry_run then
        local trash = dir:gsub("/step%-(%d+)$", "/.trash-step-%1")
        local moved, problem = os.rename(dir, trash)
        if not moved then base.raise("MR_E_IO", ("%s: cannot remove: %s"):format(dir, problem)) end
        base.remove_dir(trash)
      end
    end
    table.insert(stays and kept or removed, step)
  end
  if opts.json then
    print(json.encode({ run = run, kept = kept, removed = removed, bytes = bytes, dry_run = opts.dry_run or false }, { indent = 2 }))
  else
    print(("%s: %d checkpoints stay, %d %s, %s"):format(run, #kept, #removed, opts.dry_run and "would go" or "removed", size_text(bytes)))
  end
  return 0
end

-- ---- the command ---------------------------------------------------------------------------------------

local parts = { ls = list, inspect = inspect, diff = diff, verify = verify, convert = convert, prune = prune }

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
    elseif word == "--json" or word == "--ema" or word == "--dry-run" then
      opts[word:sub(3):gsub("-", "_")] = true
    elseif word:match("^%-%-keep") or word:match("^%-%-every") then
      local name, number = word:match("^%-%-(%a+)=?(.*)$")
      if number == "" then
        i = i + 1
        number = args[i]
      end
      opts[name] = math.tointeger(tonumber(number))
      if not opts[name] or opts[name] < 1 then
        usage(("--%s: expected a whole number of 1 or more, got '%s'"):format(name, tostring(number)))
      end
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
