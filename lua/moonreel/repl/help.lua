--- help(x): from op rows, field rows of recipes, and the comments above functions.
-- @module moonreel.repl.help
local clean = require "moonreel.text.clean"

local help = {}

-- ---- ops
-- ------------------------------------------------------------------------------------------------

local op_rows

--- The row of an op, or nil.
function help.op(name)
  if not op_rows then
    op_rows = {}
    for _, row in ipairs(require("moonreel.core.api").ops()) do
      op_rows[row.name] = row
    end
  end
  return op_rows[name]
end

--- Names of all ops, sorted.
function help.op_names()
  local out = {}
  for _, row in ipairs(require("moonreel.core.api").ops()) do
    out[#out + 1] = row.name
  end
  return out
end

local function op_text(row)
  local function list(rows)
    local out = {}
    for i, one in ipairs(rows) do
      out[i] = one.name
    end
    return table.concat(out, ", ")
  end
  local attrs = {}
  for i, a in ipairs(row.attrs) do
    attrs[i] = a.name
  end
  local lines = { ("ops.%s(%s%s) -> %s"):format(row.name, list(row.inputs),
    #attrs > 0 and ", {" .. table.concat(attrs, ", ") .. "}" or "",
    list(row.outputs)), "  " .. row.doc }
  if row.ref then
    lines[#lines + 1] = "  Ref: " .. row.ref
  end
  for _, one in ipairs(row.inputs) do
    lines[#lines + 1] = ("  %-12s %s"):format(one.name, one.type)
  end
  for _, one in ipairs(row.outputs) do
    lines[#lines + 1] = ("  -> %-9s %s"):format(one.name, one.type)
  end
  for _, a in ipairs(row.attrs) do
    lines[#lines + 1] = ("  %-12s %s(default %s)"):format(a.name, a.doc
    and a.doc .. " " or "", ("%g"):format(a.default)) end
  return table.concat(lines, "\n")
end

-- ---- functions
-- ------------------------------------------------------------------------------------------

-- source lines of a module of ours, or of the user's file
local function source_lines(info)
  local text
  if info.source:match("^@moonreel/") then
    text = require("moonreel.app").embedded("lua/" .. info.source:sub(2))
  elseif info.source:sub(1, 1) == "@" then
    local file = io.open(info.source:sub(2))
    if file then
      text = file:read("a")
      file:close()
    end
  end
  if not text then
    return nil
  end
  local lines = {}
  for line in (text .. "\n"):gmatch("(.-)\r?\n") do
    lines[#lines + 1] = line
  end
  return lines
end

--- The head line of a function and the comment above it.
---@return string|nil
function help.of_function(f)
  local info = debug.getinfo(f, "S")
  if info.what == "C" then
    return nil
  end
  local lines = source_lines(info)
  if not lines then
    return ("function, %s:%d"):format(info.short_src, info.linedefined)
  end
  local out, at = {}, info.linedefined - 1
  while at >= 1 and lines[at]:match("^%s*%-%-") do
    table.insert(out, 1, "  " .. lines[at]:gsub("^%s*%-+%s?", ""))
    at = at - 1
  end
  table.insert(out, 1, (lines[info.linedefined]:gsub("^%s*", "")))
  out[#out + 1] = ("  (%s:%d)"):format(info.short_src, info.linedefined)
  return table.concat(out, "\n")
end

-- ---- modules, methods, fields
-- -----------------------------------------------------------------------------

--- Names of the methods and fields of a value, sorted.
function help.members(value)
  local out, seen = {}, {}
  local function add(key)
    if type(key) == "string" and not key:match("^__") and not seen[key] then
      seen[key] = true
      out[#out + 1] = key
    end
  end
  local meta = debug.getmetatable(value)
  local name = type(meta) == "table" and rawget(meta, "__name")
  if type(value) == "table" then
    if name == "mr.Settings" then
      for key in pairs(value) do
        add(key)
      end
    else
      for key in next, value do
        add(key)
      end
    end
    if value == require "moonreel.core.op" then
      for _, op in ipairs(help.op_names()) do
        add(op)
      end
    end
  end
  if type(meta) == "table" then
    local index = rawget(meta, "__index")
    for key in pairs(type(index) == "table" and index or {}) do
      add(key)
    end
    if type(index) == "function" then
      -- own types whose lookup is a function keep their methods within reach of it
      for i = 1, 20 do
        local upvalue_name, upvalue = debug.getupvalue(index, i)
        if not upvalue_name then
          break
        end
        if type(upvalue) == "table" and (upvalue_name == "" or upvalue_name == "own"
          or upvalue_name:match("[Mm]ethods$") or upvalue_name == "Checkpoint") then
          for key in next, upvalue do
            add(key)
          end
        end
      end
    end
    if name == "mr.Checkpoint" then
      for key in pairs(require("moonreel.ckpt.look").methods) do
        add(key)
      end
      add "settings"
      add "lineage"
    elseif name == "mr.Tensor" then
      for _, key in ipairs { "shape", "dtype" } do
        add(key)
      end
    end
  end
  table.sort(out)
  return out
end

local function wrapped(list, indent)
  local lines, line = {}, indent
  for _, word in ipairs(list) do
    if #line + #word > 100 then
      lines[#lines + 1] = line
      line = indent
    end
    line = line .. word .. "  "
  end
  lines[#lines + 1] = line
  return (table.concat(lines, "\n"):gsub("%s+\n", "\n"):gsub("%s+$", ""))
end

local function general()
  local lines = { "An expression prints its value; _ is the last one. A local lives on. Ctrl-C "
    .. "stops what runs, Ctrl-D leaves.", "" }
  for _, row in ipairs(require("moonreel.repl.names").rows) do
    lines[#lines + 1] = ("  %-8s %s"):format(row[1], row[2])
  end
  lines[#lines + 1] = ""
  lines[#lines + 1] = "  Positions of tensors, frames and samples count from 0: t[0], t[\"0, :, "
    .. "3:16\"], index[17]; Lua lists from 1."
  lines[#lines + 1] = "  help(\"linear\"), help(\"optim.lr\"), help(ckpt), help(nn.Linear): more "
    .. "about one thing."
  return table.concat(lines, "\n")
end

-- a field of recipes, from its row
local function field_text(name)
  local target = require("moonreel.recipe.override").target(name)
  if not target then
    return nil
  end
  local path = table.concat(target.keys, ".")
  for _, row in ipairs(require("moonreel.recipe.describe").fields()) do
    if row.field == path then
      return ("%s: %s\n  kind %s, default %s%s\n  read by %s; affects %s; on resume: %s"):format(
        path, row.help, row.kind, row.default,
        row.spellings and ", also " .. row.spellings or "", row.reader, row.affects, row.resume)
    end
  end
end

--- The page about a value or a name.
---@param env table
---@param x any
---@return string
function help.text(env, x)
  if type(x) == "string" then
    local found = {}
    for _, row in ipairs(require("moonreel.repl.names").rows) do
      if row[1] == x then
        found[#found + 1] = ("%s: %s"):format(row[1], row[2])
      end
    end
    local op = help.op(x)
    if op then
      found[#found + 1] = op_text(op)
    end
    local field = field_text(x)
    if field then
      found[#found + 1] = field
    end
    if #found == 0 and env[x] ~= nil then
      return help.text(env, env[x])
    end
    if #found == 0 then
      local near = require("moonreel.text.nearest")(x, help.op_names())
      return ("no op, field or name '%s'%s"):format(clean(x),
        near and (", did you mean '" .. near .. "'?") or "")
    end
    return table.concat(found, "\n")
  end
  if type(x) == "function" then
    for name, f in pairs(env) do
      if f == x then
        for _, row in ipairs(require("moonreel.repl.names").rows) do
          if row[1] == name then
            return row[2]
          end
        end
      end
    end
    for _, name in ipairs(help.op_names()) do
      if rawget(require "moonreel.core.op", name) == x then
        return op_text(help.op(name))
      end
    end
    return help.of_function(x) or "a function written in C"
  end
  for name, module in pairs(package.loaded) do
    if module == x and type(x) == "table" then
      local text = require("moonreel.app").embedded("lua/" .. name:gsub("%.", "/") .. ".lua")
        or require("moonreel.app").embedded("lua/" .. name:gsub("%.", "/") .. "/init.lua")
      local head = text and text:match("^%-%-%- (.-)\n")
      return name .. (head and ": " .. head or "") .. "\n" .. wrapped(help.members(x), "  ")
    end
  end
  local meta = debug.getmetatable(x)
  local name = type(meta) == "table" and rawget(meta, "__name") or type(x)
  local members = help.members(x)
  return #members > 0 and ("%s\n%s"):format(name, wrapped(members, "  ")) or name
end

--- help() and help(x) of the prompt.
function help.print(env, ...)
  print(select("#", ...) == 0 and general() or help.text(env, (...)))
end

return help
