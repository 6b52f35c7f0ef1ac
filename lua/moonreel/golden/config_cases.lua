--- The reference's recipe language, case by case: value conversion, command line, arguments,
-- inheritance. Runs on a registry made from the file's own `merge_base`. Every case has a verdict:
-- the same value, the right value where the reference has a defect, or an error whose text is named
-- (config_verdicts.lua). Ref: opensora-2.0.md 7.
-- @module moonreel.golden.config_cases
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local marker = require "moonreel.recipe.marker"
local override = require "moonreel.recipe.override"
local registry = require "moonreel.recipe.registry"
local settings = require "moonreel.settings"
local verdicts = require "moonreel.golden.config_verdicts"

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

-- one verdict: `got` is a value, `problem` the error's text
local function judge(name, verdict, reference_ok, want, got, problem, result)
  local fault
  if type(verdict) == "string" then
    if not problem then
      fault = "no error"
    elseif not problem:find(verdict, 1, true) then
      fault = "another error: " .. problem
    end
  elseif problem then
    fault = problem
  elseif verdict ~= nil then
    if not cases.same(got, verdict.value) then
      fault = "not the value of its verdict"
    end
  elseif not reference_ok then
    fault = "the reference has an error here, and no verdict says what we do"
  elseif not cases.same(got, want) then
    fault = "another value, and no verdict says why"
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

local function convert(decoded, result)
  local free = { tag = "free", none = true }
  for _, case in ipairs(decoded.auto_convert) do
    local got = override.value(free, case.input)
    judge("convert " .. case.input, verdicts.convert[case.input], case.ok,
      cases.plain(case.value), cases.plain(got), nil, result)
  end
end

-- words as pairs, the way a user means them
local function parse(words)
  return require("moonreel.settings.words").parse(words, { name = "train", overrides = true })
end

local function merge(decoded, result)
  local file = { id = "case", shown = "case.lua", text = "return recipe {}", shipped = true }
  registry.with(rows_of(decoded.merge_base, "", {}), function()
    for _, case in ipairs(decoded.merge) do
      local want = cases.plain(decoded.merge_base)
      for key, value in pairs(case.changed_top_level or {}) do
        want[key] = cases.plain(value)
      end
      local got, problem = attempt(function()
        local parsed = parse(case.args)
        if #parsed.positional > 0 then
          require("moonreel.recipe.fault").usage("'%s' is no option", parsed.positional[1])
        end
        return contents(require("moonreel.settings.bake").bake(file, parsed.overrides))
      end)
      local name = table.concat(case.args, " ")
      local verdict = verdicts.merge[name]
      -- a verdict states what changes
      if type(verdict) == "table" then
        local whole = cases.plain(decoded.merge_base)
        for key, value in pairs(verdict.value) do
          whole[key] = value
        end
        verdict = { value = whole }
      end
      judge("merge " .. name, verdict, case.ok, want, got, problem, result)
    end
  end)
end

local function argv(decoded, result)
  local rows = {}
  for _, name in ipairs { "lr", "a", "b" } do
    rows[#rows + 1] = { name, "free", none = true, help = "of the reference file",
      reader = "golden" }
  end
  registry.with(rows, function()
    for _, case in ipairs(decoded.argv) do
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
      local name = table.concat(case.argv, " ")
      judge("argv " .. name, verdicts.argv[name], not case.error,
        { config = case.config, rest = case.rest and cases.plain(case.rest) }, got, problem, result)
    end
  end)
end

-- Lua twins of the reference's files, in a folder of their own
local function inherit(decoded, result)
  local folder = os.tmpname()
  os.remove(folder)
  base.make_dir(folder)
  for i, case in ipairs(decoded.inheritance) do
    local twin = verdicts.inheritance[i]
    if not twin then
      result:exact(("inheritance %d: no twin"):format(i), 1)
    else
      local written = {}
      for name, text in pairs(twin.files) do
        local path = folder .. "/" .. name
        if name:find("/") then
          base.make_dir(path:match("^(.*)/"))
        end
        base.replace_file(path, text == "base" and verdicts.base or text)
        written[#written + 1] = path
      end
      registry.with(twin.rows or verdicts.rows, function()
        local got, problem = attempt(function()
          return contents(settings.bake(folder .. "/" .. twin.entry, nil, { child = false }))
        end)
        local verdict = twin.error or twin.value and { value = twin.value } or nil
        judge(("inheritance %d"):format(i), verdict, case.ok, cases.plain(case.result),
          got, problem, result)
      end)
      for _, path in ipairs(written) do
        os.remove(path)
      end
    end
  end
  for _, name in ipairs { "/s", "/p", "" } do
    os.remove(folder .. name)
  end
end

--- Check the text of config_cases.json.
function cases.run(text, result)
  -- Python's integers have no end; beyond ours they are read as floats
  local decoded = json.decode((text:gsub("([%s%[:,])(%-?" .. ("%d"):rep(19) .. "%d*)([%s%],}])",
    "%1%2.0%3")), "config_cases")
  convert(decoded, result)
  merge(decoded, result)
  argv(decoded, result)
  inherit(decoded, result)
end

return cases
