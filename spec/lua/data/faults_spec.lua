-- Files with all kinds of faults in one run of two epochs, also without disk space for the
-- quarantine file. The run ends, all samples are accounted for, and four ranks decide the same as
-- one. An index that is cut off during such an epoch, or damaged before it, ends the run with an
-- error that names it. More about indexes: spec/core/index; about decoders that crash:
-- isolated_spec.lua.
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local derive = require "moonreel.data.derive"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

local CLIPS <const>, BAD <const>, CRASHES <const> = 30, 8, 25

-- the address sanitizer must be the first library, but accepts being the second
local LIBRARIES = process.program():gsub("[^/]*$", "")
local FAULTY = ("LD_PRELOAD=%sfaulty_decoder.so:%sfaulty_disk.so "):format(LIBRARIES, LIBRARIES)
  .. "ASAN_OPTIONS=verify_asan_link_order=0 FAULTY_CODEC=mpeg4 FAULTY_WAY=crash "
local FULL <const> = "FAULTY_PATH=.jsonl FAULTY_FULL=1"

local place
local function clip(i)
  return ("%s/clips/%02d.%s"):format(place.path, i, i % 2 == 0 and "webm" or "mp4")
end

-- changes bytes without the index's knowledge: size and time stay
local function damage(path, from)
  local text = base.read_file(path)
  os.execute(("cp -p '%s' '%s.old'"):format(path, path))
  local file <close> = assert(io.open(path, "r+b"))
  file:seek("set", from)
  file:write(("\xa5\x3c\x91"):rep((#text - from) // 4))
  file:close()
  os.execute(("touch -r '%s.old' '%s' && rm '%s.old'"):format(path, path, path))
end

setup(function()
  place = folder.new()
  base.make_dir(place.path .. "/clips")
  for i = 1, CLIPS do
    local frames = {}
    for t = 1, 8 do
      frames[t] = string.char((i * 8 + t * 5) % 256):rep(3 * 32 * 32)
    end
    data.encode(clip(i), table.concat(frames), { frames = 8, height = 32, width = 32,
      codec = i == CRASHES and "mpeg4" or i % 2 == 0 and "vp8" or nil })
  end
  data.ingest(place.path .. "/clips", place.path .. "/all.mrx")
  os.remove(clip(3))                                                        -- missing
  os.execute(("truncate -s 200 '%s'"):format(clip(6)))                      -- truncated
  damage(clip(9), 60)                                                       -- bits
  os.execute(("cp '%s' '%s'"):format(clip(11), clip(12)))                   -- replaced
  os.execute(("rm '%s' && mkfifo '%s'"):format(clip(15), clip(15)))         -- a pipe: readers block
  os.execute(("rm '%s' && mkdir '%s'"):format(clip(18), clip(18)))          -- unreadable
  os.execute(("rm '%s' && ln -s nowhere '%s'"):format(clip(21), clip(21)))  -- a broken link
end)
teardown(function() place:remove() end)

-- each rank prints a line: the ids of all draws, and its own weights
local script = [[
local data, json = require "moonreel.data", require "moonreel.core.json"
local world = %d > 1 and require("moonreel.comm").world() or nil
local team = world and require("moonreel.comm.team").new(world)
local rank, size = team and team.rank or 0, team and team.size or 1
local loader = data.loader { %s, epochs = 2, threads = 2, quarantine = %q,
  seed = 5, deadline_s = 60, part = rank, parts = size,
  resolutions = { tiny = { pixels = 1024, aspects = { ["1.00"] = { 32, 32 } } } },
  bucket_config = { tiny = { [4] = { 1.0, 2 } } } }
local ids, weights = json.array(), { 0, 0 }
for batch in function() return loader:next() end do
  for i = 1, batch.n do
    ids[#ids + 1] = ("%%d:%%d:%%d"):format(batch.epoch, batch.source, batch.ids[i])
    weights[batch.epoch + 1] = weights[batch.epoch + 1] + (batch.other and 0 or batch.weights[i])
  end
  if batch.last and team then
    local texts = team:texts(loader:failures())
    texts[rank + 1] = ""
    loader:agree(table.concat(texts))
  end
  loader:release(batch)
  if rank == 0 and #ids == 8 then
    os.execute(%q)
  end
end
io.stdout:write(json.encode { ids = ids, weights = json.array(weights), state = loader:state() },
  "\n")
]]

-- the events of a quarantine file without what differs between runs
local function events_of(list)
  local events = {}
  for line in base.read_file(list):gmatch("[^\n]+") do
    local e = json.decode(line)
    events[#events + 1] = ("%d %s %d %d %s"):format(e.row, e.class, e.attempt, e.epoch,
      e.source or "")
  end
  table.sort(events)
  return events
end

-- Two epochs with `n` ranks. `within` is a command that rank 0 runs after a few batches.
local function run(ranks, from, list, disk, within)
  local file = place:write("epochs.lua", script:format(ranks, from, list, within or "true"))
  return folder.moonreel((ranks > 1 and ("-n %d "):format(ranks) or "") .. file, FAULTY .. disk)
end

local function epochs(ranks, from, disk)
  local list = ("%s/%s-of%d%s.jsonl"):format(place.path, from:match("^%a+"), ranks,
    disk and "-full" or "")
  local out, err, code = run(ranks, from, list, disk or "")
  assert.equal(0, code, err)
  local report = {}
  for line in out:gmatch("{[^\n]*}") do
    report[#report + 1] = json.decode(line)
  end
  assert.equal(ranks, #report, out)
  return report, not disk and events_of(list), err
end

-- four ranks together draw, exclude and record the same samples as one rank
local function expect_of_four(one, lines, from)
  local four, by_four = epochs(4, from)
  local weights = { 0, 0 }
  for _, report in ipairs(four) do
    assert.same(one.ids, report.ids)
    assert.equal(one.state, report.state)
    for e = 1, 2 do
      weights[e] = weights[e] + report.weights[e]
    end
  end
  assert.same(one.weights, weights)
  assert.same(lines, by_four)
end

describe("faults of every kind", function()
  local one, events
  local function whole() return ("index = data.open(%q)"):format(place.path .. "/all.mrx") end

  it("cost only their samples, and each sample is accounted for", function()
    one, events = epochs(1, whole())
    one = one[1]
    local seen, count = {}, { 0, 0 }
    for _, id in ipairs(one.ids) do
      assert.is_nil(seen[id])
      seen[id] = true
      local epoch = tonumber(id:match("^%d+")) + 1
      count[epoch] = count[epoch] + 1
    end
    assert.same({ CLIPS - BAD, CLIPS - BAD }, one.weights)
    -- permanent faults are left out after the first epoch; a file that may return is not
    local classes = {}
    for _, event in ipairs(events) do
      local row, class, _, epoch = event:match("^(%d+) (%S+) (%d+) (%d+) $")
      if epoch == "0" then
        classes[tonumber(row) + 1] = class
      end
    end
    local gone, may_return = 0, 0
    for _, class in pairs(classes) do
      gone, may_return = gone + (class ~= "io" and 1 or 0), may_return + (class == "io" and 1 or 0)
    end
    assert.equal(BAD, gone + may_return)
    assert.equal("io", classes[3])
    assert.equal("stale", classes[12])
    assert.equal("corrupt", classes[CRASHES])
    assert.same({ CLIPS, CLIPS - gone }, count)
  end)

  it("lead to the same decisions on four ranks as on one", function()
    expect_of_four(one, events, whole())
  end)

  it("lead to the same decisions without disk space for the list, on 1 and 4 ranks", function()
    for _, ranks in ipairs { 1, 4 } do
      local all, _, err = epochs(ranks, whole(), FULL)
      local weights = { 0, 0 }
      for _, report in ipairs(all) do
        assert.same(one.ids, report.ids)
        assert.equal(one.state, report.state)
        weights[1], weights[2] = weights[1] + report.weights[1], weights[2] + report.weights[2]
      end
      assert.same(one.weights, weights)
      assert.matches("full%.jsonl: cannot write: No space left on device", err)
    end
  end)

  it("end the run when the index is cut off during the epoch or was damaged before it", function()
    local file = place.path .. "/all.mrx/data.mdb"
    os.execute(("cp -p '%s' '%s.good'"):format(file, file))
    local function ends(before, within, said)
      for _, ranks in ipairs { 1, 4 } do
        before()
        local out, err, code = run(ranks, whole(), place.path .. "/cut.jsonl", FULL, within)
        os.execute(("cp -p '%s.good' '%s'"):format(file, file))
        assert.equal(4, code, err)
        assert.equal("", out)
        assert.matches("all%.mrx/data%.mdb: " .. said, err)
      end
    end
    ends(function() end, ("truncate -s 8192 '%s'"):format(file),
      "cannot be read at byte %d+: it was cut off while in use")
    ends(function()
      damage(file, 9000)
      os.execute(("touch '%s'"):format(file))
    end, "true", "damaged between bytes %d+ and %d+; try: copy or build it again")
  end)

  it("are recorded for each source, with its own epochs, on one rank and on four", function()
    local all <close> = data.open(place.path .. "/all.mrx")
    local words = {}
    for name, keep in pairs { few = function(i) return i <= 10 end,
      rest = function(i) return i > 10 end } do
      derive.run { output = place.path .. "/" .. name .. ".mrx", from = { all }, made = "filter",
        choose = function(_, _, i) return keep(i), "elsewhere" end }
      words[#words + 1] = ("{ name = %q, index = data.open(%q), epochs = 2 }"):format(name,
        place.path .. "/" .. name .. ".mrx")
    end
    table.sort(words)
    local from = "sources = { " .. table.concat(words, ", ") .. " }"
    local alone, lines = epochs(1, from)
    alone = alone[1]
    local seen, count = {}, {}
    for _, id in ipairs(alone.ids) do
      assert.is_nil(seen[id])
      seen[id] = true
      local epoch = id:match("^%d+:%d+")
      count[epoch] = (count[epoch] or 0) + 1
    end
    assert.same({ CLIPS - BAD, CLIPS - BAD }, alone.weights)
    assert.same({ 10, 20 }, { count["0:1"], count["0:2"] })
    assert.equal(one and #one.ids, #alone.ids)
    local of = { few = 0, rest = 0 }
    for _, event in ipairs(lines) do
      of[event:match("%a+$")] = of[event:match("%a+$")] + 1
    end
    assert.is_true(of.few > 0 and of.rest > 0)
    expect_of_four(alone, lines, from)
  end)
end)
