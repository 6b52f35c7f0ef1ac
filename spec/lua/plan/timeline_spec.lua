--- Events over time: the critical path, streams, traces.
-- Covers: lua/moonreel/plan/show.lua
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local simulate = require "moonreel.plan.simulate"
local timeline = require "moonreel.plan.timeline"

-- two gathers, a pass that waits for the second one, and a copy in parallel with all
local events = {
  { stream = "comm_inter", name = "gather", seconds = 1 },
  { stream = "comm_inter", name = "gather", seconds = 2 },
  { stream = "compute", name = "forward", seconds = 4, after = { 2 } },
  { stream = "h2d", name = "input", seconds = 2 },
}
local times = simulate.run(events)
local how = { events = events, times = times, seconds = times.seconds }

local function run(...)
  local done = process.run({ process.program(), "plan", ... }, "", { deadline_s = 600 })
  return done.exit, done.output
end

describe("a timeline", function()
  it("has a path from the beginning to the end, equal events together", function()
    assert.same({ { name = "gather", stream = "comm_inter", seconds = 3, share = 3 / 7,
      events = 2 }, { name = "forward", stream = "compute", seconds = 4, share = 4 / 7,
      events = 1 } }, timeline.path(how))
  end)

  it("reports how busy streams are", function()
    assert.same({ { stream = "compute", seconds = 4, share = 4 / 7 },
      { stream = "comm_inter", seconds = 3, share = 3 / 7 },
      { stream = "h2d", seconds = 2, share = 2 / 7 } }, timeline.busy(how))
  end)

  it("reports when each event begins, and what it waits for", function()
    local numbered = {
      { stream = "compute", name = "backward", bucket = 2, seconds = 3 },
      { stream = "comm_intra", name = "reduce", bucket = 2, seconds = 1, after = { 1 } },
      { stream = "compute", name = "backward", bucket = 1, seconds = 3 },
      { stream = "h2d", name = "input", seconds = 2 },
    }
    local ran = simulate.run(numbered)
    local rows = timeline.rows { events = numbered, times = ran, seconds = ran.seconds }
    local report = {}
    for i, row in ipairs(rows) do
      report[i] = { row.what, row.begins, row.ends, row.stream, row.after, row.decides }
    end
    assert.same({ { "backward 2", 0, 3, "compute", "", true }, { "input", 0, 2, "h2d", "", false },
      { "reduce 2", 3, 4, "comm_intra", "backward 2", false },
      { "backward 1", 3, 6, "compute", "", true } }, report)
  end)

  it("is a trace with a row per stream, whose events record whether they are critical", function()
    local trace = json.decode(timeline.trace { { name = "one", how = how } })
    local seen = {}
    for _, event in ipairs(trace.traceEvents) do
      if event.ph == "X" then
        seen[#seen + 1] = ("%s %d %g %g %s"):format(event.name, event.tid, event.ts, event.dur,
          event.args.decides)
      end
    end
    assert.same({ "gather 3 0 1e+06 true", "gather 3 1e+06 2e+06 true",
      "forward 1 3e+06 4e+06 true", "input 4 0 2e+06 false" }, seen)
  end)
end)

describe("moonreel plan", function()
  it("--schedule prints gathers, passes and reductions of a step, by bucket", function()
    local words = { "recipes/tiny/demo", "--gpus", "2xH100", "--schedule", "model.depth=1",
      "plugin_config.reduce_bucket_size_in_m=1" }
    local exit, text = run(table.unpack(words))
    assert.equal(0, exit)
    -- the last bucket is reduced after the pass of the one before it
    assert.matches("^a step of bucket [^\n]* on 2 H100, ", text)
    assert.matches("comm_intra +%*? +reduce 2 +backward 2\n", text)
    assert.matches("compute +%*? +update 1 +norm\n", text)
    words[#words + 1] = "--json"
    local rows = json.decode(select(2, run(table.unpack(words))))
    assert.same({ "gather 2", "update 2" }, { rows[#rows].what, rows[#rows].after })
  end)

  it("--why names what limits the step, --trace writes the steps of all buckets", function()
    local path = os.tmpname()
    local exit, text = run("recipes/tiny/demo", "--gpus", "4x8xH100", "--why", "--trace", path,
      "model.depth=1")
    assert.equal(0, exit)
    assert.matches("why a step of bucket 32px 1x32x32, batch 32 on 4 x 8 H100, takes %d+ us", text)
    assert.matches("\nbackward +compute +1 +%d+ us +%d+ %%", text)
    assert.matches("\nlinear +%d+ +%d+ us +", text)
    assert.matches("the slowest of 32 ranks adds", text)
    assert.matches("takes longest; try: ", text)
    local names = {}
    for _, event in ipairs(json.decode(base.read_file(path)).traceEvents) do
      names[event.name] = (names[event.name] or 0) + 1
    end
    -- the slowest once more, while it saves
    assert.same({ 3, 3, 1, 1 }, { names.forward, names.process_name, names.snapshot, names.write })
    assert.is_true(names.reduce >= 2 and names.gather >= 2)
    os.remove(path)
  end)
end)
