--- Overrides made from the registry, for each leaf of each shipped recipe. A valid value changes
-- its leaf and the values computed from it, and the hash when the run differs; an invalid value is
-- refused by name.
--
-- A leaf that comes from the same lines and has the same dependents in several recipes is tested
-- in one of them; MOONREEL_EVERY_LEAF=1 tests it in each.
local app = require "moonreel.app"
local bake = require "moonreel.settings.bake"
local files = require "moonreel.recipe.files"
local kinds = require "moonreel.recipe.kinds"
local loader = require "moonreel.recipe.loader"
local override = require "moonreel.recipe.override"
local marker = require "moonreel.recipe.marker"
local when = require "moonreel.recipe.when"

-- values that no field accepts: a list that does not end, invalid UTF-8
local OPEN_LIST, NO_TEXT = "[1", "\xff"

local function number_list(value, schema)
  local items = {}
  for i = 1, math.max(#value, schema.count or 1) do
    items[i] = kinds.number_text(value[i] or 1)
  end
  items[1] = schema.element.tag == "integer" and tostring(math.tointeger((value[1] or 1) + 1))
    or kinds.number_text(value[1] == 0 and 0.125 or (value[1] or 1) * 0.5)
  return "[" .. table.concat(items, ", ") .. "]"
end

-- a record with the first of its fields that is a number
local function record_of_number(schema)
  local names = {}
  for name, field in pairs(schema.fields) do
    names[#names + 1] = (field.tag == "integer" or field.tag == "number") and name or nil
  end
  table.sort(names)
  return ("{%q: %s}"):format(names[1], schema.fields[names[1]].tag == "integer" and "3" or "0.5")
end

local function entry_of_map(schema)
  local key = schema.keys and next(schema.keys) or schema.key == "integer" and "7" or "x"
  local inner = schema.value
  local value = inner.tag == "map" and entry_of_map(inner) or inner.tag == "bucket"
    and "(0.5, 2)" or inner.tag == "number" and "0.5"
    or inner.tag == "integer" and "3" or inner.tag == "record" and record_of_number(inner) or '"y"'
  return ("{%q: %s}"):format(key, value)
end

-- another value that fits a leaf, and one that does not, as text
local function others(leaf)
  local schema, value = leaf.schema, leaf.value
  local tag = schema.tag
  if schema.choices then
    for _, choice in ipairs(schema.choices) do
      if choice ~= value then
        return choice, "no-such-choice"
      end
    end
    return nil, "no-such-choice"
  elseif tag == "integer" then
    local other = (value or schema.min or 0) + 1
    if schema.max and other > schema.max then
      other = other - 2
    end
    return tostring(other), "1.5"
  elseif tag == "number" then
    local other = (value or 0) == 0 and 0.125 or value * 0.5
    if other < (schema.min or other) then
      other = value + 1
    end
    return kinds.number_text(other), "often"
  elseif tag == "boolean" then
    return tostring(not value), "maybe"
  elseif tag == "free" then
    return "7", OPEN_LIST
  elseif tag == "text" or tag == "checkpoint" then
    return (value or "") .. "x", NO_TEXT
  elseif tag == "bucket" then
    return "(0.0625, 3)", "(2, 1)"
  elseif tag == "map" then
    return entry_of_map(schema), OPEN_LIST
  elseif tag == "list" and schema.element.tag == "aspect" then
    return "[[2.5, 80, 32]]", "[[1.0, 32]]"
  elseif tag == "list" and schema.element.tag == "text" then
    local items = {}
    for i = 1, schema.count or 1 do
      items[i] = ('"new %d"'):format(i)
    end
    return "[" .. table.concat(items, ", ") .. "]", OPEN_LIST
  elseif tag == "list" then
    return number_list(value or {}, schema), OPEN_LIST
  end
end

-- is a path equal to another one or below it?
local function within(path, outer)
  return path == outer or path:sub(1, #outer + 1) == outer .. "."
end

-- leaves that were computed: {{path, reads}, ...}
local function computed(leaves)
  local out = {}
  for _, leaf in ipairs(leaves) do
    for _, link in ipairs(leaf.chain) do
      for _, read in ipairs(link.reads or {}) do
        out[#out + 1] = { path = leaf.path, read = read }
      end
    end
  end
  return out
end

-- leaves that depend on `path`, directly or not: path -> true
local function dependants(reads, path)
  local out, grown = { [path] = true }, true
  while grown do
    grown = false
    for _, one in ipairs(reads) do
      for of in pairs(out) do
        if not out[one.path] and (within(of, one.read) or within(one.read, of)) then
          out[one.path], grown = true, true
          break
        end
      end
    end
  end
  return out
end

local function same(a, b)
  return a == b or type(a) == "table" and type(b) == "table" and kinds.show(a) == kinds.show(b)
end

local function chain_text(leaf)
  local parts = { leaf.path }
  for _, link in ipairs(leaf.chain) do
    parts[#parts + 1] = link.at .. "=" .. link.value
  end
  return table.concat(parts, "|")
end

-- is it read only under other values? One of several stages may have them
local function unread(leaf, values)
  return values.stages == marker.none and when.unread(leaf.row, leaf.path, function(path)
    for other in pairs(values[path] == nil and values or {}) do
      if within(other, path) then
        return true
      end
    end
    return values[path]
  end) ~= nil
end

describe("overrides of shipped recipes", function()
  local cases, seen = {}, {}
  for _, name in ipairs(files.shipped_names()) do
    if app.embedded("recipes/" .. name .. ".lua"):find("return recipe", 1, true) then
      -- all bakes of a recipe read its files once
      local recipe = { file = files.root(name), loader = loader.new() }
      function recipe.bake(text)
        return bake.bake(recipe.file, { text and override.parse(text) }, nil, recipe.loader)
      end
      local settings = recipe.bake()
      recipe.hash, recipe.leaves, recipe.values = settings.hash, settings:leaves(), {}
      local chains, reads = {}, computed(recipe.leaves)
      for _, leaf in ipairs(recipe.leaves) do
        recipe.values[leaf.path] = leaf.raw
        chains[leaf.path] = chain_text(leaf)
      end
      for _, leaf in ipairs(recipe.leaves) do
        local key = { chains[leaf.path], tostring(unread(leaf, recipe.values)) }
        for follower in pairs(dependants(reads, leaf.path)) do
          key[#key + 1] = chains[follower]
        end
        table.sort(key)
        key = table.concat(key, "\n")
        if not seen[key] or os.getenv "MOONREEL_EVERY_LEAF" then
          seen[key] = true
          cases[#cases + 1] = { recipe = recipe, leaf = leaf, name = name }
        end
      end
    end
  end

  it("cover each leaf", function()
    assert.is_true(#cases > 1200, #cases)
    for _, case in ipairs(cases) do
      local valid, invalid = others(case.leaf)
      assert.is_true(valid ~= nil or case.leaf.path == "stages" or case.leaf.schema.choices ~= nil,
        case.leaf.path .. " has no other value")
      assert.is_true(invalid ~= nil or case.leaf.path == "stages",
        case.leaf.path .. " has no wrong value")
    end
  end)

  it(
    "with a valid value change the leaf, its dependents, and the hash if the run differs",
    function()
    local count = 0
    for _, case in ipairs(cases) do
      local recipe, leaf = case.recipe, case.leaf
      local valid = others(leaf)
      local argument = leaf.path .. "=" .. tostring(valid)
      local where = case.name .. " " .. argument
      local ok, now
      if valid then
        ok, now = pcall(recipe.bake, argument)
      end
      if valid and unread(leaf, recipe.values) then
        -- nothing would read it, which is an error on the command line
        assert.is_false(ok, where)
        assert.equal(2, now.exit)
        -- in a map it names the entry
        local text = now.message:gsub("(: " .. leaf.path:gsub("%p", "%%%0") .. ")[%w_.]* is read",
          "%1 is read")
        assert.equal(1, (text:find(argument .. ": " .. leaf.path .. " is read only when ", 1,
          true)), now.message)
      elseif valid and not ok then
        -- another type lacks inherited fields, or has another kind of them
        local record = leaf.path:match("^(.*)%.type$")
        assert.is_truthy(record, where .. ": " .. tostring(now.message))
        local lacks = ("its type is .- by %s\n  try: .- = recipe.replace { type = "):format(
          (argument:gsub("%p", "%%%0")))
        assert.is_truthy(now.message:find(lacks)
          or now.message:find("^recipes/[^:]+:%d+: " .. record .. "%.[%w_]+: expected "),
          now.message)
      elseif valid then
        local leaves = now:leaves()
        -- most leaves have no dependents; stages contain their hashes
        local followers
        local function follows(path)
          followers = followers or dependants(computed(leaves), leaf.path)
          return path == "stages" or followers[path] or false
        end
        local record = leaf.path:match("^(.*)%.type$")
        local changed, another_run, found = false, false, {}
        for _, new in ipairs(leaves) do
          found[new.path] = true
          if not same(new.raw, recipe.values[new.path]) then
            local own = within(new.path, leaf.path) or record and within(new.path, record)
            assert.is_true(own or follows(new.path),
              where .. " changed " .. new.path .. " too")
            changed = changed or within(new.path, leaf.path)
            another_run = another_run or new.row.affects == "run"
          end
        end
        for _, old in ipairs(recipe.leaves) do
          if not found[old.path] then
            assert.is_true(within(old.path, leaf.path) or record ~= nil
              and within(old.path, record), where .. " took " .. old.path .. " away")
            another_run = another_run or old.row.affects == "run" and old.raw ~= marker.none
          end
        end
        assert.is_true(changed, where .. " changed nothing")
        assert.equal(another_run, now.hash ~= recipe.hash, where)
        count = count + 1
      end
    end
    assert.is_true(count > 1000, count)
  end)

  it("with an invalid value are refused by name with exit 2", function()
    local count = 0
    for _, case in ipairs(cases) do
      local _, invalid = others(case.leaf)
      if invalid then
        local argument = case.leaf.path .. "=" .. invalid
        local ok, problem = pcall(case.recipe.bake, argument)
        assert.is_false(ok, case.name .. " " .. argument)
        assert.equal(2, problem.exit, problem.message)
        assert.equal(1, (problem.message:find(argument .. ": " .. case.leaf.path .. ": expected ",
          1, true)), problem.message)
        count = count + 1
      end
    end
    assert.is_true(count > 1200, count)
  end)

  it("of stages are refused: they belong to the recipe", function()
    local recipe = require "moonreel.settings"
    for _, argument in ipairs { "stages=none", '--stages=[{"name": "x"}]' } do
      local ok, problem = pcall(recipe.bake, "opensora-1.2/lambda/tutorial", { argument })
      assert.is_false(ok)
      assert.equal(2, problem.exit)
      assert.matches("try: stages.NAME.key=value, or %-%-stage NAME$", problem.message)
    end
  end)
end)
