--- The reference's recipe language, case by case: value conversion, command line, arguments,
-- inheritance. Registries and recipes are made from the cases themselves. What we do is compared
-- with what our rules say (config_rules.lua, twins.lua); what the rules say is the reference's own
-- result, or there is a reason why it is not. A file may hold any part of the cases. Ref:
-- opensora-2.0.md 7.
-- @module spec.golden.runner.config_cases
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local marker = require "moonreel.recipe.marker"
local override = require "moonreel.recipe.override"
local registry = require "moonreel.recipe.registry"
local settings = require "moonreel.settings"
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
      row[2], row.default = { list = "integer" }, cases.plain(value)
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

-- what a settings object holds; records of which nothing is set are left out
local function contents(s)
  local function pruned(t)
    local out = {}
    for key, value in pairs(t) do
      if type(value) == "table" then
        value = pruned(value)
      end
      if type(value) ~= "table" or next(value) ~= nil then
        out[key] = value
      end
    end
    return out
  end
  return pruned(s:plain())
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
  elseif not refusal and not cases.same(got, want) then
    fault = "not the value of the rules"
  elseif not why and not (reference.ok and not refusal and cases.same(want, reference.value)) then
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

local function convert(list, result)
  local free = { tag = "free", none = true }
  for _, case in ipairs(list) do
    local want, why = rules.text(case.input, case.value)
    judge(result, "convert " .. case.input, cases.plain(override.value(free, case.input)), nil,
      cases.plain(want), nil, { ok = case.ok, value = cases.plain(case.value) }, why)
  end
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
    fields[row[1]] = type(kind) == "table" and (kind.map and "map" or "list") or kind
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
    for _, case in ipairs(list) do
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
        return contents(require("moonreel.settings.bake").bake(file, parsed.overrides))
      end)
      judge(result, "merge " .. table.concat(case.args, " "), got, problem, want, refusal,
        { ok = case.ok, value = reference }, why)
    end
  end)
end

local function argv(list, result)
  -- every option of the cases is a field
  local rows, seen = {}, {}
  for _, case in ipairs(list) do
    for _, word in ipairs(case.argv) do
      local name = word:match("^%-%-([%w_]+)")
      if name and not seen[name] then
        seen[name] = true
        rows[#rows + 1] = { name, "free", none = true, help = "of the reference file",
          reader = "golden" }
      end
    end
  end
  registry.with(rows, function()
    for _, case in ipairs(list) do
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
      judge(result, "argv " .. table.concat(case.argv, " "), got, problem,
        want and { config = want.config, rest = want.rest }, refusal,
        { ok = not case.error, value = { config = case.config, rest = cases.plain(case.rest) } },
        why ~= "" and why or nil)
    end
  end)
end

-- each case as Lua recipes, in a folder of its own
local function inherit(list, result)
  for i, case in ipairs(list) do
    local folder = os.tmpname()
    os.remove(folder)
    base.make_dir(folder)
    for name, text in pairs(twins.files(case)) do
      local inner = name:match("^(.*)/")
      if inner then
        base.make_dir(folder .. "/" .. inner)
      end
      base.replace_file(folder .. "/" .. name, text)
    end
    local want, refusal, why = twins.expected(case)
    local _, reason = next(why)
    registry.with(twins.rows(case), function()
      local got, problem = attempt(function()
        local entry = case.entry:gsub("%.%w+$", "")
        return contents(settings.bake(folder .. "/" .. entry, nil, { child = false }))
      end)
      judge(result, ("inheritance %d"):format(i), got, problem, cases.plain(want), refusal,
        { ok = case.ok, value = cases.plain(case.result) }, reason)
    end)
    base.remove_dir(folder)
  end
end

--- Check the text of config_cases.json.
function cases.run(text, result)
  -- Python's integers have no end; beyond ours they are read as floats
  local decoded = json.decode((text:gsub("([%s%[:,])(%-?" .. ("%d"):rep(19) .. "%d*)([%s%],}])",
    "%1%2.0%3")), "config_cases")
  convert(decoded.auto_convert or {}, result)
  if decoded.merge then
    merge(decoded.merge, decoded.merge_base, result)
  end
  argv(decoded.argv or {}, result)
  inherit(decoded.inheritance or {}, result)
end

return cases
