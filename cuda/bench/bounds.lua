--- moonreel cuda/bench/bounds.lua FILE... [machine=NAME]: upper bounds of the hot kernels, counted
-- from machine code (files of `cuobjdump --dump-sass`). For a tile of 128 x 128 (queries by keys,
-- or positions by channels) it counts the cycles of each unit of a multiprocessor at the rates that
-- the machine file assumes: tensor cores, exponentials, issue slots, shared memory, L2. The largest
-- is the bound. The useful products divided by it are the share of the tensor cores' peak that no
-- order of instructions can exceed. `make cuda` prints this; nothing runs.
--
-- The list of kernels gives what the code does not show: bytes of TMA copies, and the trip counts
-- of inner loops. Addresses of lanes are traced back to the thread number, to count bank conflicts.
-- If this fails, the access is named and counted without conflicts. A predicated access counts only
-- as an issue slot. Inner loops of the producer warp count once.
local base = require "moonreel.core.base"
local machine_of = require "moonreel.plan.machine"
local sass = dofile "cuda/bench/sass.lua"

local WARPS, SCHEDULERS = 8, 4   -- of the two consumer warp groups of a block
local TILE = 128

-- ---- kernels ----

-- bytes of bf16 rows [tokens, columns]
local function rows(tokens, columns)
  return tokens * columns * 2
end

local function forward(d, columns)
  return { title = "attention forward", width = d, columns = columns, products = 2,
    kernel = ("attention_forward_groupsILi%dE"):format(columns),
    loop = { "HGMMA", "MUFU.EX2" }, steady = { "HGMMA", "MUFU.EX2" },
    copied = rows(2 * TILE, columns), copying = 1 }
end

-- A block computes half of the columns of v and recomputes all scores for them, 32 keys at a time.
-- So two of three products of 256 columns are useful.
local function wide()
  return { title = "attention forward, wide", width = 512, columns = 3 * 256, products = 1,
    kernel = "attention_forward_wide", loop = { "HGMMA", "MUFU.EX2" },
    steady = { "HGMMA", "MUFU.EX2" }, tiles = TILE // 32, copied = rows(TILE, 512 + 256),
    copying = TILE // 32 }
end

-- For 128 queries, ds is computed `walk` queries at a time, and dq `at_once` columns at a time. The
-- count is for tiles of keys that add to dq: all but the first and the last of a head.
local function backward(form, d, columns)
  local walk, at_once = columns > 80 and 32 or 64, columns > 80 and 64 or columns
  return { title = "attention backward, " .. form, width = d, columns = columns, products = 5,
    kernel = ("attention_%s_groupsILi%dE"):format(form, columns),
    loop = { "MUFU.EX2", "BAR.SYNC" }, steady = { "HGMMA", "MUFU.EX2", "REDG" },
    turns = function(loop)
      return sass.holds(loop, "MUFU.EX2") and TILE // walk or columns // at_once
    end,
    copied = rows(2 * TILE, columns), copying = TILE // walk }
end

local function convolution(title, kernel)
  return { title = title, width = 64, columns = 64, products = 1, kernel = kernel,
    loop = { "HGMMA", "LDGSTS" }, steady = { "HGMMA", "LDGSTS" }, copied = 0 }
end

local KERNELS = {
  forward(64, 64), forward(72, 80), forward(128, 128), wide(),
  backward("whole", 64, 64), backward("whole", 72, 80), backward("whole", 128, 128),
  backward("turns", 64, 64), backward("turns", 72, 80), backward("turns", 128, 128),
  convolution("convolution", "conv_groupsILb0E"),
  convolution("convolution, dx", "conv_groupsILb1E"),
  convolution("convolution, dw", "conv_dw_groups"),
}

-- ---- costs of an instruction ----

-- passes over the banks of shared memory for lanes that access `words` words at these addresses
local function passes(addresses, words)
  local known, in_bank, most = {}, {}, 1
  for _, address in ipairs(addresses) do
    for word = address // 4, address // 4 + words - 1 do
      if not known[word] then
        known[word] = true
        in_bank[word % 32] = (in_bank[word % 32] or 0) + 1
        most = math.max(most, in_bank[word % 32])
      end
    end
  end
  return most
end

-- 4-byte words that a lane moves: by .128, .64 or .F32x4 in the name of an operation
local function words_of(op)
  return (op:find("%.128") or op:find("F32x4", 1, true)) and 4 or op:find("%.64") and 2 or 1
end

-- bytes of shared memory that a warp-group product reads, its multiply-adds, and its columns
local function product(instruction)
  local m, n, k = instruction.op:match("%.(%d+)x(%d+)x(%d+)")
  local from_memory = select(2, instruction.operands:gsub("gdesc", ""))
  -- The right operand always comes from shared memory. So does the left one, unless it is a
  -- register; the one descriptor in the text then stands for both.
  local left = instruction.operands:match("^R%d+, R%d+") == nil
  assert(from_memory == 1, "a product has one descriptor of its operands")
  return (left and m * k * 2 or 0) + n * k * 2, m * n * k, math.tointeger(n)
end

-- Add the cost of one instruction in all consumer warps of a block to `sum`: multiply-adds and
-- their cycles (narrow products may take more, `product16` of a machine file), exponentials, bytes
-- of shared memory and of the L2.
local function add(sum, instruction, times)
  local class = sass.class(instruction)
  sum.class[class or "unknown"] = (sum.class[class or "unknown"] or 0) + times
  if not class then
    sum:note(instruction.name .. " is not known, counted as an issue slot", times)
  end
  sum.slots = sum.slots + times
  local warps = times * WARPS
  if class == "product" then
    local bytes, work, columns = product(instruction)
    local rate = sum.rates["product" .. columns] or sum.rates.product
    sum.shared, sum.work = sum.shared + bytes * warps / 4, sum.work + work * warps / 4
    sum.tensor = sum.tensor + work * warps / 4 / rate
  elseif class == "special" then
    sum.special = sum.special + 32 * warps
  elseif class == "spill" then
    -- spills use the L1 cache, which is the same memory as shared memory
    local bytes = 128 * words_of(instruction.op)
    sum.shared, sum.l2 = sum.shared + bytes * warps, sum.l2 + bytes * warps
  elseif instruction.guard then
    return
  elseif instruction.name == "SHFL" then
    sum.shared = sum.shared + 128 * warps
  elseif class == "shared" then
    local words, addresses = words_of(instruction.op), sass.addresses(instruction)
    if not addresses then
      sum:note(instruction.name .. " at addresses that are not known, counted without conflicts",
        times)
    end
    sum.shared = sum.shared + 128 * (addresses and passes(addresses, words) or words) * warps
    sum.l2 = sum.l2 + (instruction.name == "LDGSTS" and 128 * words or 0) * warps
  elseif class == "global" and instruction.name ~= "UTMALDG" then
    sum.l2 = sum.l2 + 128 * words_of(instruction.op) * warps
  end
end

-- number of instructions of the producer warp per tile
local function copying(kernel, loops)
  local loop = kernel.copying and sass.loop_with(loops, { "UTMALDG", "SYNCS" })
  local turn = loop and sass.turn(loop, { "UTMALDG" }, function()
    return 1
  end) or {}
  return #turn * (kernel.copying or 0)
end

-- cycles of each unit per tile
local function count(kernel, list, cycle)
  local loops = sass.loops(list)
  local loop = sass.loop_with(loops, kernel.loop)
  if not loop then
    error(("%s: no loop holds %s"):format(kernel.kernel, table.concat(kernel.loop, " and ")), 0)
  end
  local sum = { rates = cycle, work = 0, tensor = 0, special = 0, slots = 0, shared = kernel.copied, l2 = kernel.copied,
    class = {}, notes = {} }
  function sum:note(text, times)
    self.notes[text] = (self.notes[text] or 0) + times
  end
  for _, step in ipairs(sass.turn(loop, kernel.steady, kernel.turns)) do
    add(sum, step[1], step[2] * (kernel.tiles or 1))
  end
  local expected = kernel.products * TILE * TILE * kernel.columns
  if sum.work ~= expected then
    error(("%s: the loop multiplies %d times, expected %d"):format(kernel.kernel, sum.work,
      expected), 0)
  end
  local slots = sum.slots * WARPS / SCHEDULERS + copying(kernel, loops)
  sum.cycles = { sum.tensor, sum.special / cycle.special,
    slots * SCHEDULERS / cycle.issue, sum.shared / cycle.shared, sum.l2 / cycle.l2 }
  return sum
end

-- ---- tables ----

local UNITS = { "tensor", "special", "issue", "shared", "L2" }
local CLASSES = { "product", "special", "float", "integer", "uniform", "shared", "spill", "global",
  "control", "unknown" }

local function bound_of(kernel, sum)
  local most, unit = 0, nil
  for i, cycles in ipairs(sum.cycles) do
    if cycles > most then
      most, unit = cycles, UNITS[i]
    end
  end
  return sum.work / sum.rates.product * kernel.width / kernel.columns / most, unit
end

local function row(name, width, values, form, last)
  local text = ("%-26s %4s"):format(name, width)
  for _, value in ipairs(values) do
    text = text .. form:format(value)
  end
  print(text .. (last or ""))
end

local files, name = {}, "H100"
for _, word in ipairs { ... } do
  name = word:match("^machine=(.*)$") or name
  files[#files + 1] = not word:find("^machine=") and word or nil
end
if #files == 0 then
  error("expected files that cuobjdump --dump-sass wrote: cuda/bench/bounds.lua FILE...", 0)
end
local machine = machine_of.open(name)
local cycle = machine.cycle
  or error(("%s: the machine file says nothing of a cycle"):format(name), 0)

local counted = {}
for _, path in ipairs(files) do
  for mangled, list in pairs(sass.kernels(base.read_file(path))) do
    for i, kernel in ipairs(KERNELS) do
      if mangled:find(kernel.kernel, 1, true) then
        counted[i] = count(kernel, list, cycle)
      end
    end
  end
end

if not next(counted) then
  error("no kernel of the list is in " .. table.concat(files, ", "), 0)
end
print(("bounds of loops by count, %s: cycles of a processor for a tile of 128 x 128; rates %s")
  :format(machine.name, cycle.source))
row("kernel", "d", UNITS, " %8s", "  share  bound")
for i, kernel in ipairs(KERNELS) do
  if counted[i] then
    row(kernel.title, kernel.width, counted[i].cycles, " %8.0f",
      ("  %5.2f  %s"):format(bound_of(kernel, counted[i])))
  end
end
print("joint attention of text and an image is attention of its d (128 in MMDiT), tiles without keys "
  .. "left out")
print("instructions of a warp in that loop, by class")
row("kernel", "d", CLASSES, " %8s")
for i, kernel in ipairs(KERNELS) do
  local values = {}
  for k, class in ipairs(CLASSES) do
    values[k] = counted[i] and counted[i].class[class] or 0
  end
  if counted[i] then
    row(kernel.title, kernel.width, values, " %8d")
  end
end
for i, kernel in ipairs(KERNELS) do
  if not counted[i] then
    print(("%s %d: not in these files"):format(kernel.title, kernel.width))
  end
  for note, times in pairs(counted[i] and counted[i].notes or {}) do
    print(("%s %d: %s: %d times"):format(kernel.title, kernel.width, note, times))
  end
end
