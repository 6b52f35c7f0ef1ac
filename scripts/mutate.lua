--- Breaks the sources on purpose and sees whether a spec notices: scripts/README.md tells how to
-- use it.
local base = require "moonreel.core.base"
local breakages = dofile "spec/support/breakages.lua"
local covers = require "spec.support.covers"
local mutants = dofile "spec/support/mutants.lua"
local process = require "moonreel.core.process"
local tokens = dofile "spec/support/tokens.lua"

local COPY, BUILD = "build/mutate", "build/mutate/build/cpu"
local DEADLINE_S, OUTPUT_BYTES = 900, 64 << 20
-- a spec hangs that takes this long, and this many times what it took without any breakage
local HANGS_S, HANGS = 20, 10

local function shell(command, deadline_s)
  return process.run({ "/bin/sh", "-c", command .. " 2>&1" }, "",
    { deadline_s = deadline_s or DEADLINE_S, output_bytes = OUTPUT_BYTES })
end

local function need(command)
  local done = shell(command)
  if done.exit ~= 0 then
    error(("mutate: %s failed:\n%s"):format(command, done.output), 0)
  end
  return done.output
end

local function lines(text)
  local list = {}
  for line in text:gmatch("[^\n]+") do
    list[#list + 1] = line
  end
  return list
end

-- files below a folder that git does not ignore
local function sources(folder)
  return lines(need(("git ls-files --cached --others --exclude-standard '%s'"):format(folder)))
end

-- ---- the copy ----

-- Make the copy equal to the tree. Only what differs is written, and it gets a fresh time: a file
-- that an interrupted call left broken is mended and built again, all others keep what was built
-- from them.
local function synchronise()
  local wanted = {}
  for _, path in ipairs(sources ".") do
    wanted[path] = base.exists(path) or nil
  end
  need("mkdir -p " .. COPY)
  local known = need(("cd %s && find . -path ./build -prune -o -type f -print"):format(COPY))
  for _, path in ipairs(lines(known)) do
    if not wanted[path:sub(3)] then
      os.remove(COPY .. "/" .. path)
    end
  end
  local changed = {}
  for path in pairs(wanted) do
    local there = COPY .. "/" .. path
    if not base.exists(there) or base.read_file(there) ~= base.read_file(path) then
      changed[#changed + 1] = ("'%s'"):format(path)
    end
  end
  for first = 1, #changed, 200 do
    local part = table.concat(changed, " ", first, math.min(first + 199, #changed))
    need(("cp --parents %s %s"):format(part, COPY))
  end
end

-- the program of a C or CUDA spec
local function program_of(name)
  return "spec_" .. name:gsub("^core/", ""):gsub("/", "_")
end

-- what that spec needs: those of cuda/ hold all of it, others may open a plug-in
local function targets_of(name)
  return (name:find "^cuda/" and "" or "program ") .. program_of(name)
end

-- the same of all that a pattern of ctest means
local function all_targets_of(pattern)
  local names = {}
  for name in need(("ctest --test-dir %s -N -R '%s'"):format(BUILD, pattern))
      :gmatch("Test +#%d+: (%S+)") do
    if name:find("^core/") or name:find("^cuda/") then
      names[#names + 1] = targets_of(name)
    end
  end
  return table.concat(names, " ")
end

-- kinds of specs: `build`, the targets that words of one need; `run`, the command
local KINDS = {
  lua = {
    build = function() return "program" end,
    run = function(words)
      return "MOONREEL_LUA=$PWD timeout 300 build/cpu/moonreel "
        .. "spec/support/busted.lua --no-keep-going " .. words
    end,
  },
  ctest = {
    build = all_targets_of,
    run = function(words)
      return "ctest --test-dir build/cpu --output-on-failure --stop-on-failure --timeout 300 -R '"
        .. words .. "'"
    end,
  },
  program = {
    build = function(words) return targets_of(words:match "^%S+") end,
    run = function(words)
      local name, rest = words:match "^(%S+)(.*)$"
      return "timeout 300 build/cpu/" .. program_of(name) .. rest
    end,
  },
}

-- build what a spec needs; false and the output when that fails
local function build(spec)
  local done = shell(("cmake --build %s --target %s"):format(BUILD,
    KINDS[spec.kind].build(spec.words)))
  return done.exit == 0, done.output
end

-- ---- specs ----

local sound_s = {}

local function key_of(spec)
  return spec.kind .. " " .. spec.words
end

-- true and the output when a spec is green; it is red too when it hangs
local function green(spec)
  local took_s = sound_s[key_of(spec)]
  local done = shell(("cd %s && { %s; }"):format(COPY, KINDS[spec.kind].run(spec.words)),
    took_s and HANGS_S + HANGS * took_s)
  return done.exit == 0, done.output
end

-- whether the program in the copy is built from broken sources; targets that are not
local stale, built = false, {}

-- what is red already notices nothing
local function require_green(spec)
  local key = key_of(spec)
  if sound_s[key] and not stale then
    return
  end
  if stale then
    stale, built = false, {}
  end
  local targets, output = KINDS[spec.kind].build(spec.words), nil
  local passed = built[targets]
  if not passed then
    passed, output = build(spec)
    built[targets] = passed
  end
  if passed and not sound_s[key] then
    local started = os.time()
    passed, output = green(spec)
    sound_s[key] = os.time() - started
  end
  if not passed then
    error(("mutate: %s is red without any breakage:\n%s"):format(key, output), 0)
  end
end

-- ---- breakages ----

-- build and test what is in the copy; the verdict, and the output behind it
local function try(breakage, broken, spec)
  local is_program, output
  if breakage.file:find("%.lua$") then
    -- Lua is read from the copy
    is_program, output = load(broken, "@" .. breakage.file)
  else
    stale = true
    is_program, output = build(spec)
  end
  if not is_program then
    return "does not build", output
  end
  local passed, story = green(spec)
  return passed and "SURVIVED" or "killed", story
end

-- the verdict about one breakage, the output behind it, and the spec that killed it
local function judge(breakage)
  local path = COPY .. "/" .. breakage.file
  if not base.exists(path) then
    return "does not apply", breakage.file .. ": no such file"
  end
  local text = base.read_file(path)
  local broken, count = breakages.apply(text, breakage)
  if not broken then
    return "does not apply", ("%s: the text stands %d times"):format(breakage.file, count)
  end
  local output = {}
  for i, spec in ipairs(breakage.specs) do
    require_green(spec)
    base.replace_file(path, broken)
    local ok, verdict, story = pcall(try, breakage, broken, spec)
    base.replace_file(path, text)
    if not ok then
      error(verdict, 0)
    end
    output[i] = story
    if verdict ~= "SURVIVED" then
      return verdict, table.concat(output), spec
    end
  end
  return "SURVIVED", table.concat(output)
end

-- ---- random breakages ----

local said = covers.read()

-- specs of a source: its own, those that cover it, those of its room
local function specs_of(file)
  local specs = {}
  local function add(kind, words)
    specs[#specs + 1] = { kind = kind, words = words }
  end
  for _, path in ipairs(covers.specs(file, said)) do
    local name = path:match "^spec/(.*)%.cp*$"
    add(name and "ctest" or "lua", name and "^" .. name .. "$" or path)
  end
  local room = covers.mirrored(file):match "^(.*)/"
  if base.exists(room) then
    local is_lua = room:find "^spec/lua"
    add(is_lua and "lua" or "ctest", is_lua and room or "^" .. room:match "^spec/(.*)" .. "/")
  end
  return specs
end

-- mutants of the sources of a folder in the order of a seed, in the form of breakages.read; those
-- that this machine does not build are left out, as what nvcc compiles
local function random_breakages(folder, seed)
  local all, built_here = {}, base.read_file(BUILD .. "/build.ninja")
  for _, file in ipairs(sources(folder)) do
    local language = tokens.language(file)
    local specs = language and specs_of(file) or {}
    local is_unit = file:find "%.cp*$" or file:find "%.cu$"
    if #specs > 0 and (not is_unit or built_here:find(file, 1, true)) then
      local text = base.read_file(file)
      for _, mutant in ipairs(mutants.of(text, language)) do
        mutant.file, mutant.specs, mutant.text = file, specs, text
        all[#all + 1] = mutant
      end
    end
  end
  print(("%s: %d mutants (seed %d)"):format(folder, #all, seed))
  return mutants.draws(all, seed)
end

-- what a mutant changes, as lines of a comparison
local function change_of(mutant)
  local text = mutant.text
  local first = text:sub(1, mutant.first):match ".*\n()" or 1
  local last = (text:find("\n", mutant.last + 1, true) or #text + 1) - 1
  local was = text:sub(first, last)
  local now = text:sub(first, mutant.first - 1) .. mutant.new .. text:sub(mutant.last + 1, last)
  return ("%s:%d: %s\n%s\n%s"):format(mutant.file, mutant.line, mutant.kind,
    was:gsub("([^\n]+)", "    - %1"), (now:gsub("([^\n]+)", "    + %1")))
end

-- ---- the run ----

local function prepare()
  synchronise()
  local launcher = os.getenv "CMAKE_C_COMPILER_LAUNCHER"
    or shell("command -v ccache").exit == 0 and "ccache" or ""
  need(("cd %s && CMAKE_C_COMPILER_LAUNCHER=%s make"):format(COPY, launcher))
end

-- judge breakages of an iterator in turn until `count` are judged; those that are no valid
-- program count only where a list is at fault for them. Whether all were killed.
local function run(next_breakage, count, fixed, verbose)
  local total, killed, invalid = 0, 0, 0
  for breakage in next_breakage do
    local verdict, output, spec = judge(breakage)
    local is_valid = not verdict:find "^does"
    total, invalid = total + (is_valid and 1 or 0), invalid + (is_valid and 0 or 1)
    killed = killed + (verdict == "killed" and 1 or 0)
    if fixed or is_valid then
      print(("%-14s %s"):format(verdict, breakage.name or change_of(breakage)))
    end
    if verbose or fixed and not is_valid then
      print(output)
    elseif not fixed and spec then
      print("    by " .. key_of(spec))
    end
    io.stdout:flush()
    if total == count then
      break
    end
  end
  print(("%d of %d killed, %d were no program"):format(killed, total, invalid))
  return total > 0 and killed == total and (not fixed or invalid == 0)
end

local function listed(rooms, only)
  local list = {}
  for _, room in ipairs(rooms) do
    for i, breakage in ipairs(breakages.read(room)) do
      breakage.name = ("%s %d: %s"):format(room, i, breakage.title)
      if not only or i == only then
        list[#list + 1] = breakage
      end
    end
  end
  return list
end

-- entries of lists whose mutant `random` can make too: a list need not hold them
local function report_made(rooms)
  for _, room in ipairs(rooms) do
    local list, made = breakages.read(room), 0
    for i, breakage in ipairs(list) do
      local text, language = base.read_file(breakage.file), tokens.language(breakage.file)
      local mutant = language and mutants.same(text, breakages.apply(text, breakage), language)
      if mutant then
        made = made + 1
        print(("%-10s %s %d: %s"):format(mutant.kind, room, i, breakage.title))
      end
    end
    print(("%s: %d of %d are made by random too"):format(room, made, #list))
  end
end

-- scripts/mutate has looked at the words
if arg[1] == "made" then
  report_made(arg[2] and { arg[2] } or breakages.rooms())
  os.exit(0)
end
prepare()
if arg[1] == "random" then
  os.exit(run(random_breakages(arg[2], tonumber(arg[4] or 1)), tonumber(arg[3] or 20)) and 0 or 1)
end
local only = tonumber(arg[2])
local list = listed(arg[1] == "all" and breakages.rooms() or { arg[1] }, only)
local at = 0
os.exit(run(function()
  at = at + 1
  return list[at]
end, #list, true, only) and 0 or 1)
