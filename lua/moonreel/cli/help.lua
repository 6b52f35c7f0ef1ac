--- `moonreel help`: commands, fields, the recipe language.
-- @module moonreel.cli.help
local help = {}

help.name = "help"
help.summary = "show commands, fields and the recipe language"
help.usage = "help [COMMAND | fields | recipe | recipes | names | api | stubs DIR | FIELD [TYPE]] "
  .. "[--json]"
help.options = {
  { "COMMAND", "one command's page; the same as moonreel COMMAND --help" },
  { "fields", "all fields of recipes" },
  { "FIELD", "one field: kind, default, range, help, spellings; of a record, as optim, all its "
    .. "fields" },
  { "FIELD TYPE", "of a record with types, as model flux: the fields of one, with its defaults" },
  { "recipe", "the language, and what a recipe can reach" },
  { "recipes", "the recipes that ship with moonreel, and what each is" },
  { "names", "the names that the prompt, -e and scripts have: T, ops, open, ..." },
  { "api", "modules and types of the core, for scripts and the prompt" },
  { "stubs DIR", "write what the Lua language server of an editor reads" },
  { "--json", "tables as JSON" },
  { "--markdown", "with fields and api: a page of all of them" },
}

--- Print one command's page.
---@param command table
---@return integer exit code
function help.show_command(command)
  local lines = { "usage: moonreel " .. command.usage, "", command.summary }
  -- `options` are the command's own; `fields` are the fields of a recipe that its users need most
  for _, rows in ipairs { command.options or {}, command.fields or {} } do
    if #rows > 0 then
      lines[#lines + 1] = ""
    end
    for _, row in ipairs(rows) do
      lines[#lines + 1] = ("  %-28s %s"):format(row[1], row[2])
    end
  end
  if command.parts then
    lines[#lines + 1] = ""
    for _, part in ipairs(command.parts()) do
      local words = part.usage:sub(#command.name + 2):gsub("%[?%-.*", "")
      lines[#lines + 1] = ("  %-28s %s"):format(words, part.summary)
    end
  end
  if command.overrides then
    lines[#lines + 1] = "\nFields of the recipe: key=value, --key value or --key=value; moonreel "
      .. "help fields lists them."
    lines[#lines + 1] = "key=none is the value none; key=recipe.remove restores the default, or "
      .. "removes an entry of a map;\n'key=recipe.replace{...}' replaces a record or a map instead "
      .. "of merging."
  end
  if command.details then
    lines[#lines + 1] = ""
    lines[#lines + 1] = command.details
  end
  print(table.concat(lines, "\n"))
  return 0
end

-- rows of fields as a table
local function print_fields(rows, options)
  local columns = { { key = "field" }, { key = "kind" }, { key = "default" }, { key = "help" } }
  if options.json then
    for _, key in ipairs { "spellings", "affects", "resume", "reader", "unit" } do
      columns[#columns + 1] = { key = key }
    end
  end
  require("moonreel.text.table").print(columns, rows, options)
  return 0
end

-- all fields
local function show_fields(options)
  local describe = require "moonreel.recipe.describe"
  if options.markdown then
    io.write(describe.markdown())
    return 0
  end
  return print_fields(describe.fields(), options)
end

-- the fields of a record, or of one of its types
local function show_record(options, record, of_type)
  local rows, types = require("moonreel.recipe.describe").record(record, of_type)
  local names = {}
  for i, one in ipairs(types) do
    names[i] = one.type
  end
  if of_type and not (" " .. table.concat(names, " ") .. " "):find(" " .. of_type .. " ", 1, true)
  then
    require("moonreel.recipe.fault").usage("help %s: there is no %s.type '%s'; %s", record, record,
      of_type, #names > 0 and "there are " .. table.concat(names, ", ") or "it has no types")
  end
  print_fields(rows, options)
  if #types > 0 and not of_type and not options.json then
    print(("\nmoonreel help %s TYPE: the fields of one type, with the defaults that it gives\n")
      :format(record))
    require("moonreel.text.table").print({ { key = "type" }, { key = "help" } }, types)
  end
  return 0
end

-- the names that a map takes, with their help
local function entries_of(row) return type(row[2]) == "table" and row[2].keys or {} end

local function show_field(keys)
  local kinds = require "moonreel.recipe.kinds"
  local path, shown = table.concat(keys, "."), nil
  for _, one in ipairs(require("moonreel.recipe.describe").fields(true)) do
    local entry = path:sub(1, #one.field + 1) == one.field .. "."
      and entries_of(one.row)[keys[#keys]]
    if entry then
      if type(entry) == "string" then
        print(path .. ": " .. entry)
      end
      path = one.field
    end
    if one.field == path then
      local row = one.row
      print(("%s: %s"):format(path, row.help))
      if row.types then
        print("  of         " .. table.concat(row.types, ", "))
      end
      print("  expects    " .. kinds.expected(kinds.schema(row[2], row))
        .. (row.unit and " (" .. row.unit .. ")" or ""))
      print("  default    " .. one.default)
      if one.spellings then
        print("  also       " .. one.spellings)
      end
      print("  read by    " .. one.reader)
      print("  affects    " .. one.affects .. "; a resume with another value: " .. one.resume
        .. (row.position and ", but with --start-from-scratch free" or ""))
      if row.when then
        print("  only when  " .. require("moonreel.recipe.when").text(row, path))
      end
      if row.no_meaning then
        print("  note       " .. row.no_meaning)
      end
      local names, rows = require("moonreel.recipe.environment").sorted_keys(entries_of(row)), {}
      for i, name in ipairs(names) do
        rows[i] = { name = name, help = entries_of(row)[name] }
      end
      if #rows > 0 and not entry then
        require("moonreel.text.table").print({ { key = "name" }, { key = "help" } }, rows)
      end
      shown = 0
    end
  end
  return shown
end

local function show_recipe()
  print [[
A recipe is a Lua file that returns data and inherits:

  return recipe { lr = 1e-4, model = { type = "STDiT3-XL/2" } }           -- a root
  return recipe.extend("./base", "mixins/bump") { lr = 2e-4 }             -- a child; later parents win

  recipe.none       the value none            recipe.remove      back to the default
  recipe.replace{}  instead of merging        recipe.previous    the last checkpoint of the stage before

The same markers work on the command line: lr=recipe.remove, 'mask_ratios=recipe.replace{random=1}'.

A function is a late-bound value f(r, inherited): it is called once on the final recipe, after all overrides.
./x and ../x are relative to the file; other names are looked up in MOONREEL_RECIPES, then among the shipped recipes.

A recipe can use only:]]
  local names, line = require("moonreel.recipe.environment").names(), "  "
  for i, name in ipairs(names) do
    local piece = name .. (i < #names and ", " or "")
    if #line + #piece > 110 then
      print((line:gsub("%s+$", "")))
      line = "  "
    end
    line = line .. piece
  end
  print(line)
  return 0
end

local function show_recipes(options)
  local files, rows = require "moonreel.recipe.files", {}
  for _, name in ipairs(files.shipped_names()) do
    local about, helper = files.about(name)
    rows[#rows + 1] = not helper and { name = name, about = about } or nil
  end
  require("moonreel.text.table").print({ { key = "name" }, { key = "about" } }, rows, options)
  return 0
end

local function show_commands()
  print("usage: moonreel COMMAND [...]      moonreel FILE.lua [...]      moonreel -e CODE\n")
  for _, command in ipairs(require("moonreel.cli.commands").all()) do
    print(("  %-8s %s"):format(command.name, command.summary))
  end
  print("\n  moonreel COMMAND --help  shows a command's options; moonreel --version the version")
  return 0
end

local function show_api(options)
  if options.markdown then
    io.write(require("moonreel.api.page").markdown())
    return 0
  end
  local api, rows = require "moonreel.api", {}
  for _, kind in ipairs { "module", "type" } do
    for _, name in ipairs(api.names(kind)) do
      local face, functions = api.faces()[name], {}
      for _, row in ipairs(face.rows) do
        if not row.name:match("^__") then
          functions[#functions + 1] = row.name
        end
      end
      rows[#rows + 1] = { name = name, doc = face.doc, functions = table.concat(functions, " ") }
    end
  end
  local columns = { { key = "name" }, { key = "doc" } }
  if options.json then
    columns[3] = { key = "functions" }
  end
  require("moonreel.text.table").print(columns, rows, options)
  return 0
end

local function write_stubs(_, words)
  if not words[2] then
    require("moonreel.recipe.fault").usage("help stubs: expected a folder; try: moonreel help "
      .. "stubs docs/stubs")
  end
  for _, path in ipairs(require("moonreel.api.stubs").write(words[2])) do
    print(path)
  end
  return 0
end

local function show_names()
  print(require("moonreel.repl.help").general())
  return 0
end

local topics = { names = show_names, recipe = show_recipe, recipes = show_recipes, api = show_api,
  stubs = write_stubs, fields = show_fields }

-- refuses words that no page reads
local function refuse_more(words, most)
  if words[most + 1] then
    require("moonreel.recipe.fault").usage("help: expected nothing after '%s', got '%s'; try: "
      .. "moonreel help %s", words[most], words[most + 1], table.concat(words, " ", 1, most))
  end
end

function help.run(args)
  local parsed = require("moonreel.settings.words").parse(args, help)
  local words = parsed.positional
  local word = words[1]
  if not word then
    return show_commands()
  end
  local command = require("moonreel.cli.commands").find(word)
  if command then
    local part = command.part and command.part(words[2])
    refuse_more(words, part and 2 or 1)
    return help.show_command(part or command)
  end
  if topics[word] then
    refuse_more(words, word == "stubs" and 2 or 1)
    return topics[word](parsed.options, words)
  end
  local target, problem = require("moonreel.recipe.override").target(word)
  local is_record = target and target.schema.tag == "record"
  if target then
    refuse_more(words, is_record and 2 or 1)
  end
  local shown = target and show_field(target.keys)
  if shown then
    return shown
  elseif is_record then
    return show_record(parsed.options, table.concat(target.keys, "."), words[2])
  end
  require("moonreel.recipe.fault").usage("help: '%s' is no command, topic or field%s; try: "
    .. "moonreel help", word,
    problem and problem:match(", did you mean.*") or "")
end

return help
