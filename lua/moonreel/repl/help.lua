--- help(x): prints help from op definitions, from rows of recipe fields, and from the comments
-- above functions.
-- @module moonreel.repl.help
local api = require "moonreel.api"
local clean = require "moonreel.text.clean"
local options = require "moonreel.text.options"

local help = {}

-- ---- ops


local op_rows

--- The row of an op; nil: there is no such op.
function help.op(name)
  if not op_rows then
    op_rows = {}
    for _, row in ipairs(require("moonreel.core.api").ops()) do
      op_rows[row.name] = row
    end
  end
  return op_rows[name]
end

--- The names of all ops, sorted.
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


-- the source lines of a module of moonreel, or of a file of the user
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


local function add_name(names, key)
  if type(key) == "string" and not key:match("^__") then
    names[key] = true
  end
end

-- adds the keys of a table of methods, or of a table that a function returns, and of its __index
local function add_methods(names, methods)
  if type(methods) == "function" then
    methods = methods()
  end
  for key in next, methods do
    add_name(names, key)
  end
  local behind = debug.getmetatable(methods)
  if behind and behind.__methods then
    add_methods(names, behind.__methods)
  end
end

-- the name of a type: __name of its metatable
local function type_name(value)
  local meta = debug.getmetatable(value)
  local name = type(meta) == "table" and rawget(meta, "__name")
  return type(name) == "string" and name or nil
end

--- The names of the methods and fields of a value, sorted. A type says what it offers by the rows
-- of its binding, by its table __index, or, if __index is a function, by `__methods` in its
-- metatable: a table with these names as keys, or a function that returns one.
---@param value any
---@return string[]
function help.members(value)
  local names, meta = {}, debug.getmetatable(value)
  local face = api.faces()[type_name(value) or ""]
  for _, row in ipairs(face and face.rows or {}) do
    add_name(names, row.name)
  end
  if value == require "moonreel.core.op" then
    for _, op in ipairs(help.op_names()) do
      add_name(names, op)
    end
  end
  if type_name(value) == "mr.Settings" then
    -- its own fields are behind the table __index
    for key in pairs(value) do
      add_name(names, key)
    end
  elseif type(value) == "table" then
    for key in next, value do
      add_name(names, key)
    end
  end
  local offers = type(meta) == "table" and (rawget(meta, "__methods") or rawget(meta, "__index"))
  if type(offers) == "table" or offers and rawget(meta, "__methods") then
    add_methods(names, offers)
  end
  local out = {}
  for name in pairs(names) do
    out[#out + 1] = name
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

--- Prints the names that the prompt, -e and scripts offer.
---@return string
function help.general()
  local lines = { "An expression prints its value; _ is the last value. A local remains visible. "
    .. "Ctrl-C stops a running command, Ctrl-D leaves.", "" }
  for _, row in ipairs(require("moonreel.repl.offered")) do
    lines[#lines + 1] = ("  %-8s %s"):format(row[1], row[2])
  end
  lines[#lines + 1] = ""
  lines[#lines + 1] = "  moonreel -e CODE and moonreel FILE.lua have the same names, except trace "
    .. "and exit; they may define the names again."
  lines[#lines + 1] = "  Positions of tensors, frames and samples count from 0: t[0], t[\"0, :, "
    .. "3:16\"], index[17]; Lua lists from 1."
  lines[#lines + 1] = "  help(\"linear\"), help(\"optim.lr\"), help(ckpt), help(nn.Linear): help "
    .. "on one thing."
  return table.concat(lines, "\n")
end

-- help on a field of recipes, from its row
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

-- the name at the prompt of a function or a module: "T.new", "data.loader", "plot"; nil: it has
-- none
local function name_at_prompt(env, f)
  for _, row in ipairs(require("moonreel.repl.offered")) do
    local value = rawget(env, row[1])
    if value == f then
      return row[1]
    end
    if row[3] and type(f) == "function" then
      for key, member in next, value do
        if member == f then
          return row[1] .. "." .. key
        end
      end
    end
  end
end

-- the options that the function of this name declares, one per line
local function options_text(name)
  local lines = {}
  for i, option in ipairs(options.declared[name] or {}) do
    lines[i] = "\n" .. api.option_text(option)
  end
  return table.concat(lines)
end

-- the text before the name of a row: "T.", "tensor:", "moonreel.core.base."
local function owner_text(env, face)
  local short = face.name:match("^mr%.(.*)$")
  if short then
    return short:lower() .. ":"
  end
  return (name_at_prompt(env, require(face.name)) or face.name) .. "."
end

local function function_text(env, f)
  local row, face = api.find(f)
  if row then
    return api.text(owner_text(env, face), row)
  end
  for _, name in ipairs(help.op_names()) do
    if rawget(require "moonreel.core.op", name) == f then
      return op_text(help.op(name))
    end
  end
  local name = name_at_prompt(env, f)
  for _, one in ipairs(require("moonreel.repl.offered")) do
    if one[1] == name then
      return one[2] .. options_text(name)
    end
  end
  local text = help.of_function(f)
  return text and text .. options_text(name) or "a function of Lua itself"
end

local function module_text(name, module)
  local face, app = api.faces()[name], require "moonreel.app"
  local path = "lua/" .. name:gsub("%.", "/")
  local text = app.embedded(path .. ".lua") or app.embedded(path .. "/init.lua")
  local head = face and face.doc or text and text:match("^%-%-%- (.-)\n")
  return name .. (head and ": " .. head or "") .. "\n" .. wrapped(help.members(module), "  ")
end

-- the value of a path like "data.loader" or "ckpt.find"; nil: there is none
local function value_of(env, path)
  local value = env
  for part in path:gmatch("[^.:]+") do
    local ok, inner = pcall(function() return value[part] end)
    value = ok and inner or nil
    if value == nil then
      return nil
    end
  end
  return value
end

--- The names of all fields of recipes.
---@return string[]
function help.field_names()
  local out = {}
  for _, row in ipairs(require("moonreel.recipe.describe").fields()) do
    out[#out + 1] = row.field
  end
  return out
end

--- The names that help("NAME") accepts: fields of recipes, ops, names of the prompt.
---@return string[]
function help.names()
  local out = help.field_names()
  table.move(help.op_names(), 1, #help.op_names(), #out + 1, out)
  for _, row in ipairs(require("moonreel.repl.offered")) do
    out[#out + 1] = row[1]
  end
  return out
end

--- The help page about a value or a name.
---@param env table
---@param x any
---@return string
function help.text(env, x)
  if type(x) == "string" then
    local found = {}
    for _, row in ipairs(require("moonreel.repl.offered")) do
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
    local value = #found == 0 and value_of(env, x)
    if value then
      return help.text(env, value)
    end
    if #found == 0 and package.loaded[x] then
      return help.text(env, package.loaded[x])
    end
    if #found == 0 then
      local near = require("moonreel.text.nearest")(x, help.names())
      return ("there is no op, field or name '%s'%s"):format(clean(x),
        near and (", did you mean '" .. near .. "'?") or "")
    end
    return table.concat(found, "\n")
  end
  if x == nil then
    return 'help: got nil; a name stands in quotes: help("linear")'
  end
  if type(x) == "function" then
    return function_text(env, x)
  end
  for name, module in pairs(package.loaded) do
    if module == x and type(x) == "table" then
      return module_text(name, x)
    end
  end
  local name, members = type_name(x) or type(x), help.members(x)
  local face = api.faces()[name]
  return name .. (face and ": " .. face.doc or "")
    .. (#members > 0 and "\n" .. wrapped(members, "  ") or "")
end

--- Implements help() and help(x) of the prompt.
function help.print(env, ...)
  print(select("#", ...) == 0 and help.general() or help.text(env, (...)))
end

return help
