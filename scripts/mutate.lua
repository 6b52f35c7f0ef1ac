--- Breaks the sources on purpose and sees whether a spec notices: scripts/README.md tells how to
-- use it.
local base = require "moonreel.core.base"
local breakages = dofile "spec/support/breakages.lua"
local mutants = dofile "spec/support/mutants.lua"
local process = require "moonreel.core.process"

local COPY, BUILD = "build/mutate", "build/mutate/build/cpu"
local DEADLINE_S, OUTPUT_BYTES = 900, 64 << 20

local function shell(command)
  return process.run({ "/bin/sh", "-c", command .. " 2>&1" }, "",
    { deadline_s = DEADLINE_S, output_bytes = OUTPUT_BYTES })
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

-- ---- the copy ----

-- Make the copy equal to the tree. Only what differs is written, and it gets a fresh time: a file
-- that an interrupted call left broken is mended and built again, all others keep what was built
-- from them.
local function synchronise()
  local wanted = {}
  for _, path in ipairs(lines(need("git ls-files --cached --others --exclude-standard"))) do
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
      return "MOONREEL_LUA=$PWD timeout 300 build/cpu/moonreel spec/support/busted.lua " .. words
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

-- build what the specs of a breakage need; false and the output when that fails
local function build(specs)
  local targets = ""
  for _, spec in ipairs(specs) do
    targets = targets .. " " .. KINDS[spec.kind].build(spec.words)
  end
  local done = shell(("cmake --build %s --target %s"):format(BUILD, targets))
  return done.exit == 0, done.output
end

-- ---- specs ----

-- run specs until one is red, or hangs; true and the output when all are green
local function green(specs)
  local output = {}
  for _, spec in ipairs(specs) do
    local done = shell(("cd %s && { %s; }"):format(COPY, KINDS[spec.kind].run(spec.words)))
    output[#output + 1] = done.output
    if done.exit ~= 0 then
      return false, table.concat(output)
    end
  end
  return true, table.concat(output)
end

local sound = {}

-- what is red already notices nothing
local function require_green(specs)
  for _, spec in ipairs(specs) do
    local key = spec.kind .. " " .. spec.words
    if not sound[key] then
      local built, output = build { spec }
      local passed = built
      if built then
        passed, output = green { spec }
      end
      if not passed then
        error(("mutate: %s is red without any breakage:\n%s"):format(key, output), 0)
      end
      sound[key] = true
    end
  end
end

-- ---- breakages ----

-- build and test what is in the copy; the verdict, and the output behind it
local function try(breakage, broken)
  local built, output
  if breakage.file:find("%.lua$") then
    -- Lua is read from the copy
    built, output = load(broken, "@" .. breakage.file)
  else
    built, output = build(breakage.specs)
  end
  if not built then
    return "does not build", output
  end
  local passed, story = green(breakage.specs)
  return passed and "SURVIVED" or "killed", story
end

-- the verdict about one breakage, and the output behind it
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
  require_green(breakage.specs)
  base.replace_file(path, broken)
  local ok, verdict, output = pcall(try, breakage, broken)
  base.replace_file(path, text)
  if not ok then
    error(verdict, 0)
  end
  return verdict, output
end

-- ---- random breakages ----

-- specs of a source: first the one of its name, then those of its folder
local function specs_of(file)
  local folder, name = file:match "^(.*)/([%w_]+)%.%w+$"
  local room = folder:gsub("^lua/moonreel/?", "lua/"):gsub("/$", "")
  local specs = {}
  for _, path in ipairs { ("spec/%s/%s_spec.lua"):format(room, name), "spec/" .. room } do
    if room:find "^lua" and base.exists(path) then
      specs[#specs + 1] = { kind = "lua", words = path }
    end
  end
  if room:find "^core" and base.exists("spec/" .. room) then
    if base.exists(("spec/%s/%s.c"):format(room, name)) then
      specs[1] = { kind = "ctest", words = ("^%s/%s$"):format(room, name) }
    end
    specs[#specs + 1] = { kind = "ctest", words = ("^%s/"):format(room) }
  end
  return specs
end

-- breakages of the sources of a folder, picked by a seed; they have the form of breakages.read
local function random_breakages(folder, count, seed)
  local all = {}
  for _, file in ipairs(lines(need(("git ls-files '%s'"):format(folder)))) do
    local language = file:match "%.(%w+)$"
    local specs = (language == "c" or language == "lua") and specs_of(file) or {}
    if #specs > 0 then
      for _, mutant in ipairs(mutants.of(base.read_file(file), language)) do
        mutant.file, mutant.specs = file, specs
        mutant.name = ("%s:%d\n    - %s\n    + %s"):format(file, mutant.line, mutant.was, mutant.now)
        all[#all + 1] = mutant
      end
    end
  end
  print(("%s: %d mutants, %d of them tried (seed %d)"):format(folder, #all, math.min(count, #all),
    seed))
  return mutants.pick(all, count, seed)
end

-- ---- the run ----

local function prepare()
  synchronise()
  local launcher = os.getenv "CMAKE_C_COMPILER_LAUNCHER"
    or shell("command -v ccache").exit == 0 and "ccache" or ""
  need(("cd %s && CMAKE_C_COMPILER_LAUNCHER=%s make"):format(COPY, launcher))
end

-- judge breakages in turn; each has its name. Whether all were killed; those that are no valid
-- program count only where a list is at fault for them.
local function run(list, fixed, verbose)
  local total, killed = 0, 0
  for _, breakage in ipairs(list) do
    local verdict, output = judge(breakage)
    local counts = fixed or not verdict:find "^does"
    total, killed = total + (counts and 1 or 0), killed + (verdict == "killed" and 1 or 0)
    print(("%-14s %s"):format(verdict, breakage.name))
    if verbose or fixed and verdict:find "^does" then
      print(output)
    end
    io.stdout:flush()
  end
  print(("%d of %d killed"):format(killed, total))
  return total > 0 and killed == total
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

-- scripts/mutate has looked at the words
prepare()
if arg[1] == "random" then
  os.exit(run(random_breakages(arg[2], tonumber(arg[3] or 20), tonumber(arg[4] or 1))) and 0 or 1)
end
local only = tonumber(arg[2])
os.exit(run(listed(arg[1] == "all" and breakages.rooms() or { arg[1] }, only), true, only)
  and 0 or 1)
