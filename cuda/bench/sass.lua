--- Reads machine code as `cuobjdump --dump-sass` writes it: finds the loops of a kernel, and the
-- instructions of one iteration of a loop.
local sass = {}

--- Classes of instructions. Instructions in `uniform` run once per warp, on uniform registers.
local CLASSES = {
  product = "HGMMA",
  special = "MUFU",
  float = "FADD FMUL FFMA FMNMX FSEL FSETP FSET FCHK F2F F2FP F2I I2F I2FP HADD2 HMUL2 HFMA2",
  integer = "IADD3 IADD IMAD IABS IMNMX VIMNMX VIADD VIADDMNMX VABSDIFF ISETP LEA LOP3 SHF SEL MOV "
    .. "PRMT PLOP3 SGXT BREV FLO POPC P2R R2P CS2R S2R LDC VOTE MATCH",
  uniform = "UIADD3 UIMAD ULOP3 USHF UMOV UISETP USEL ULEA UPLOP3 UPRMT ULDC UFLO UPOPC UBREV USGXT "
    .. "UP2UR UR2UP R2UR S2UR VOTEU REDUX",
  shared = "LDS LDSM STS STSM SHFL ATOMS LDGSTS",
  spill = "LDL STL",
  global = "LDG STG LD ST REDG RED ATOMG ATOM UTMALDG UTMASTG CCTL",
  control = "BRA BSSY BSYNC BREAK BMOV CALL RET EXIT WARPSYNC NOP YIELD NANOSLEEP ELECT ENDCOLLECTIVE "
    .. "BAR SYNCS WARPGROUP DEPBAR LDGDEPBAR ARRIVES FENCE MEMBAR ERRBAR CGAERRBAR USETMAXREG",
}
local class_of = {}
for class, names in pairs(CLASSES) do
  for name in names:gmatch("%S+") do
    class_of[name] = class
  end
end

--- The class of an instruction, or nil if it is unknown.
---@param instruction table
---@return string|nil
function sass.class(instruction)
  return class_of[instruction.name]
end

--- The kernels of a dump, by mangled name.
---@param text string
---@return table<string, table[]> kernels  instructions {at, op, name, guard, operands}
function sass.kernels(text)
  local kernels, list = {}, nil
  for line in text:gmatch("[^\n]+") do
    local name = line:match("^%s*Function : (%S+)")
    local at, code = line:match("^%s*/%*(%x%x%x%x+)%*/%s*(.-)%s*;")
    if name then
      list = {}
      kernels[name] = list
    elseif at and list then
      local guard, rest = code:match("^@(%S+)%s+(.*)$")
      local op, operands = (rest or code):match("^(%S+)%s*(.*)$")
      list[#list + 1] = { at = tonumber(at, 16), op = op, name = op:match("^[^.]+"), guard = guard,
        operands = operands }
    end
  end
  return kernels
end

-- ---- blocks ----

-- the target of a jump, and whether control can reach the next instruction
local function exits_of(instruction)
  local name, guard = instruction.name, instruction.guard
  if name == "EXIT" or name == "RET" then
    return nil, guard ~= nil
  elseif name == "BRA" then
    local condition, target = instruction.operands:match("^(.-)0x(%x+)$")
    return tonumber(target, 16), guard ~= nil or condition ~= ""
  end
  return nil, true
end

local function blocks_of(list)
  local starts = { [list[1].at] = true }
  for i, instruction in ipairs(list) do
    local target, falls = exits_of(instruction)
    if target then
      starts[target] = true
    end
    if (target or not falls) and list[i + 1] then
      starts[list[i + 1].at] = true
    end
  end
  local blocks, by_address = {}, {}
  for _, instruction in ipairs(list) do
    if starts[instruction.at] then
      blocks[#blocks + 1] = { to = {}, from = {} }
      by_address[instruction.at] = blocks[#blocks]
    end
    local block = blocks[#blocks]
    instruction.block, instruction.index = block, #block + 1
    block[instruction.index] = instruction
  end
  for i, block in ipairs(blocks) do
    local target, falls = exits_of(block[#block])
    for _, next_block in ipairs { target and by_address[target] or false,
      falls and blocks[i + 1] or false } do
      if next_block then
        table.insert(block.to, next_block)
        table.insert(next_block.from, block)
      end
    end
  end
  return blocks
end

-- the reachable blocks, each after its predecessors (except for back edges of loops)
local function in_order(first)
  local order, seen = {}, {}
  local function visit(block)
    seen[block] = true
    for _, next_block in ipairs(block.to) do
      if not seen[next_block] then
        visit(next_block)
      end
    end
    table.insert(order, 1, block)
  end
  visit(first)
  for i, block in ipairs(order) do
    block.number = i
  end
  return order
end

-- Set block.over, the immediate dominator of each block. Ref: Cooper, Harvey, Kennedy 2001, A
-- simple, fast dominance algorithm.
local function find_dominators(order)
  order[1].over = order[1]
  local changed = true
  while changed do
    changed = false
    for i = 2, #order do
      local over
      for _, from in ipairs(order[i].from) do
        local other = from.over and from
        while over and other and over ~= other do
          if over.number > other.number then
            over = over.over
          else
            other = other.over
          end
        end
        over = over or other
      end
      changed = changed or order[i].over ~= over
      order[i].over = over
    end
  end
end

local function dominates(a, b)
  while b.number > a.number do
    b = b.over
  end
  return a == b
end

-- ---- loops ----

--- Does a loop contain an instruction?
---@param loop table
---@param op string  how its name begins
---@return boolean
function sass.holds(loop, op)
  for block in pairs(loop.blocks) do
    for _, instruction in ipairs(block) do
      if instruction.op:find(op, 1, true) == 1 then
        return true
      end
    end
  end
  return false
end

--- The loops of a kernel, inner ones first: {first, blocks (a set), size, inside (loops)}.
---@param list table[]  its instructions
---@return table[]
function sass.loops(list)
  local order, by_first, loops = in_order(blocks_of(list)[1]), {}, {}
  find_dominators(order)
  local function add(loop, block)
    if not loop.blocks[block] then
      loop.blocks[block] = true
      loop.size = loop.size + #block
      for _, from in ipairs(block.from) do
        if from.number then
          add(loop, from)
        end
      end
    end
  end
  for _, block in ipairs(order) do
    for _, first in ipairs(block.to) do
      if dominates(first, block) then
        local loop = by_first[first]
        if not loop then
          loop = { first = first, blocks = { [first] = true }, size = #first, inside = {} }
          by_first[first] = loop
          loops[#loops + 1] = loop
        end
        add(loop, block)
      end
    end
  end
  table.sort(loops, function(a, b)
    return a.size < b.size
  end)
  for i, loop in ipairs(loops) do
    for k = i + 1, #loops do
      if loops[k].blocks[loop.first] then
        table.insert(loops[k].inside, loop)
        break
      end
    end
  end
  return loops
end

--- The smallest loop that contains all of these instructions.
---@param loops table[]  of sass.loops
---@param ops string[]   how their names begin
---@return table|nil
function sass.loop_with(loops, ops)
  for _, loop in ipairs(loops) do
    local all = true
    for _, op in ipairs(ops) do
      all = all and sass.holds(loop, op)
    end
    if all then
      return loop
    end
  end
  return nil
end

-- ---- one iteration ----

-- The graph of one iteration of a loop: a list of nodes in execution order. Each block of the loop
-- itself is a node, and each inner loop is one node. The last node is the end of the iteration.
-- node.to: the set of nodes that may follow.
local function nodes_of(loop)
  local node_of = {}
  for _, inner in ipairs(loop.inside) do
    local node = { loop = inner, to = {}, number = inner.first.number }
    for block in pairs(inner.blocks) do
      node_of[block] = node
    end
  end
  local nodes, known = {}, {}
  for block in pairs(loop.blocks) do
    local node = node_of[block] or { block = block, to = {}, number = block.number }
    node_of[block] = node
    if not known[node] then
      known[node] = true
      nodes[#nodes + 1] = node
    end
  end
  local last = { to = {}, number = math.huge }
  for block in pairs(loop.blocks) do
    for _, next_block in ipairs(block.to) do
      local from, to = node_of[block], node_of[next_block]
      if next_block == loop.first then
        from.to[last] = true
      elseif to and to ~= from then
        from.to[to] = true
      end
    end
  end
  nodes[#nodes + 1] = last
  table.sort(nodes, function(a, b)
    return a.number < b.number
  end)
  return nodes
end

-- The shortest path, in instructions, between two nodes: the nodes after `from`, up to and
-- including `to`. Returns nil if there is no path.
local function way(nodes, from, to)
  local length, before = { [from] = 0 }, {}
  for _, node in ipairs(nodes) do
    for next_node in pairs(length[node] and node.to or {}) do
      local new = length[node] + next_node.length
      if not length[next_node] or new < length[next_node] then
        length[next_node], before[next_node] = new, node
      end
    end
  end
  local list = {}
  while length[to] and to ~= from do
    table.insert(list, 1, to)
    to = before[to]
  end
  return to == from and list or nil
end

--- The instructions that a warp issues in one iteration of a loop, on the shortest path through
-- every block that contains any of `ops`. So a wait counts as if it succeeded at once, and code for
-- partial tiles is skipped.
---@param loop table       of sass.loops
---@param ops string[]     how names of instructions begin
---@param turns function   (a loop inside that holds any of `ops`) -> how often it runs in a turn
---@return table[]  {instruction, times}
function sass.turn(loop, ops, turns)
  local nodes, path = nodes_of(loop), {}
  local function must(node)
    local blocks = node.loop and node.loop.blocks or { [node.block or {}] = true }
    for _, op in ipairs(ops) do
      if sass.holds({ blocks = blocks }, op) then
        return true
      end
    end
    return false
  end
  for _, node in ipairs(nodes) do
    node.must = must(node)
    node.turn = node.loop and sass.turn(node.loop, ops, turns) or node.block or {}
    node.length = #node.turn
  end
  local from = nodes[1]
  local list = { from }
  for _, node in ipairs(nodes) do
    if node ~= from and (node.must or node.number == math.huge) then
      local more = way(nodes, from, node)
      if not more then
        error(("no turn of the loop at 0x%x passes all of %s"):format(loop.first[1].at,
          table.concat(ops, ", ")), 0)
      end
      table.move(more, 1, #more, #list + 1, list)
      from = node
    end
  end
  for _, node in ipairs(list) do
    local times = node.loop and node.must and turns(node.loop) or 1
    for _, step in ipairs(node.turn) do
      path[#path + 1] = node.loop and { step[1], step[2] * times } or { step, 1 }
    end
  end
  return path
end

-- ---- addresses ----

-- the thread number of lane 0 in the first consumer warp
local THREAD = 128
local WORD = 0xFFFFFFFF

local function signed(x)
  return x >= 1 << 31 and x - (1 << 32) or x
end

-- LOP3: bit i of the table is the result for combination i of the three input bits
local function by_table(a, b, c, lut)
  local all = 0
  for i = 0, 7 do
    if lut >> i & 1 == 1 then
      all = all | (i & 4 ~= 0 and a or ~a) & (i & 2 ~= 0 and b or ~b) & (i & 1 ~= 0 and c or ~c)
    end
  end
  return all
end

local function shifted(op, value, by)
  if op:find("%.L%.") then
    return value << by
  end
  return op:find("S32") and signed(value) // (1 << by) or value >> by
end

-- the result of an integer instruction for a lane: (op, operand values) -> number
local FORMULAS = {
  MOV = function(_, a)
    return a
  end,
  VIADD = function(_, a, b)
    return a + b
  end,
  IADD3 = function(_, a, b, c)
    return a + b + c
  end,
  IMAD = function(_, a, b, c)
    return a * b + c
  end,
  LOP3 = function(_, a, b, c, lut)
    return by_table(a, b, c, lut)
  end,
  SHF = function(op, low, by, high)
    return shifted(op, op:find("%.L%.") and low or high, by)
  end,
  LEA = function(op, a, b, c, d)
    if op:find("%.HI%.SX32") then
      return signed(a) // (1 << (32 - c)) + b
    end
    return (op:find("%.HI") and c << d | a >> (32 - d) or a << (c or 0)) + b
  end,
}

local value_of

-- the operands of an instruction without predicates (carries, conditions)
local function operands_of(instruction)
  if not instruction.list then
    instruction.list = {}
    for text in instruction.operands:gmatch("[^, ]+") do
      table.insert(instruction.list, not text:find("^!?U?PT?%d*$") and text or nil)
    end
  end
  return instruction.list
end

-- The value of an operand for a lane, or nil if it is unknown. Uniform registers and constants
-- count as 0: they are equal in all lanes, so they shift all addresses by the same amount.
local function operand_value(text, instruction, lane)
  local sign, rest = text:match("^([-~]?)(.-)$")
  rest = rest:gsub("%.reuse$", "")
  local value
  if rest:find("^R%d+$") then
    value = value_of(rest, instruction, lane)
  elseif rest:find("^0x%x+$") then
    value = tonumber(rest)
  elseif rest:find("^U?RZ$") or rest:find("^UR%d+$") or rest:find("^c%[") or rest:find("^SRZ$") then
    value = 0
  end
  return value and (sign == "-" and -value or sign == "~" and ~value or value) & WORD
end

-- the value that an instruction writes to its register in a lane, or nil if it is unknown
local function result_of(instruction, lane)
  local name, list = instruction.name, operands_of(instruction)
  if name == "S2R" then
    return list[2] == "SR_TID.X" and THREAD + lane or nil
  elseif name == "LDC" or name == "CS2R" then
    return 0
  elseif name == "SHFL" and instruction.op == "SHFL.IDX" then
    return operand_value(list[2], instruction, 0)
  end
  local formula, values = FORMULAS[name], {}
  for i = 1, #list - 1 do
    values[i] = formula and operand_value(list[i + 1], instruction, lane)
    if not values[i] then
      return nil
    end
  end
  return formula and #values > 0 and formula(instruction.op, table.unpack(values)) & WORD or nil
end

-- The last instruction before `instruction` that always writes the register: it has no guard, and
-- it is on every path. Returns nil if there is no such instruction.
local function writer_of(register, instruction)
  local block, index = instruction.block, instruction.index
  while true do
    for i = index - 1, 1, -1 do
      if not block[i].guard and operands_of(block[i])[1] == register then
        return block[i]
      end
    end
    if block.over == block then
      return nil
    end
    block = block.over
    index = #block + 1
  end
end

-- the value of a register in a lane when an instruction reads it, or nil if it is unknown
function value_of(register, instruction, lane)
  instruction.writers = instruction.writers or {}
  local writer = instruction.writers[register]
  if writer == nil then
    writer = writer_of(register, instruction) or false
    instruction.writers[register] = writer
  end
  return writer and result_of(writer, lane)
end

--- The shared-memory addresses that the 32 lanes of a warp access, all shifted by one unknown
-- amount that is the same for every lane. This is enough to find bank conflicts. Returns nil if an
-- address depends on a value that cannot be traced back to the thread number.
---@param instruction table  of a kernel whose loops were looked for
---@return integer[]|nil  of 32 lanes
function sass.addresses(instruction)
  local inside, lanes = instruction.operands:match("%[(.-)%]"), {}
  for lane = 0, 31 do
    local sum = 0
    for term in (inside or ""):gmatch("[^+]+") do
      local register, scale = term:match("^(.-)%.X(%d+)$")
      local value = operand_value(register or term, instruction, lane)
      if not value then
        return nil
      end
      sum = sum + value * (tonumber(scale) or 1)
    end
    lanes[lane + 1] = sum & WORD
  end
  return inside and lanes
end

return sass
