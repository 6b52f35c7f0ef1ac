--- All fields of recipes: one tree of schemas, gathered from files.
-- recipe/fields/*.lua return {rows}; any module named *_fields.lua, and fields.lua of a family of
-- models, returns {record, types, fields}:
-- rows of one record that `type` selects (a model, dataset, objective, autoencoder, text encoder).
-- See README.md for a row.
-- @module moonreel.recipe.registry
local base = require "moonreel.core.base"
local families = require "moonreel.recipe.families"
local kinds = require "moonreel.recipe.kinds"
local nearest = require "moonreel.text.nearest"
local peers = require "moonreel.recipe.peers"
local words = require "moonreel.recipe.words"

local registry = {}

-- the note for records whose types families of models define: where more types can come from
local OUTSIDE = (" (or that of a family in %s=FOLDER)"):format(families.VARIABLE)
local FAMILIES = { model = OUTSIDE, vae = OUTSIDE, text_encoder = OUTSIDE, clip = OUTSIDE }

-- The keys of a path text: "optim.lr" gives {"optim", "lr"}.
local function split(path)
  local keys = {}
  for key in path:gmatch("[^.]+") do
    keys[#keys + 1] = key
  end
  return keys
end
registry.split = split

--- Keys as a path text: {"optim", "lr"} -> "optim.lr".
---@param keys table
---@param count integer|nil  number of keys to use; default: all
---@return string
function registry.path(keys, count)
  local shown = {}
  for i = 1, count or #keys do
    shown[i] = tostring(keys[i])
  end
  return table.concat(shown, ".")
end

-- The record at `keys`; it is made if it does not exist.
local function record_at(root, keys, count)
  local at = root
  for i = 1, count do
    local field = at.fields[keys[i]]
    if not field then
      field = { tag = "record", fields = {}, path = table.concat(keys, ".", 1, i) }
      at.fields[keys[i]] = field
    end
    assert(field.tag == "record", "no record at " .. table.concat(keys, ".", 1, i))
    at = field
  end
  return at
end

-- a default in the form that bakes use, without a further check; maps are written in normal form
local function normal(schema, value)
  if value == nil or type(value) == "function" or schema.tag == "map" then
    return value
  end
  local good = kinds.check(schema, value)
  assert(good ~= nil, "the default does not fit: " .. schema.path)
  return good
end

local function row_schema(row, path)
  row.path = path
  row.affects = row.affects or "run"
  row.resume = row.resume or (row.affects == "run" and "warn" or "free")
  local schema = kinds.schema(row[2], row)
  schema.path = path
  row.default = normal(schema, row.default)
  return schema
end

local function add_spellings(self, row)
  for _, spelling in ipairs(row.spellings or {}) do
    assert(not self.spellings[spelling], "two fields are spelled " .. spelling)
    self.spellings[spelling] = split(row.path)
  end
end

local function add_row(self, row)
  local keys = split(row[1])
  local record = record_at(self.root, keys, #keys - 1)
  assert(not record.fields[keys[#keys]], "field declared twice: " .. row[1])
  record.fields[keys[#keys]] = row_schema(row, row[1])
  self.rows[#self.rows + 1] = row
  add_spellings(self, row)
end

-- raises an error when files do not fit together
local function must(good, text, ...)
  if not good then
    error(text:format(...), 0)
  end
end

-- two types may give one name different kinds; which one applies is known only with the final
-- `type`
local function either(a, b)
  local function inner(schema) return schema.tag == "record" or schema.tag == "map" end
  must(inner(a) == inner(b) and (a.tag == b.tag or not inner(a)),
    "kinds of %s differ too much between types; the other is of %s", a.path, a.from)
  if a.tag == b.tag then
    return a
  end
  return { tag = "either", none = a.none or b.none, row = a.row, path = a.path, from = a.from }
end

-- Adds rows that exist only under some types of one record; `from` names the file or family of the
-- types.
local function add_types(self, module, record_path, from)
  local record = record_at(self.root, split(record_path), #split(record_path))
  record.types = record.types or {}
  record.all = record.all or {}
  local fields, types = {}, {}
  for name in pairs(module.types) do
    types[#types + 1] = name
  end
  table.sort(types)
  for _, template in ipairs(module.fields) do
    local row = { types = types }
    for key, value in pairs(template) do
      row[key] = value
    end
    local schema = row_schema(row, record_path .. "." .. row[1])
    local other = record.all[row[1]]
    schema.from = from
    must(not record.fields[row[1]], "a row of a type hides a common row: %s", row.path)
    fields[row[1]] = schema
    record.all[row[1]] = other and either(other, schema) or schema
    self.rows[#self.rows + 1] = row
    if not other then
      add_spellings(self, row)
    end
  end
  for name, type_row in pairs(module.types) do
    local twice = record.types[name]
    must(not twice, "type declared twice: %s.type = '%s', which is of %s", record_path, name,
      twice and twice.from)
    local preset = {}
    for field, value in pairs(type_row.preset or {}) do
      preset[field] = normal(fields[field], value)
    end
    record.types[name] = { fields = fields, preset = preset, help = type_row.help, from = from,
      reader = families.reader(type_row, record_path) }
  end
  -- `type` is one choice among all that files declare
  local choices = {}
  for name in pairs(record.types) do
    choices[#choices + 1] = name
  end
  table.sort(choices)
  local type_schema = assert(record.fields.type, "record without a row `type`: " .. record_path)
  type_schema.choices = choices
  type_schema.more = FAMILIES[record_path]
  type_schema.row.choices = choices
end

-- gathers the rows of all files: {rows, ...} and {{from, fields = {record, types, fields}}, ...}
local function gather()
  local plain, typed = {}, {}
  for _, path in ipairs(require("moonreel.app").embedded_list()) do
    local name = path:match("^lua/(.*)%.lua$")
    if name and name:match("^moonreel/recipe/fields/[^/]+$") then
      plain[#plain + 1] = require(name:gsub("/", "."))
    elseif name and name:match("^moonreel/.+[/_]fields$")
        and not name:match("^moonreel/models/") then
      typed[#typed + 1] = { from = path, fields = require(name:gsub("/", ".")) }
    end
  end
  for _, family in ipairs(families.all()) do
    typed[#typed + 1] = { from = "family " .. tostring(family), fields = family.fields }
  end
  return plain, typed
end

-- one kind of part may be used in several records: {"vae", "model"}
local function add_records(self, one)
  local records = one.fields.record
  for _, record in ipairs(type(records) == "table" and records or { records }) do
    add_types(self, one.fields, record, one.from)
  end
end

-- The field at keys, under any type; nil if there is no such field.
local function field_at(root, keys)
  local at = root
  for _, key in ipairs(keys) do
    at = at and at.tag == "record" and registry.field(at, key)
  end
  return at
end

-- adds names of other trainers as spellings of existing fields
local function add_peers(self)
  for path, names in pairs(peers.same) do
    local schema = field_at(self.root, split(path))
    for _, name in ipairs(schema and names or {}) do
      must(not self.spellings[name] and not self.root.fields[name], "two fields are spelled %s",
        name)
      self.spellings[name] = split(path)
    end
  end
  for name, record in pairs(peers.records) do
    if self.root.fields[record] then
      self.spellings[name] = { record }
    end
  end
end

local function build(plain, typed)
  local self = { root = { tag = "record", fields = {}, path = "" }, rows = {}, spellings = {} }
  for _, rows in ipairs(plain) do
    for _, row in ipairs(rows) do
      add_row(self, row)
    end
    -- whole records with another name: {ae = "vae"}
    for spelling, path in pairs(rows.records or {}) do
      self.spellings[spelling] = split(path)
    end
  end
  for _, one in ipairs(typed) do
    local good, problem = pcall(add_records, self, one)
    if not good then
      base.raise("MR_E_USAGE", ("%s: %s"):format(one.from, problem))
    end
  end
  add_peers(self)
  -- a spelling such as lr_scheduler.warmup_steps needs a record that has no fields of its own
  for spelling in pairs(self.spellings) do
    local keys = split(spelling)
    if #keys > 1 and not self.spellings[keys[1]] then
      record_at(self.root, keys, #keys - 1)
    end
  end
  return self
end

local built

--- The registry, built on first use.
---@return table {root, rows, spellings}
function registry.get()
  built = built or build(gather())
  return built
end

--- Calls f with other rows in place of the registry (reference files bring their own fields).
---@param rows table[]
---@param f function
function registry.with(rows, f, ...)
  local before = built
  built = build({ rows }, {})
  local results = table.pack(pcall(f, ...))
  built = before
  if not results[1] then
    error(results[2], 0)
  end
  return table.unpack(results, 2, results.n)
end

--- A field of a record, common or of its type. Without `type_name` it may be of any type.
---@param record table  schema
---@param name string
---@param type_name string|nil
---@return table|nil schema
function registry.field(record, name, type_name)
  local own = record.fields[name]
  if own or not record.types then
    return own
  end
  if type_name == nil then
    return record.all[name]
  end
  local of_type = record.types[type_name]
  return of_type and of_type.fields[name]
end

-- results of names_of are kept, because every bake needs all of them
local known_names = setmetatable({}, { __mode = "k" })

local function names_of(record, type_name)
  local seen, names = {}, {}
  local function add(fields)
    for name in pairs(fields) do
      if not seen[name] then
        seen[name] = true
        names[#names + 1] = name
      end
    end
  end
  add(record.fields)
  if record.types then
    if type_name then
      add((record.types[type_name] or { fields = {} }).fields)
    else
      add(record.all)
    end
  end
  table.sort(names)
  return names
end

--- Names of a record's fields, sorted: those under `type_name`, or under any type.
---@return string[]  must not be changed
function registry.names(record, type_name)
  local by_type, key = known_names[record] or {}, type_name or ""
  known_names[record] = by_type
  by_type[key] = by_type[key] or names_of(record, type_name)
  return by_type[key]
end

--- Resolves a written name into the keys of the canonical path, or nil. `-` equals `_`. A name that
-- the record lacks may be another spelling, at the root or inside records.
---@param record table   schema of the record in which the name is written
---@param name string
---@return string[]|nil keys  from the root
function registry.resolve(record, name)
  name = name:gsub("-", "_")
  local prefix = record.path == "" and "" or record.path .. "."
  if registry.field(record, name) then
    return split(prefix .. name)
  end
  return registry.get().spellings[prefix .. name]
end

-- The canonical path of a written path, whose parts may be spellings; nil if there is none.
local function canonical(parts)
  local keys, at = {}, registry.get().root
  for _, part in ipairs(parts) do
    local found = at.tag == "record" and at.path and registry.resolve(at, part)
    if not found then
      return nil
    end
    keys, at = found, field_at(registry.get().root, found)
  end
  -- a field that nothing reads is not offered
  return at and at.tag ~= "record" and not (at.row and at.row.reader == false)
    and table.concat(keys, ".") or nil
end

-- the answer for a name whose words say what it is about
local function of_words(name)
  local alike = words.alike((name:gsub("(%l)(%u)", "%1_%2"):gsub("[-.]", "_"):lower()))
  local path = alike and canonical(split(alike))
  return path and (", did you mean '%s'?"):format(path)
    or alike and ": " .. peers.answer(alike) or nil
end

-- The answer for a name of another trainer: "trainer.max_epochs", "optim.beta1", "outputDir". The
-- end of a path says more than its beginning, which is a record of that trainer.
local function of_peers(written)
  local snake = written:gsub("(%l)(%u)", "%1_%2"):gsub("-", "_"):lower()
  snake = snake:gsub("^datasets%.", "dataset.")
  local parts = split(snake)
  for first = 1, #parts do
    local rest = table.move(parts, first, #parts, 1, {})
    local joined = table.concat(rest, "_")
    local path = canonical(rest) or canonical { joined }
    if path then
      return (", did you mean '%s'?"):format(path)
    end
    local answer = peers.answer(joined)
    if answer then
      return ": " .. answer
    end
  end
  local answer = parts[2] and not registry.resolve(registry.get().root, parts[1])
    and peers.answer(parts[1])
  return answer and (of_words(table.concat(parts, "_", 2)) or ": " .. answer) or nil
end

-- a typing error seldom changes the first letter: 'batch' does not mean 'watch'
local function may_mean(name, near)
  local a, b = name:lower(), near:lower()
  return a:sub(1, 1) == b:sub(1, 1) or a:sub(1, 1) == b:sub(2, 2) or a:sub(2, 2) == b:sub(1, 1)
end

-- records that people leave out in front of a field, in this order
local MAIN <const> = { "optim", "model", "dataset", "scheduler", "sampling", "vae", "text_encoder" }

-- the field for a name that joins record and field, as sampling_method; nil if there is none
local function of_joined(name)
  for at in name:gmatch("()_") do
    local path = canonical { name:sub(1, at - 1), name:sub(at + 1) }
    if path then
      return (", did you mean '%s'?"):format(path)
    end
  end
end

--- A hint about what an unknown name may mean.
---@param record table   the record in which it is written
---@param name string
---@param written string|nil  the whole path, if it continues after the name
---@return string hint    ", did you mean 'x'?", ": " and an answer, where fields are listed, or ""
---@return boolean whole  true if the hint is about the whole path, not about the name alone
function registry.hint(record, name, written)
  local prefix = record.path == "" and "" or record.path .. "."
  local known = of_peers(written or prefix .. name) or of_joined(written or prefix .. name)
  if known then
    return known, true
  end
  -- another record may have a field of this name
  for _, other in ipairs(MAIN) do
    local of = registry.get().root.fields[other]
    local found = of and registry.resolve(of, name)
    if found then
      return (", did you mean '%s'?"):format(table.concat(found, ".")), false
    end
  end
  -- a typing error seldom makes words that have a meaning of their own
  local about = of_words(written or prefix .. name)
  if about then
    return about, true
  end
  local names = table.move(registry.names(record), 1, #registry.names(record), 1, {})
  for spelling in pairs(registry.get().spellings) do
    if spelling:sub(1, #prefix) == prefix and not spelling:find(".", #prefix + 1, true) then
      names[#names + 1] = spelling:sub(#prefix + 1)
    end
  end
  local near = nearest(name, names)
  if near and may_mean(name, near) then
    local theirs = record == registry.get().root and peers.names[near]
    return (", did you mean '%s'?"):format(theirs and canonical { near } or prefix .. near),
      false
  end
  return record == registry.get().root and "; moonreel help fields lists them" or "", false
end

return registry
