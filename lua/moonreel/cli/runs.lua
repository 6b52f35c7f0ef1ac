--- moonreel runs: the runs of a folder: as a list, compared, or by lineage.
-- @module moonreel.cli.runs
local base = require "moonreel.core.base"
local filter = require "moonreel.runs.filter"
local find = require "moonreel.runs.find"
local glance = require "moonreel.runs.glance"
local printer = require "moonreel.text.table"

local command = {
  name = "runs",
  summary = "list runs, compare them, or show from which run each one started",
  usage = "runs [FOLDER] [FIELD=VALUE ...] [--compare RUN RUN ...] [--tree] [--json]",
  options = {
    { "FIELD=VALUE", "only runs whose recipe has this value; operators != < <= > >=, and ~ for a "
      .. "part of a text; columns of the list work too: state=running" },
    { "--compare RUN", "the settings in which these runs differ, and their losses as one chart",
      many = true, takes = function(word) return not word:match("^%-") end },
    { "--tree", "show from which checkpoint of which run each run started, with launches, stages "
      .. "and rollbacks" },
    { "--json", "print JSON" },
  },
  questions = { { "compare", "json" }, { "tree", "json" } },
  details = "FOLDER is outputs by default. Quote words with < and >, which a shell takes for "
    .. "files.\nStates: running (a process writes it, perhaps on another host), finished, stopped "
    .. "(on request, after a save),\nfailed (by an error), dead (killed, or its host restarted, "
    .. "before it could save).",
}

-- an age for people, in seconds to days
local function age(seconds)
  if seconds < 86400 then
    return require("moonreel.trainer.progress").duration(seconds)
  end
  return ("%dd%02dh"):format(seconds // 86400, seconds % 86400 // 3600)
end

local function loss(value) return ("%.4f"):format(value) end

local COLUMNS <const> = { { key = "name" }, { key = "state" },
  { key = "step", right = true, format = function(step, row)
    return row.total and ("%d of %d"):format(step, row.total) or ("%d"):format(step)
  end },
  { key = "loss", right = true, format = loss }, { key = "age_s", title = "age", right = true,
    format = age }, { key = "stage" }, { key = "recipe" },
  { key = "note", format = function(note, row)
    return printer.short(row.notes > 1 and ("%s (%d notes)"):format(note, row.notes) or note)
  end } }

-- columns that are printed as JSON only
local FOR_JSON <const> = { "total", "dir", "host", "launches", "notes", "wall" }

-- the columns; for people those that have a value in some run
local function columns_of(rows, json)
  local list = {}
  for _, column in ipairs(COLUMNS) do
    local used = json or column.key ~= "stage" and column.key ~= "note"
    for _, row in ipairs(rows) do
      used = used or row[column.key] ~= nil
    end
    list[#list + 1] = used and column or nil
  end
  for _, key in ipairs(json and FOR_JSON or {}) do
    list[#list + 1] = { key = key }
  end
  return list
end

-- the runs that match all conditions; a run that cannot be read is reported and left out
local function rows_of(runs, questions)
  local rows = {}
  for _, one in ipairs(runs) do
    local good, row = pcall(glance.of, one)
    if not good then
      io.stderr:write(("moonreel: %s: %s\n"):format(one.dir, tostring(row)))
    else
      local settings, chosen = nil, true
      for _, question in ipairs(questions) do
        settings = settings or question.keys and glance.settings(one.dir)
        chosen = chosen and filter.holds(question, row, settings)
      end
      rows[#rows + 1] = chosen and row or nil
    end
  end
  return rows
end

local function print_list(folder, runs, questions, opts)
  local rows = rows_of(runs, questions)
  if #rows == 0 and not opts.json then
    print(#runs == 0 and ("%s has no runs"):format(folder)
      or ("no run of the %d in %s has these values"):format(#runs, folder))
  else
    printer.print(columns_of(rows, opts.json), rows, opts)
  end
  return 0
end

-- ---- lineage ----

local function origin_text(how, source)
  if not source then
    return nil
  end
  return ("%s %s%s%s"):format(how, find.name(source.dir), source.stage and "/" .. source.stage
    or "", source.step and "@" .. source.step or "")
end

local function event_text(event)
  if event.kind == "rollback" then
    return ("rollback from step %s to %s: %s"):format(event.from or "-", event.step,
      tostring(event.why or "no reason"))
  end
  return ("launch %d continues at step %d%s"):format(event.number, event.step, event.back > 0
    and (", %d step%s taken back"):format(event.back, event.back == 1 and "" or "s") or "")
end

-- {text, children} of a run, with its events as children
local function branch_of(node)
  local row = glance.of(node.run)
  local parts = { ("%s  %s"):format(row.name, row.state) }
  if row.step then
    parts[#parts + 1] = ("step %d%s"):format(row.step, row.total and " of " .. row.total or "")
  end
  parts[#parts + 1] = row.loss and "loss " .. loss(row.loss) or nil
  parts[#parts + 1] = origin_text(node.how, node.source)
  local branch = { text = table.concat(parts, "  "), children = {} }
  for _, part in ipairs(node.parts) do
    local into = branch
    if part.stage then
      local from = origin_text(part.how, part.source)
      into = { text = ("stage %s%s"):format(part.stage, from and "  " .. from or ""),
        children = {} }
      table.insert(branch.children, into)
    end
    for _, event in ipairs(part.inner) do
      table.insert(into.children, { text = event_text(event), children = {} })
    end
  end
  for _, child in ipairs(node.children) do
    table.insert(branch.children, branch_of(child))
  end
  return branch
end

local function print_branch(branch, lead, next_lead)
  print(lead .. require "moonreel.text.clean"(branch.text))
  for i, child in ipairs(branch.children) do
    local last = i == #branch.children
    print_branch(child, next_lead .. (last and "└─ " or "├─ "),
      next_lead .. (last and "   " or "│  "))
  end
end

-- one row for each link between runs
local function edges_of(nodes, rows)
  for _, node in ipairs(nodes) do
    for _, part in ipairs(node.parts) do
      local source = part.source or {}
      rows[#rows + 1] = { run = node.run.name, stage = part.stage, how = part.how,
        from = source.dir, from_stage = source.stage, from_step = source.step }
      for _, event in ipairs(part.inner) do
        rows[#rows + 1] = { run = node.run.name, stage = part.stage,
          how = event.kind == "launch" and "launch " .. event.number or "rollback",
          from = node.run.dir, from_step = event.step, why = event.why }
      end
    end
    edges_of(node.children, rows)
  end
  return rows
end

local function print_tree(runs, opts)
  local roots = require("moonreel.runs.lineage").of(runs)
  if opts.json then
    local columns = {}
    for i, key in ipairs { "run", "stage", "how", "from", "from_stage", "from_step", "why" } do
      columns[i] = { key = key }
    end
    printer.print(columns, edges_of(roots, {}), opts)
  else
    for _, root in ipairs(roots) do
      print_branch(branch_of(root), "", "")
    end
  end
  return 0
end

-- ---- comparison ----

-- the names of runs; "a", "b", ... where two names are equal
local function names_of(dirs)
  local names, seen = {}, {}
  for i, dir in ipairs(dirs) do
    local name = find.name(dir)
    names[i] = seen[name] and dir or name
    seen[name] = true
  end
  return names
end

local function print_compare(words, opts)
  local compare = require "moonreel.runs.compare"
  local dirs = {}
  for i, word in ipairs(words) do
    dirs[i] = find.one(word, "runs")
  end
  local names = names_of(dirs)
  local rows, columns = compare.settings(dirs), { { key = "field" } }
  for i, name in ipairs(names) do
    columns[i + 1] = { key = tostring(i), title = name, format = not opts.json and printer.short
      or nil }
  end
  if opts.json then
    for i, name in ipairs(names) do
      columns[i + 1].key = name
      for _, row in ipairs(rows) do
        row[name], row[tostring(i)] = row[tostring(i)], nil
      end
    end
    printer.print(columns, rows, opts)
    return 0
  end
  if #rows == 0 then
    print("the settings of these runs do not differ")
  else
    printer.print(columns, rows)
  end
  local curves = {}
  for i, dir in ipairs(dirs) do
    require("moonreel.runs.damage").say(require("moonreel.runs.find").parts(dir))
    curves[i] = { name = names[i], points = compare.curve(dir) }
  end
  print()
  io.write(compare.chart(curves))
  return 0
end

---@param args string[]
---@return integer exit code
function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local opts, questions, folder = parsed.options, {}, nil
  if opts.compare then
    local words = table.move(parsed.positional, 1, #parsed.positional, #opts.compare + 1,
      opts.compare)
    if #words < 2 then
      base.raise("MR_E_USAGE", ("runs: --compare: expected two runs or more, got %d; try: moonreel "
        .. "runs --compare 001-a 002-b"):format(#words))
    end
    return print_compare(words, opts)
  end
  for _, word in ipairs(parsed.positional) do
    if filter.is(word) and not base.exists(word) then
      questions[#questions + 1] = filter.read(word)
    elseif folder then
      base.raise("MR_E_USAGE", ("runs: '%s': expected one folder, or FIELD=VALUE; usage: moonreel "
        .. "%s"):format(word, command.usage))
    else
      folder = word
    end
  end
  folder = folder or find.OUTPUTS
  local runs = find.all(folder)
  if opts.tree then
    return print_tree(runs, opts)
  end
  return print_list(folder, runs, questions, opts)
end

return command
