--- Sources as texts: the files below a folder, what a C file defines and uses, cycles of files.
local base = require "moonreel.core.base"
local tokens = dofile "spec/support/tokens.lua"

local sources = {}

--- Files below a folder whose name matches, as paths in order.
---@param folder string
---@param ending string pattern of the name
---@return string[]
function sources.files(folder, ending, into)
  into = into or {}
  for _, name in ipairs(base.list_dir(folder)) do
    local path = folder .. "/" .. name
    if base.exists(path .. "/.") then
      sources.files(path, ending, into)
    elseif name:match(ending) then
      into[#into + 1] = path
    end
  end
  return into
end

-- statements outside of functions, each with its body, if it has one
local function statements(text)
  text = ("\n" .. text):gsub("\n%s*#[^\n]*", "\n"):gsub("%b[]", "")
  text = text:gsub('extern%s*""%s*{', ""):gsub("namespace[%s%w_]*{", "")
  local list, at = {}, 1
  while true do
    local stop = text:find("[;{]", at)
    if not stop then
      return list
    end
    local body = text:match("^%b{}", stop)
    list[#list + 1] = { head = text:sub(at, stop - 1), body = body }
    at = stop + #(body or ";")
  end
end

-- the name that a statement declares, and whether it is a function; nil: a type
local function subject(statement)
  local head = statement.head:gsub("__%l[%l_]*__%s*%b()", "")
  local value = head:find "="
  head = head:gsub("=.*", "")
  repeat -- attributes that a macro adds after the arguments
    local before = head:match "^(.*%))%s*%u[%u%d_]*%s*%b()%s*$"
    head = before or head
  until not before
  if head:find "^%W*typedef%W" or (statement.body and not value and not head:find "%(") then
    return nil
  end
  local calls = head:match "([%a_][%w_]*)%s*%b()[%s%a]*$"
  local pointer = head:match "%(%*([%a_][%w_]*)%)%s*%b()%s*$"
  return calls or pointer or head:match "%w[%s*&]+([%a_][%w_]*)%s*$", calls ~= nil
end

--- What a text of C uses, declares and defines. Private definitions of a file, `static` or a macro,
-- are texts by name.
---@return table { uses, declares, defines: [name] = true; own: [name] = text }
function sources.names(text)
  text = tokens.bare(text):gsub("\\\n", " ")
  local names = { uses = {}, declares = {}, defines = {}, own = {} }
  for _, statement in ipairs(statements(text)) do
    local name, calls = subject(statement)
    local head = " " .. statement.head
    if not name then
      goto next
    elseif head:find "%Wstatic%W" then
      names.own[name] = statement.body or names.own[name] or ""
    elseif head:find "%Wextern%W" or calls and not statement.body then
      names.declares[name] = true
    else
      names.defines[name] = true
    end
    ::next::
  end
  for name, body in text:gmatch "#%s*define%s+([%w_]+)([^\n]*)" do
    names.own[name] = body
  end
  for at, name in text:gmatch "()%f[%w_]([%a_][%w_]*)" do
    local before = text:sub(at - 2, at - 1)
    if before ~= "->" and not before:find "[%w_%])]%.$" then
      names.uses[name] = true
    end
  end
  return names
end

--- Which files of a folder use what others of it define: arrows[file][other] = names. Functions and
-- macros of headers stand for what they use.
---@param folder string
---@param headers string[] further ones whose declarations count
function sources.arrows(folder, headers)
  local units, owner, declared, shared = {}, {}, {}, {}
  local function read_header(path)
    local names = sources.names(base.read_file(path))
    for name in pairs(names.declares) do
      declared[name] = true
    end
    for name, body in pairs(names.own) do
      shared[name] = body
    end
  end
  for _, path in ipairs(headers) do
    read_header(path)
  end
  for _, path in ipairs(sources.files(folder, "%.[ch]%w*$")) do
    if path:match "h$" then
      read_header(path)
    else
      units[path:sub(#folder + 2)] = sources.names(base.read_file(path))
    end
  end
  for file, names in pairs(units) do
    for name in pairs(names.defines) do
      owner[name] = declared[name] and file
    end
  end
  local arrows = {}
  for file, names in pairs(units) do
    local needs, seen = {}, {}
    local function follow(uses)
      for name in pairs(uses) do
        local other = owner[name]
        if seen[name] or names.defines[name] or names.own[name] then
          other = nil
        elseif not other and shared[name] then
          seen[name] = true
          follow(sources.names(shared[name]).uses)
        end
        if other then
          needs[other] = needs[other] or {}
          needs[other][name] = true
        end
      end
    end
    follow(names.uses)
    arrows[file] = needs
  end
  return arrows
end

--- Cycles of a relation, each as a sorted list, the list sorted, too.
---@param arrows table arrows[from][to] is truthy
function sources.circles(arrows)
  local number, low, stack, on, count, out = {}, {}, {}, {}, 0, {}
  local function visit(node)
    count = count + 1
    number[node], low[node] = count, count
    stack[#stack + 1], on[node] = node, true
    for other in pairs(arrows[node] or {}) do
      if not number[other] then
        visit(other)
        low[node] = math.min(low[node], low[other])
      elseif on[other] then
        low[node] = math.min(low[node], number[other])
      end
    end
    if low[node] == number[node] then
      local circle = {}
      repeat
        local top = table.remove(stack)
        on[top] = nil
        circle[#circle + 1] = top
      until top == node
      if #circle > 1 then
        table.sort(circle)
        out[#out + 1] = circle
      end
    end
  end
  for node in pairs(arrows) do
    if not number[node] then
      visit(node)
    end
  end
  table.sort(out, function(a, b) return a[1] < b[1] end)
  return out
end

return sources
