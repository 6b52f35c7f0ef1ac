--- A journal proves that no sample was repeated or skipped; the order of samples is artificial.
local audit = require "moonreel.runs.audit"
local digest = require "moonreel.data.digest"
local folder = require "spec.support.folder"
local made_run = require "spec.support.made_run"

local PER <const> = 3  -- samples of a micro-batch

-- micro-batch n, from 1, has the keys 3n, 3n + 1, 3n + 2
local function keys(n) return { PER * n, PER * n + 1, PER * n + 2 } end

-- an order that ends after `most` micro-batches
local function order_of(most)
  local at = 0
  return { over = function() return at >= most end,
    next = function()
      at = at + 1
      return { source = 1, epoch = at // 5, keys = keys(at), rows = keys(at) }
    end,
    skip = function(_, n) at = math.min(most, at + n) end }
end

-- the line of a step that took `batches` micro-batches up to number `last`
local function step(n, last, batches)
  local list = {}
  for i = last - (batches or 1) + 1, last do
    list[#list + 1] = { keys = keys(i) }
  end
  return made_run.step(n, 1, { keys = digest.of(list), samples = PER * #list,
    batches = #list })
end

describe("an audit of a journal", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  local function start(n, parent)
    return made_run.start(n, { parent = parent and ("%s/%s/ckpt/step-%012d"):format(dir.path,
      parent, n) })
  end
  local function compare(name, lines, most)
    dir:write(name .. "/journal.jsonl", made_run.text(lines))
    local record = audit.read(dir.path .. "/" .. name)
    return audit.compare(record, order_of(most or 1000), { { name = "" } })
  end
  local function problems(found)
    local list = {}
    for i, one in ipairs(found.problems) do
      list[i] = one.step .. " " .. one.what
    end
    return table.concat(list, ", ")
  end

  it("proves a run with restarts", function()
    local found = compare("a", { start(0), step(1, 1), step(2, 2), step(3, 3), start(2, "a"),
      step(3, 3), { kind = "skip", step = 4, batches = 1, samples = 3, keys = digest.of {
        { keys = keys(4) } } }, step(5, 5) })
    assert.same({ 5, 15, 2, 0, 1, {} }, { found.steps, found.samples, found.epochs,
      found.left_out, found.undone, found.problems })
    assert.is_nil(found.unknown)
  end)

  it("proves steps of several micro-batches, the last one short", function()
    assert.same({}, compare("a", { start(0), step(1, 2, 2), step(2, 4, 2), step(3, 5, 1) }, 5)
      .problems)
  end)

  it("follows rollbacks that skip batches, and ignores rollbacks that were undone",
    function()
      -- after step 2 the batches of 2 steps of 1 are skipped
      local back = { kind = "rollback", step = 2, from = 4, skipped = 2 }
      local lines = { start(0), step(1, 1), step(2, 2), step(3, 3), step(4, 4), back, step(3, 5),
        step(4, 6) }
      local found = compare("a", lines)
      assert.same({ "", 4, 6 }, { problems(found), found.steps, found.left_out })
      -- a restart after the rollback keeps it
      lines[#lines + 1], lines[#lines + 2] = start(3, "a"), step(4, 6)
      assert.equal("", problems(compare("a", lines)))
      -- a restart from the checkpoint of step 2, before the rollback, does not
      for _, line in ipairs { start(2, "a"), step(3, 3), step(4, 4) } do
        lines[#lines + 1] = line
      end
      found = compare("a", lines)
      assert.same({ "", 0 }, { problems(found), found.left_out })
    end)

  it("counts batches that are skipped by steps of several micro-batches", function()
    local found = compare("a", { start(0), step(1, 2, 2), step(2, 4, 2), step(3, 6, 2),
      { kind = "rollback", step = 1, from = 3, skipped = 2 }, step(2, 8, 2), step(3, 10, 2) })
    assert.same({ "", 12 }, { problems(found), found.left_out })
  end)

  it("finds samples that are repeated, skipped, too few or not in the journal", function()
    local found = compare("a", { start(0), step(1, 1), step(2, 2), step(3, 2), step(4, 5),
      step(5, 5), made_run.step(7, 1), made_run.step(8, 1, { keys = step(8, 8).keys,
        samples = 2 }) })
    assert.equal("3 other samples, 4 other samples, 6 missing, 7 no digest, 8 samples",
      problems(found))
    assert.equal("it repeats the samples of step 2", found.problems[1].text)
    assert.equal("it repeats the samples of step 5", found.problems[2].text)
    assert.matches("digest %x+, expected %x+", compare("a", { start(0), step(1, 99) })
      .problems[1].text)
  end)

  it("continues in the data of the run from which a run was loaded", function()
    compare("a", { start(0), step(1, 2, 2), step(2, 4, 2), step(3, 6, 2) })
    assert.same({}, compare("b", { start(2, "a"), step(3, 5), step(4, 6) }).problems)
    assert.same({}, compare("c", { start(4, "b"), step(5, 7) }).problems)
    -- the whole folder was moved
    local moved = { start(2, "a"), step(3, 5) }
    moved[1].parent = "/was/here/a/ckpt/step-000000000002"
    assert.same({}, compare("d", moved).problems)
    -- a run that resumes from its own checkpoint, and was copied
    local copied = { start(0), step(1, 2, 2), made_run.start(1, { run = "1f",
      parent = "outputs/001-a/ckpt/step-000000000001" }), step(2, 4, 2) }
    copied[1].run = "1f"
    assert.equal(2, compare("f", copied).steps)
    -- from the beginning of its data
    assert.same({}, compare("e", { made_run.start(0, { parent = moved[1].parent }), step(1, 1) })
      .problems)
  end)

  it("reports which information is missing", function()
    assert.matches("the journal of /x/y, from which this run continues at step 2",
      compare("b", { made_run.start(2, { parent = "/x/y/ckpt/step-2" }), step(3, 3) }).unknown)
    compare("a", { start(0), step(1, 1) })
    assert.matches("the journal of .*/a ends before step 2", compare("b", { start(2, "a"),
      step(3, 3) }).unknown)
    compare("d", { start(2, "c"), step(3, 3) })
    assert.matches("the journal of .*, from which .* does not exist", compare("c", { start(2, "d"),
      step(3, 3) })
      .unknown)
  end)
end)
