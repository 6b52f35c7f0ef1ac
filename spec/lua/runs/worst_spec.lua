--- Samples by loss; the order of samples is artificial.
local digest = require "moonreel.data.digest"
local folder = require "spec.support.folder"
local audit = require "moonreel.runs.audit"
local made_run = require "spec.support.made_run"
local worst = require "moonreel.runs.worst"

local ROWS <const> = 10

-- one sample a micro-batch, in a loop
local function order()
  local at = 0
  return { over = function() return false end, skip = function() end,
    next = function()
      at = at + 1
      local row = (at - 1) % ROWS + 1
      return { source = 1, epoch = 0, keys = { row }, rows = { row } }
    end }
end

-- losses fall; times of 100 have losses ten times as large; rows 3 and 7 are worse than others
local function lines(with_digest)
  local list = { made_run.start(0) }
  for n = 1, 200 do
    local row, t = (n - 1) % ROWS + 1, n % 3 == 0 and 100 or 900
    local loss = (2 + n % 7 * 0.01 + (row == 3 and 0.5 or row == 7 and 0.2 or 0)) / n ^ 0.1
      * (t == 100 and 10 or 1)
    list[n + 1] = made_run.step(n, loss, { t = t, bucket = "b", samples = 1,
      keys = with_digest and digest.of { { keys = { row } } } or nil })
  end
  return list
end

describe("the worst samples of a run", function()
  local function of(list)
    local dir <close> = folder.new()
    dir:write("journal.jsonl", made_run.text(list))
    return worst.of(audit.read(dir.path), order(), { { name = "" } })
  end

  it("are those with larger losses than others of their bucket and noise level", function()
    local rows, facts = of(lines(true))
    assert.same({ 3, 7, ROWS }, { rows[1].row, rows[2].row, #rows })
    assert.is_true(rows[1].score > 1 and rows[ROWS].score < 0)
    assert.is_true(rows[1].times >= 18 and rows[1].step == 193)
    assert.same({ 190, 10 }, { facts.steps, facts.left })
  end)

  it("are unknown when the journal does not record the samples of each step", function()
    local rows, facts = of(lines(false))
    assert.same({ 0, 0, 200 }, { #rows, facts.steps, facts.left })
    local list = lines(true)
    for _, line in ipairs(list) do
      line.loss = nil
    end
    assert.equal(0, #of(list))
  end)
end)
