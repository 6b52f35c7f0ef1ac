--- The stream of samples of a run is the same for any number of readers. Processes of 1, 2, 3, 4 or
-- 8 ranks read their shares of it, are killed, and others continue from the last saved state.
-- Together they read what one process reads without interruption, and each epoch has every sample
-- once.
-- MOONREEL_EPOCHS=300 reads that many epochs; MOONREEL_SEED chooses another order.
-- Covers: core/data/loader.c lua/moonreel/data/loader.lua
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

local EPOCHS = math.tointeger(os.getenv "MOONREEL_EPOCHS") or 8
local SEED = math.tointeger(os.getenv "MOONREEL_SEED") or 1
local SIZES <const> = { 1, 2, 3, 4, 8 }
local ROWS, EACH = 90, 4 -- epochs of one run

-- A run by the ranks of this launch: eight micro-batches a step for any number of ranks. `log` has
-- a line {epoch draw ids} for each step that `state` counts. A rank to be lost is killed during a
-- step.
local RUN = [[
local base, data, team = require "moonreel.core.base", require "moonreel.data",
  require "moonreel.comm.team"
local dir, seed, epochs, saves, lost, at = table.unpack(arg)
local t = team.new(require("moonreel.comm").world { deadline_s = 60 })
local function saved(name) return base.exists(dir .. name) and base.read_file(dir .. name) or nil end
local state, log = saved "/state", saved "/log" or ""
local loader <close> = data.loader { index = data.open(dir .. "/rows.mrx"), seed = seed // 1 | 0,
  bucket_config = { ["144p"] = { [1] = { 0.7, 5 }, [2] = { 1.0, 3 } } }, epochs = epochs // 1 | 0,
  state = state, threads = 1, blind = true, part = t.rank, parts = t.size, group = 8,
  allow_empty_buckets = true }
local step, over = 0, false
while not over do
  local own, n = {}, 0
  while n < 8 do
    local batch = loader:next()
    if not batch then
      over = true
      break
    end
    n = n + 1
    if not batch.other then
      local ids = table.concat(batch.ids, ",", 1, batch.n)
      own[#own + 1] = ("%d %d %d %s\n"):format(n, batch.epoch, batch.draw, ids)
    end
    loader:release(batch)
    if batch.last and t.size > 1 then
      local failures = t:texts(loader:failures())
      failures[t.rank + 1] = ""
      loader:agree(table.concat(failures))
    end
    if tonumber(lost) == t.rank and tonumber(at) == step * 8 + n then
      os.execute "kill -9 $PPID"
    end
  end
  step = step + 1
  local lines = {}
  for _, text in ipairs(t:texts(table.concat(own))) do
    for at, line in text:gmatch "(%d+) ([^\n]*\n)" do
      assert(not lines[at // 1 | 0], "two ranks have one micro-batch")
      lines[at // 1 | 0] = line
    end
  end
  assert(#lines == n, "no rank has a micro-batch")
  log = log .. table.concat(lines)
  if t.leads and (over or step % (saves // 1 | 0) == 0) then
    base.replace_file(dir .. "/log", log)
    base.replace_file(dir .. "/state", loader:state())
  end
  -- a kill finds both files of one step: no rank is killed before all are here
  t:try(function() end)
end
]]

local function draws(seed)
  return function(low, high)
    seed = (seed * 6364136223846793005 + 1442695040888963407) & 0x7fffffffffffffff
    return low + (seed >> 33) % (high - low + 1)
  end
end

describe("ranks that share an order", function()
  local dir, script
  setup(function()
    dir = folder.new()
    require("moonreel.core.index").synthetic(dir.path .. "/rows.mrx", ROWS, SEED)
    script = dir:write("run.lua", RUN)
  end)
  teardown(function() dir:remove() end)

  local function launch(ranks, seed, saves, lost, at)
    return process.run({ "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', process.program(), "-n",
      tostring(ranks), script, dir.path, tostring(seed), tostring(EACH), tostring(saves),
      tostring(lost), tostring(at) }, "", { deadline_s = 600 })
  end

  local function fresh()
    os.remove(dir.path .. "/state")
    os.remove(dir.path .. "/log")
  end

  -- what one process reads
  local function alone(seed)
    fresh()
    local done = launch(1, seed, 1000000, -1, 0)
    assert.equal(0, done.exit, done.output)
    return base.read_file(dir.path .. "/log")
  end

  it("read one stream, through kills and changes of their number", function()
    local draw, killed = draws(SEED), 0
    for run = 1, EPOCHS // EACH do
      local seed = SEED * 1000 + run
      local want = alone(seed)
      fresh()
      local tries = 0
      local done
      repeat
        tries = tries + 1
        local ranks = SIZES[draw(1, #SIZES)]
        -- some launches end normally
        local lost = tries < 12 and draw(0, 5) > 0 and draw(0, ranks - 1) or -1
        done = launch(ranks, seed, draw(1, 3), lost, draw(1, 60))
        killed = killed + (done.exit ~= 0 and 1 or 0)
        assert.is_true(done.exit == 0 or done.exit == 137, done.output)
      until done.exit == 0
      assert.equal(want, base.read_file(dir.path .. "/log"), "seed " .. seed)
      -- each sample of the epoch once
      local seen = {}
      for epoch, ids in want:gmatch "(%d+) %d+ ([^\n]*)\n" do
        seen[epoch] = seen[epoch] or {}
        for id in ids:gmatch "%d+" do
          assert.is_nil(seen[epoch][id])
          seen[epoch][id] = true
        end
      end
      local epochs = 0
      for _, ids in pairs(seen) do
        local n = 0
        for _ in pairs(ids) do
          n = n + 1
        end
        assert.is_true(n > ROWS // 2 and n <= ROWS)
        epochs = epochs + 1
      end
      assert.equal(EACH, epochs)
    end
    assert.is_true(killed > 0)
  end)
end)
