--- What recomputes when the recipe leaves the choice to the run: the fewest blocks with which a
-- step fits, in a plan and in a run, with the same bits, and the same after a resume.
-- Covers: lua/moonreel/trainer/programs.lua lua/moonreel/plan/init.lua
local ckpt = require "moonreel.ckpt"
local compiled = require "moonreel.plan.compiled"
local demo_data = dofile "spec/support/demo_data.lua"
local fails = require "spec.support.fails"
local mesh = require "moonreel.plan.mesh"
local plan = require "moonreel.plan"
local process = require "moonreel.core.process"
local program = require "spec.support.program"
local recompute = require "moonreel.trainer.recompute"
local run = require "moonreel.run"
local settings = require "moonreel.settings"
local small_plan = require "spec.support.small_plan"

local out = demo_data.scratch()
teardown(function()
  os.execute("rm -r '" .. out .. "'")
  demo_data.remove()
end)

describe("trainer.recompute", function()
  -- blocks that free 10 and 30 bytes for 20 and 30 operations
  local function choices(report)
    return recompute.new({ 2, 3 }, function(choice)
      report[#report + 1] = recompute.text(choice)
      return 1000 - 10 * choice[1] - 30 * choice[2], 5 + 20 * choice[1] + 30 * choice[2]
    end)
  end

  it("goes from no block to all, first those with the least cost for each byte", function()
    local c, list = choices {}, {}
    for n = 0, c.size do
      list[#list + 1] = recompute.text(c:at(n))
    end
    assert.same({ "nothing", "{0, 0}", "{0, 1}", "{0, 2}", "{0, 3}", "{1, 3}", "{2, 3}" }, list)
  end)

  it("counts recomputed operations of steps of one kind by the number of such steps", function()
    assert.equal(7 + 3 * 5, recompute.operations { { flop = 100 }, { flop = 7, again = true },
      { flop = 5, again = true, count = 3 } })
  end)

  it("finds the first choice that fits, or the last, with few measurements",
    function()
    for first = 0, 7 do
      local asked, c = 0, choices {}
      local known = {}
      for n = 0, c.size do
        known[recompute.text(c:at(n))] = n
      end
      local choice, n = c:first(function(one)
        asked = asked + 1
        return known[recompute.text(one)] >= first
      end)
      assert.equal(math.min(first, 6), n)
      assert.equal(n, known[recompute.text(choice)])
      assert.is_true(asked <= 4, asked)
    end
    local report = {}
    assert.is_false(choices(report):first(function() return true end))
    assert.same({}, report) -- nothing is measured when everything fits
  end)
end)

describe("a plan with grad_ckpt_settings = auto", function()
  local bake = small_plan.bake

  -- the choice of the first bucket, its memory and its arena, for this much memory
  local function planned(memory, gpus, ...)
    local m = small_plan.machine(memory)
    local cache <close> = compiled.new(m)
    local s = bake("model.depth=4", ...)
    local open = plan.open(s, { mesh = mesh.new(m, gpus or 1), compiled = cache })
    local row = open:row(open:buckets()[1])
    return row, open
  end

  it("recomputes more blocks in less memory, never one more than necessary",
    function()
    local auto = "grad_ckpt_settings=auto"
    local row = planned(1e12, 1, auto)
    assert.is_false(row.recomputes)
    local none, least = row.total, planned(1, 1, auto)
    assert.same({ 4, 4 }, least.recomputes)
    assert.is_false(least.fits)
    assert.equal(none, planned(1e12, 1, "grad_checkpoint=false").total)
    assert.equal(least.total, planned(1, 1, "grad_checkpoint=true").total)
    local before, seen = -1, {}
    for k = 9, 0, -1 do
      local memory = least.total + (none - least.total) * k // 10
      row = planned(memory, 1, auto)
      assert.is_true(row.fits)
      local n = row.recomputes and 1 + row.recomputes[1] + row.recomputes[2] or 0
      assert.is_true(n >= before and n > 0)
      seen[n], before = true, n
      -- the choice is in the list, and one block less does not fit
      local list = ("grad_ckpt_settings={%d,%d}"):format(table.unpack(row.recomputes))
      assert.equal(row.total, planned(memory, 1, list).total)
      assert.equal(row.bytes.arena, planned(memory, 1, list).bytes.arena)
      for kind = 1, 2 do
        local less = { table.unpack(row.recomputes) }
        less[kind] = less[kind] - 1
        if less[kind] >= 0 and less[3 - kind] % 4 == 0 then
          assert.is_false(planned(memory, 1, ("grad_ckpt_settings={%d,%d}"):format(less[1],
            less[2])).fits, list)
        end
      end
    end
    assert.is_true(#seen > 3)
  end)

  it("makes one choice for all buckets when ranks share weights, by the fullest bucket", function()
    local function all(zero)
      local _, open = planned(1e12, 2, "grad_ckpt_settings=auto",
        "plugin_config.zero_stage=" .. zero)
      local rows, most = {}, 0
      for i, b in ipairs(open:buckets()) do
        most = math.max(most, open:row(b).total)
        rows[i] = b
      end
      open.memory, open.choices = most - 1, {}
      local texts, list = {}, {}
      for _, b in ipairs(rows) do
        local text = recompute.text(open:choice(b))
        list[#list + 1] = texts[text] == nil and text or nil
        texts[text] = true
      end
      return list
    end
    assert.is_true(#all(1) > 1)
    local alike = all(3)
    assert.equal(1, #alike)
    assert.are_not.equal("nothing", alike[1])
  end)

  it("accepts only the word and a list of two", function()
    for _, value in ipairs { "all", "{1}", "3" } do
      fails("MR_E_USAGE", "grad_ckpt_settings=" .. value .. ": grad_ckpt_settings: expected a list "
        .. "of 2 integer of at least 0, or \"auto\", or none", settings.bake,
        "tiny/demo", { "grad_ckpt_settings=" .. value })
    end
  end)
end)

-- runs with ranks that have these bytes for a micro-step, one after another
local TRAIN = [[
local base, programs = require "moonreel.core.base", require "moonreel.trainer.programs"
local new, rank = programs.new, tonumber(os.getenv "MOONREEL_RANK" or "0")
for i = 1, #arg do
  local words = {}
  for word in arg[i]:gmatch "[^\t]+" do
    words[#words + 1] = word
  end
  local room = {}
  for bytes in table.remove(words, 1):gmatch "[^,]+" do
    room[#room + 1] = math.tointeger(tonumber(bytes))
  end
  function programs.new(exec, plans, pipe, given)
    given.room = function() return room[rank + 1] or room[1] end
    return new(exec, plans, pipe, given)
  end
  assert(require("moonreel.cli.train").run(words) == 0)
end
]]

describe("a run with grad_ckpt_settings = auto", function()
  -- {room, words...} of each run; returns the output
  local function train(size, runs)
    local script = out .. "/train.lua"
    require("moonreel.core.base").replace_file(script, TRAIN)
    local list = { process.program(), "-n", tostring(size), script }
    for _, words in ipairs(runs) do
      list[#list + 1] = table.concat(words, "\t", 1, 1) .. "\ttiny/demo\tdtype=fp32\t"
        .. "threads=1\tnum_workers=1\tmodel.depth=3\tmodel.hidden_size=16\tmodel.num_heads=1\t"
        .. "text_encoder.width=16\ttext_encoder.num_heads=1\ttext_encoder.rows=64\tsteps=2\t"
        .. "model.caption_channels=16\toutputs=" .. out .. "\tdataset.data_path="
        .. demo_data.path() .. "\tbucket_config={['32px']={[1]={1.0,8},[6]={1.0,8}}}\t"
        .. table.concat(words, "\t", 2)
    end
    return program.output(list)
  end

  -- losses of all steps, choices of the first buckets, and record of the newest checkpoint
  local function report(name)
    local losses, choices, dir = {}, {}, demo_data.run_dir(out, name)
    for entry in run.entries(dir) do
      losses[#losses + 1] = entry.kind == "step" and ("%.17g"):format(entry.loss) or nil
      for _, row in ipairs(entry.kind == "start" and entry.buckets or {}) do
        choices[row.key] = recompute.text(row.recompute)
      end
    end
    local newest <close> = demo_data.newest(out, name)
    return losses, choices, newest.manifest.run_state.recompute, ckpt.steps(dir)[1]
  end

  it("chooses by free memory, keeps all bits and repeats the choice after a resume", function()
    local auto = "grad_ckpt_settings=auto"
    local text = train(1, { { "1e12", "name=plain" }, { "1e12", "name=room", auto },
      { "8e6", "name=tight", auto } })
    assert.matches("bucket 32px 6x32x32: [^\n]* a step, recomputes nothing\n", text)
    local plain, _, none = report "plain"
    assert.is_nil(none)
    local room, choices = report "room"
    assert.same(plain, room)
    for _, choice in pairs(choices) do
      assert.equal("nothing", choice)
    end
    local tight, fewer, record = report "tight"
    assert.same(plain, tight)
    assert.equal("nothing", fewer["1x32x32 b8 l56"])
    assert.matches("^{[012], 0}$", fewer["6x32x32 b8 l56"])
    assert.equal(fewer["6x32x32 b8 l56"], recompute.text(record["6x32x32 b8 l56"]))
    local dir = demo_data.run_dir(out, "tight")
    train(1, { { "1e12", "name=tight", "load=" .. dir, auto, "steps=3" } })
    local _, again, same = report "tight"
    assert.same(fewer, again)
    assert.same(record, same)
    -- the choice of before does not fit any more
    train(1, { { "1e6", "name=tight", "load=" .. dir, auto, "steps=4" } })
    for _, choice in pairs(select(3, report "tight")) do
      assert.same({ 3, 3 }, choice)
    end
  end)

  it("makes ranks that share weights agree on the choice of the fullest rank", function()
    local words = { "1e12,8e6", "name=zero", "plugin_config.zero_stage=3",
      "grad_ckpt_settings=auto" }
    train(2, { words, { "1e12", "name=zero_plain", "plugin_config.zero_stage=3" } })
    local losses, _, record = report "zero"
    assert.same(losses, (report "zero_plain"))
    assert.equal("all", next(record))
    assert.is_nil(next(record, "all"))
  end)
end)
