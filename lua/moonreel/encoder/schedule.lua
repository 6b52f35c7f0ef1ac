--- Finds the source of each input row in a list of calls: the last earlier call that computed the
-- row, otherwise the caller.
-- @module moonreel.encoder.schedule
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"

local schedule = {}

-- rows [first, first + n) of a value come from an output of a call from now on
local function give(rows, call, output, gives)
  local name, first, n = table.unpack(gives)
  rows[name] = rows[name] or {}
  for row = first, first + n - 1 do
    rows[name][row] = { call = call, output = output, first = row - first }
  end
end

-- the pieces of an input, in order; nil: the caller provides it
local function pieces_of(rows, call, input, take)
  local name, first, pieces = take[1], take[2], {}
  local n, at, lacking = take.shape[1], rows[name] or {}, nil
  for row = first, first + n - 1 do
    local from, last = at[row], pieces[#pieces]
    if from and last and last.from == from.call and last.output == from.output
        and last.first + last.n == from.first then
      last.n = last.n + 1
    elseif from then
      pieces[#pieces + 1] = { from = from.call, output = from.output, first = from.first, n = 1,
        to = call, input = input, at = row - first }
    end
    lacking = lacking or not from and row or nil
  end
  if lacking and #pieces > 0 then
    base.raise("MR_E_INTERNAL", ("calls: input '%s' takes rows %d to %d of '%s', of which calls "
      .. "before it give some, but not row %d"):format(input, first, first + n - 1, name, lacking))
  end
  return #pieces > 0 and pieces or nil
end

local function sorted(map)
  local names = {}
  for name in pairs(map) do
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end
schedule.sorted = sorted

-- ---- the form of calls

local function is_row(x) return math.type(x) == "integer" and x >= 0 end

local function check_ends(refuse, call)
  for input, take in pairs(call.takes) do
    if type(take[1]) ~= "string" or not is_row(take[2]) or type(take.shape) ~= "table" then
      refuse("takes.%s: expected {value, first row, dtype =, shape =}", input)
    end
  end
  for output, gives in pairs(call.gives) do
    if type(gives[1]) ~= "string" or not is_row(gives[2]) or not is_row(gives[3]) then
      refuse("gives.%s: expected {value, first row, rows}", output)
    end
  end
end

-- the inputs of a call's program as text
local function inputs_of(call)
  local list = {}
  for i, input in ipairs(sorted(call.takes)) do
    local take = call.takes[input]
    list[i] = ("%s %s [%s]"):format(input, take.dtype, table.concat(take.shape, ", "))
  end
  return table.concat(list, ", ")
end

--- Refuses calls of another form. One program runs calls of one part and key, so these have the
-- same inputs.
---@param calls any                what calls() of a family returned
---@param parts table<string, any> by name: those of the encoder
function schedule.check(calls, parts)
  if type(calls) ~= "table" or #calls == 0 then
    base.raise("MR_E_USAGE", ("calls() of an encoder returned %s; expected a list of calls")
      :format(type(calls) == "table" and "no call" or type(calls)))
  end
  local inputs = {}
  for i, call in ipairs(calls) do
    local function refuse(...)
      base.raise("MR_E_USAGE", ("call %d of an encoder: "):format(i) .. string.format(...))
    end
    if not parts[call.part] then
      refuse("its part is '%s'; expected one of: %s", tostring(call.part),
        table.concat(sorted(parts), ", "))
    elseif type(call.key) ~= "string" or type(call.nodes) ~= "function"
        or type(call.takes) ~= "table" or type(call.gives) ~= "table" then
      refuse("expected {part, key = TEXT, takes = TABLE, gives = TABLE, nodes = FUNCTION}")
    end
    check_ends(refuse, call)
    local name, its = call.part .. " " .. call.key, inputs_of(call)
    if inputs[name] and inputs[name] ~= its then
      refuse("its inputs are %s; a call before it has the same key '%s', and inputs %s", its,
        call.key, inputs[name])
    end
    inputs[name] = its
  end
end

--- The pieces that calls pass to other calls.
---@param calls table[]  each takes = {input = {value, first row, dtype =, shape =}}, gives =
---   {output = {value, first row, rows}}
---@return table[][]     by call: {from, output, first, n, to, input, at}, in the order of an input
---@return table[]       by call: names of inputs that the caller provides
function schedule.of(calls)
  local rows, leaves, brought = {}, {}, {}
  for i, call in ipairs(calls) do
    leaves[i], brought[i] = {}, {}
    for _, input in ipairs(sorted(call.takes)) do
      local pieces = pieces_of(rows, i, input, call.takes[input])
      brought[i][#brought[i] + 1] = not pieces and input or nil
      for _, piece in ipairs(pieces or {}) do
        table.insert(leaves[piece.from], piece)
      end
    end
    for _, output in ipairs(sorted(call.gives)) do
      give(rows, i, output, call.gives[output])
    end
  end
  return leaves, brought
end

--- The calls of each program, in order. Inputs may be given to the first call that has not run.
---@param calls table[]
---@param name_of fun(call: table): string  name of its program
---@return table<string, table>  by name: numbers of calls; at: position of the first that has not
---   run
function schedule.queues(calls, name_of)
  local queues = {}
  for i, call in ipairs(calls) do
    local name = name_of(call)
    queues[name] = queues[name] or { at = 1 }
    table.insert(queues[name], i)
  end
  return queues
end

--- The most bytes of host memory for rows for which no program has space yet, during a run of the
-- calls.
---@param calls table[]
---@param name_of fun(call: table): string  name of its program
---@return integer
function schedule.held(calls, name_of)
  local leaves, queues = schedule.of(calls), schedule.queues(calls, name_of)
  local pending, held, now, most = {}, {}, 0, 0
  local function hold(piece)
    local key = piece.to .. " " .. piece.input
    if not held[key] then
      local take = calls[piece.to].takes[piece.input]
      held[key] = T.count(take.shape) * #T.new(take.dtype, { 1 }):bytes()
      now = now + held[key]
      most = math.max(most, now)
    end
  end
  -- removes the pieces for which f is true
  local function each(f)
    local rest = {}
    for _, piece in ipairs(pending) do
      rest[#rest + 1] = not f(piece) and piece or nil
    end
    pending = rest
  end
  for i, call in ipairs(calls) do
    local name = name_of(call)
    each(function(piece)
      local lost = name_of(calls[piece.from]) == name
      if lost then
        hold(piece)
      end
      return lost
    end)
    for input in pairs(call.takes) do
      local key = i .. " " .. input
      now, held[key] = now - (held[key] or 0), nil
    end
    queues[name].at = queues[name].at + 1
    table.move(leaves[i], 1, #leaves[i], #pending + 1, pending)
    each(function(piece)
      local queue = queues[name_of(calls[piece.to])]
      return queue[queue.at] == piece.to
    end)
  end
  return most
end

return schedule
