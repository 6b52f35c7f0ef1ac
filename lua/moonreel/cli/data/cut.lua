--- moonreel data cut: scenes become rows of their own, ranges of the same file.
-- @module moonreel.cli.data.cut
local base = require "moonreel.core.base"
local derived = require "moonreel.cli.derived"
local scenes = require "moonreel.data.scenes"

local defaults = scenes.defaults
local NO_PTS = 2

local function positive(opts, name, default)
  local value = opts[name] == nil and default or tonumber(opts[name])
  if not value or value ~= value or value < 0 then
    base.raise("MR_E_USAGE", ("data cut: --%s: expected a number from 0 on, got '%s'"):format(
      name:gsub("_", "-"), opts[name]))
  end
  return value
end

-- Decides about a row: it is replaced by its scenes, or stays if it has one scene or cannot be cut.
local function choose(row, seen, given, count)
  if seen.class then
    return false, seen.class
  elseif row.image then
    return true
  elseif row.flags & NO_PTS ~= 0 then
    count.without_times = count.without_times + 1
    return true
  end
  local parts, short = scenes.find(seen.changes, row.fps, given)
  count.scenes, count.short = count.scenes + #parts, count.short + short
  if #parts + short == 1 then
    return true
  end
  count.cut = count.cut + 1
  return #parts > 0 and { parts = parts }, "all its scenes are too short"
end

return {
  words = "NAME.mrx -o NEW.mrx",
  summary = "make each scene of a clip a row of its own: a range of the same file; nothing is "
    .. "encoded",
  output = true,
  options = { derived.output,
    { "--threshold N", "difference between a frame and the previous one, in levels of lightness "
      .. "from 0 to 255 (default: 12)"
      .. ("(default: %g)"):format(defaults.threshold) },
    { "--least-seconds S", ("leave out shorter scenes (default: 1)"):format(defaults.least_s) },
    { "--threads N", "decoding threads (default: one per processor)", least = 1 },
    { "--part I/N", "process every N-th block of rows, for N processes or machines; data merge "
      .. "--parts joins the results" } },
  details = "A cut is a frame that differs at least this much from the previous one, and three "
    .. "times as much as the frames around\nit; a flash is not a cut. Pictures and clips without "
    .. "times stay whole.",
  run = function(opts, _, path)
    local given = { threshold = positive(opts, "threshold", defaults.threshold),
      least_s = positive(opts, "least_seconds", defaults.least_s) }
    local i, n = derived.part(opts.part)
    local count = { cut = 0, scenes = 0, short = 0, without_times = 0 }
    local code = derived.run(opts, { from = derived.open({ path }), made = "cut", part = i,
      parts = n, by = ("threshold %g, %g s"):format(given.threshold, given.least_s),
      look = { look = "changes", threads = opts.threads },
      choose = function(row, _, _, seen) return choose(row, seen, given, count) end },
      function() return count end)
    if code == 0 and not opts.json then
      print(("  %d clips were cut, %d scenes in all, %d more are too short"):format(count.cut,
        count.scenes, count.short))
      if count.without_times > 0 then
        print(("  %d clips have no times and stay whole"):format(count.without_times))
      end
    end
    return code
  end,
}
