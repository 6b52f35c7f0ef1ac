--- moonreel data join: adds captions and columns of a table to the rows that it names.
-- @module moonreel.cli.data.join
local base = require "moonreel.core.base"
local core = require "moonreel.core.index"
local derived = require "moonreel.cli.derived"

local part = {
  words = "NAME.mrx FILE.csv|FILE.tsv|FILE.jsonl|FILE.json -o NEW.mrx",
  summary = "add captions and columns of a table to the rows that it names",
  output = true,
  options = { derived.output,
    { "--on path|key", "content of the table's column `path`: a path as in the index, a file name, "
      .. "or a key (default: path)" },
    { "--captions replace|append|keep", "what to do with captions if the table has one (default: "
      .. "replace)" },
    { "--inner", "leave out rows that the table does not name" }, derived.columns,
    derived.escape },
  details = "Columns of the table with numbers become columns of the index; a value of the "
    .. "table\nreplaces one of the index. Columns text, text_2, ... are captions, and may be "
    .. "missing. A file\nname matches if exactly one path of the table ends with it. The table is "
    .. "kept in memory.",
}

local function choice(opts, name, words)
  local word = opts[name] or words[1]
  for _, known in ipairs(words) do
    if word == known then
      return word
    end
  end
  base.raise("MR_E_USAGE", ("data join: --%s: expected %s, got '%s'"):format(name,
    table.concat(words, ", "), word))
end

local function last_name(path) return path:match("[^/]*$") end

-- Reads the rows of a table by what they are joined on. Of rows with the same name the first is
-- used; the later ones are counted.
local function read(file, on, opts, tick)
  local entries = { of = {}, names = {}, n = 0, repeated = 0 }
  local options = { columns = opts.columns, escape = opts.escape }
  entries.columns, entries.notes, entries.kinds = core.read_table(file, function(row)
    entries.n = entries.n + 1
    if on == "path" and (row.start_us ~= 0 or row.end_us ~= 0) then
      base.raise("MR_E_DATA", ("%s:%d: the sample is a part of '%s', and its path names the whole "
        .. "clip; expected rows of whole clips; try: --on key"):format(file, row.line, row.path))
    end
    if entries.of[row.path] then
      entries.repeated = entries.repeated + 1
    else
      entries.of[row.path] = row
      -- a file name at the end of two paths stands for neither of them
      local name = last_name(row.path)
      entries.names[name] = entries.names[name] == nil and row
    end
    if entries.n % 1000 == 0 then
      tick(0, 0, function() return ("reading the table: %d rows"):format(entries.n) end)
    end
  end, options)
  return entries
end

local function find(entries, row, on)
  if on == "key" then
    return entries.of[row.key]
  end
  return entries.of[row.path] or entries.of[row.file] or entries.names[last_name(row.path)]
end

-- A column of reals rounds large whole numbers; the notes of the table count these.
local function values_of(entry, entries)
  local values = {}
  for _, name in ipairs(entries.columns) do
    local value = entry.columns[name]
    values[name] = value and entries.kinds[name] == "real" and value + 0.0 or value
  end
  return values
end

local function captions_of(row, entry, way)
  local has = entry.captions[1] ~= ""
  if way == "keep" or not has then
    return nil
  end
  local captions = {}
  if way == "append" then
    for _, text in ipairs(row.captions) do
      captions[#captions + 1] = text ~= "" and text or nil
    end
  end
  return table.move(entry.captions, 1, #entry.captions, #captions + 1, captions)
end

function part.run(opts, _, path, file)
  local on = choice(opts, "on", { "path", "key" })
  local way = choice(opts, "captions", { "replace", "append", "keep" })
  local index = derived.open({ path })[1]
  local entries, joined = nil, 0
  local longwork = require "moonreel.cli.longwork"
  local report, code = longwork.run(function(tick)
    entries = read(file, on, opts, tick)
    return require("moonreel.data.derive").run { output = opts.output, from = { index },
      made = "join", by = file, columns = entries.columns, kinds = entries.kinds, tick = tick,
      choose = function(row)
        local entry = find(entries, row, on)
        if not entry then
          return not opts.inner, "not in the table"
        end
        joined = joined + 1
        return { captions = captions_of(row, entry, way),
          columns = values_of(entry, entries) }
      end }
  end, "rows", "nothing was written")
  if not report then
    return code
  end
  derived.tell(opts, { report }, { joined = joined, table_rows = entries.n,
    repeated = entries.repeated, columns = entries.columns })
  if not opts.json then
    local again = entries.repeated > 0 and (", %d of them repeat a name"):format(entries.repeated)
    print(("  %d rows got values from the table, which has %d rows%s"):format(joined, entries.n,
      again or ""))
    io.write((entries.notes:gsub("[^\n]+", "  %0")))
  end
  return 0
end

return part
