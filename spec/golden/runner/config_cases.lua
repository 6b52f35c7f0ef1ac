--- The reference's recipe language, case by case: value conversion, command line, arguments,
-- inheritance. Registries and recipes are made from the cases themselves. What we do is compared
-- with what our rules say (config_rules.lua, twins.lua); what the rules say is the reference's own
-- result, or there is a reason why it is not. A file may hold any part of the cases; one that the
-- rules cannot read is left aside by name. Ref: opensora-2.0.md 7.
-- @module spec.golden.runner.config_cases
local json = require "moonreel.core.json"
local marker = require "moonreel.recipe.marker"
local override = require "moonreel.recipe.override"
local registry = require "moonreel.recipe.registry"
local settings = require "moonreel.settings"
local folders = require "spec.support.folder"
local rules = require "spec.golden.runner.config_rules"
local twins = require "spec.golden.runner.twins"

local cases = {}

--- Values of the reference's JSON: tuples are lists, dictionaries with other keys are tables, null
-- is nil.
function cases.plain(value)
  if value == json.null or value == marker.none then
    return nil
  end
  if type(value) ~= "table" then
    return value
  end
  if value.__tuple__ then
    return cases.plain(value.__tuple__)
  end
  local out = {}
  if value.__dict__ then
    for _, pair in ipairs(value.__dict__) do
      out[pair[1]] = cases.plain(pair[2])
    end
    return out
  end
  for key, item in pairs(value) do
    out[key] = cases.plain(item)
  end
  return out
end

--- Equal data; 4 and 4.0 are one value.
function cases.same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then
    return a == b
  end
  for key, value in pairs(a) do
    if not cases.same(value, b[key]) then
      return false
    end
  end
  for key in pairs(b) do
    if a[key] == nil then
      return false
    end
  end
  return true
end

-- what a list holds: one kind, or any data
local function element_of(list)
  local kind
  for _, item in ipairs(list.__tuple__ or list) do
    local one = type(item) == "table" and "free" or math.type(item) or type(item)
    kind = (kind == nil or kind == one) and one or "free"
  end
  return ({ integer = "integer", float = "number", string = "text", boolean = "boolean",
    free = "free" })[kind or "integer"]
end

-- registry rows of a tree of values
local function rows_of(tree, prefix, rows)
  for key, value in pairs(tree) do
    local path = prefix .. key
    local row = { path, none = true, default = value, help = "of the reference file",
      reader = "golden" }
    if path == "bucket_config" then
      row[2], row.default = { map = { map = "bucket", key = "integer" } }, cases.plain(value)
    elseif value == json.null then
      row[2], row.default = "free", nil
    elseif type(value) == "table" and (json.is_array(value) or value.__tuple__) then
      row[2], row.default = { list = element_of(value) }, cases.plain(value)
    elseif type(value) == "table" then
      rows_of(value, path .. ".", rows)
      row = nil
    else
      row[2] = math.type(value) == "integer" and "integer" or math.type(value) == "float"
        and "number"
        or type(value) == "boolean" and "boolean" or "text"
    end
    rows[#rows + 1] = row
  end
  return rows
end

-- a value without tables in which nothing is set: an empty record is one of which nothing is said
local function pruned(value)
  if type(value) ~= "table" then
    return value
  end
  local out = {}
  for key, item in pairs(value) do
    out[key] = pruned(item)
  end
  return next(out) ~= nil and out or nil
end

-- One case. got, problem: what we did; want, refusal: what the rules say; reference: {ok, value};
-- why: the reason for which the rules may differ from the reference.
local function judge(result, name, got, problem, want, refusal, reference, why)
  local fault
  if refusal and not problem then
    fault = "no error, the rules say: " .. refusal
  elseif refusal and not problem:find(refusal, 1, true) then
    fault = ("another error: %s, the rules say: %s"):format(problem, refusal)
  elseif problem and not refusal then
    fault = problem
  elseif not refusal and not cases.same(pruned(got), pruned(want)) then
    fault = "not the value of the rules"
  elseif not why and not (reference.ok and not refusal
      and cases.same(pruned(want), pruned(reference.value))) then
    fault = "the rules differ from the reference and no reason is known"
  end
  result:exact(fault and name .. ": " .. fault or name, fault and 1 or 0)
end

local function attempt(f, ...)
  local ok, value = pcall(f, ...)
  if ok then
    return value
  end
  return nil, tostring(value)
end

-- judges each case by itself: what the rules cannot read is no verdict
local function each(list, result, name_of, f)
  for i, case in ipairs(list) do
    local name = name_of(case, i)
    local good, problem = pcall(f, case, name)
    if not good then
      result:leave(name, (tostring(problem):gsub("%s*\n.*", "")))
    end
  end
end

local function convert(list, result)
  local free = { tag = "free", none = true }
  each(list, result, function(case) return "convert " .. case.input end, function(case, name)
    local want, why = rules.text(case.input, case.value)
    judge(result, name, cases.plain(override.value(free, case.input)), nil, cases.plain(want), nil,
      { ok = case.ok, value = cases.plain(case.value) }, why)
  end)
end

-- words as pairs, the way a user means them
local function parse(words)
  return require("moonreel.settings.words").parse(words, { name = "train", overrides = true })
end

-- rows as the rules know them: path -> kind
local function fields_of(rows)
  local fields = {}
  for _, row in ipairs(rows) do
    local kind = row[2]
    fields[row[1]] = type(kind) ~= "table" and kind or kind.map and "map"
      or kind.list == "text" and "texts" or "list"
    local outer = row[1]:match("^(.*)%.")
    while outer do
      fields[outer] = "record"
      outer = outer:match("^(.*)%.")
    end
  end
  return fields
end

local function merge(list, tree, result)
  local file = { id = "case", shown = "case.lua", text = "return recipe {}", shipped = true }
  local rows = rows_of(tree, "", {})
  local fields = fields_of(rows)
  registry.with(rows, function()
    each(list, result, function(case)
      return "merge " .. table.concat(case.args, " ")
    end, function(case, name)
      local reference = cases.plain(tree)
      for key, value in pairs(case.changed_top_level or {}) do
        reference[key] = cases.plain(value)
      end
      local want = cases.plain(tree)
      local refusal, why = rules.merge(fields, want, case.args)
      local got, problem = attempt(function()
        local parsed = parse(case.args)
        if #parsed.positional > 0 then
          require("moonreel.recipe.fault").usage("'%s' is no option", parsed.positional[1])
        end
        return require("moonreel.settings.bake").bake(file, parsed.overrides):plain()
      end)
      judge(result, name, got, problem, want, refusal, { ok = case.ok, value = reference }, why)
    end)
  end)
end

local function argv(list, result)
  -- every option of the cases is a field
  local rows, seen = {}, {}
  for _, case in ipairs(list) do
    for _, word in ipairs(case.argv) do
      local name = word:match("^%-%-([%w_.-]+)")
      name = name and name:gsub("-", "_")
      if name and not seen[name] then
        seen[name] = true
        rows[#rows + 1] = { name, "free", none = true, help = "of the reference file",
          reader = "golden" }
      end
    end
  end
  registry.with(rows, function()
    each(list, result, function(case)
      return "argv " .. table.concat(case.argv, " ")
    end, function(case, name)
      local want, refusal = rules.argv(case.argv)
      local why = refusal or want.why
      local got, problem = attempt(function()
        local parsed = parse(case.argv)
        if #parsed.positional ~= 1 then
          require("moonreel.recipe.fault").usage("expected one recipe, got %d", #parsed.positional)
        end
        local out = { config = parsed.positional[1], rest = {} }
        for _, one in ipairs(parsed.overrides) do
          table.insert(out.rest, "--" .. one.key)
          table.insert(out.rest, one.text)
        end
        return out
      end)
      judge(result, name, got, problem, want and { config = want.config, rest = want.rest },
        refusal,
        { ok = not case.error, value = { config = case.config, rest = cases.plain(case.rest) } },
        why ~= "" and why or nil)
    end)
  end)
end

-- each case as Lua recipes, in a folder of its own
local function inherit(list, result)
  each(list, result, function(_, i) return ("inheritance %d"):format(i) end, function(case, name)
    local files = twins.files(case)
    local folder <close> = folders.new()
    for file, text in pairs(files) do
      folder:write(file, text)
    end
    local want, refusal, why = twins.expected(case)
    local _, reason = next(why)
    registry.with(twins.rows(case), function()
      local got, problem = attempt(function()
        local entry = case.entry:gsub("%.%w+$", "")
        return settings.bake(folder.path .. "/" .. entry, nil, { child = false }):plain()
      end)
      judge(result, name, got, problem, cases.plain(want), refusal,
        { ok = case.ok, value = cases.plain(case.result) }, reason)
    end)
  end)
end

--- Check the text of config_cases.json.
function cases.run(text, result)
  -- Python's integers have no end; beyond ours they are read as floats
  local decoded = json.decode((text:gsub("([%s%[:,])(%-?" .. ("%d"):rep(19) .. "%d*)%f[%s%],}]",
    function(before, digits)
      return math.type(tonumber(digits)) == "float" and before .. digits .. ".0" or nil
    end)), "config_cases")
  convert(decoded.auto_convert or {}, result)
  if decoded.merge then
    merge(decoded.merge, decoded.merge_base, result)
  end
  argv(decoded.argv or {}, result)
  inherit(decoded.inheritance or {}, result)
end

return cases
