--- Compiles what a user types: an expression needs no `return`, input may take several lines, and a
-- `local` at top level remains visible in later input.
--
-- Later input sees the same variable, not a copy, so closures that were made earlier see its
-- changes. Each chunk is compiled inside a frame that declares the session's locals which the chunk
-- mentions, and debug.upvaluejoin joins these with the variables of the chunk that made them.
-- @module moonreel.repl.chunk
local lexer = require "moonreel.recipe.lexer"

local chunk = {}
chunk.__index = chunk

local openers = { ["function"] = true, ["do"] = true, ["then"] = true, ["repeat"] = true,
  ["("] = true, ["{"] = true, ["["] = true }
local closers = { ["end"] = true, ["until"] = true, ["elseif"] = true, [")"] = true,
  ["}"] = true, ["]"] = true }

-- the names that `local` declares outside every block, all mentioned names, and the text without
-- its <const>
local function scan(text)
  local words, declared, mentioned, constants, depth = lexer.words(text), {}, {}, {}, 0
  local i = 1
  while i <= #words do
    local word = words[i]
    if word.kind == "name" then
      mentioned[word.text] = true
    end
    if word.kind ~= "text" and closers[word.text] then
      depth = depth - 1
    end
    if word.kind ~= "text" and openers[word.text] then
      depth = depth + 1
    end
    if word.kind == "name" and word.text == "local" and depth == 0 then
      local next_word = words[i + 1]
      if next_word and next_word.text == "function" then
        declared[#declared + 1] = words[i + 2] and words[i + 2].text
      else
        local at = i + 1
        while words[at] and words[at].kind == "name" do
          declared[#declared + 1] = words[at].text
          at = at + 1
          if words[at] and words[at].text == "<" then
            -- Lua folds a constant away, so it could not be visible later
            if words[at + 1] and words[at + 1].text == "const" then
              constants[#constants + 1] = words[at]
            end
            at = at + 3
          end
          if not (words[at] and words[at].text == ",") then
            break
          end
          at = at + 1
        end
      end
    end
    i = i + 1
  end
  -- from the end, so that positions remain valid
  for at = #constants, 1, -1 do
    local word = constants[at]
    text = text:sub(1, word.from - 1) .. text:sub(word.from):gsub("^<%s*const%s*>", "")
  end
  return declared, mentioned, text
end

--- Creates a session: its environment and its locals.
---@param env table
---@return table
function chunk.new(env)
  return setmetatable({ env = env, cells = {}, names = {} }, chunk)
end

--- The names of the session's locals.
---@return string[]
function chunk:locals()
  local out = {}
  for name in pairs(self.cells) do
    out[#out + 1] = name
  end
  table.sort(out)
  return out
end

-- the value of a cell {function, index}
local function value_of(cell) return select(2, debug.getupvalue(cell[1], cell[2])) end

--- The value of a local of the session.
---@return any value, boolean known
function chunk:get(name)
  local cell = self.cells[name]
  if cell then
    return value_of(cell), true
  end
  return nil, false
end

-- takes the cells of a closure that mentions the new locals
function chunk:keep(f)
  for i = 1, 255 do
    local name = debug.getupvalue(f, i)
    if not name then
      return
    end
    if name ~= "_ENV" then
      self.cells[name] = { f, i }
    end
  end
end

-- compiles `body` in a frame that declares the session's locals that it mentions
function chunk:frame(body, mentioned)
  local names = {}
  for name in pairs(mentioned) do
    if self.cells[name] then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  -- the frame assigns every local, so that the joined function has it as an upvalue
  local head = #names > 0 and ("local %s; "):format(table.concat(names, ", ")) or ""
  local maker, problem = load(("%sreturn function(__keep) %s\nend"):format(head, body),
    "=prompt", "t", self.env)
  if not maker then
    return nil, problem
  end
  local f = maker()
  for i = 1, 255 do
    local name = debug.getupvalue(f, i)
    if not name then
      break
    end
    local cell = self.cells[name]
    if cell then
      debug.upvaluejoin(f, i, cell[1], cell[2])
    end
  end
  return f
end

--- Compiles input.
---@param text string
---@return function|nil run   call it without arguments
---@return string|nil problem  "more" if the input is incomplete, else the error
function chunk:compile(text)
  local plain, problem = load(text, "=prompt", "t", self.env)
  local is_expression = load("return " .. text .. "\n", "=prompt", "t", self.env)
  if not plain and not is_expression then
    if problem:match("near '?<eof>'?$") then
      return nil, "more"
    end
    return nil, problem
  end
  local declared, mentioned, kept = scan(text)
  if is_expression then
    local f
    f, problem = self:frame("return " .. text, mentioned)
    return f, problem
  end
  local f
  if #declared > 0 then
    f, problem = self:frame(("%s\n__keep(function() return %s end)"):format(kept,
      table.concat(declared, ", ")), mentioned)
  end
  -- after a final `return` no local can be kept
  f = f or self:frame(text, mentioned)
  if not f then
    return nil, problem
  end
  return function() return f(function(cells) self:keep(cells) end) end
end

return chunk
