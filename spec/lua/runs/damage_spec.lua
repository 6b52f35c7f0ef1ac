--- A journal that was edited by hand.
-- Covers: lua/moonreel/runs/damage.lua
local damage = require "moonreel.runs.damage"
local folder = require "spec.support.folder"
local made_run = require "spec.support.made_run"

describe("an edited journal", function()
  local dir = folder.new()
  teardown(function() dir:remove() end)
  local start, step = made_run.start, made_run.step
  local whole = { start(0), step(1, 5), step(2, 4), { kind = "save", step = 2, event = "commit" },
    step(3, 4), { kind = "rollback", step = 1, from = 3, why = "a spike" }, { kind = "skip",
    step = 2, reason = "loss nan" }, step(3, 3), start(2, { branch = 2 }), step(3, 3), step(4, 2),
    { kind = "end", step = 4, loss = 2 } }

  -- a run with these lines, after `change` of their list
  local function found(name, change)
    local text = made_run.text(whole)
    local lines = {}
    for line in text:gmatch "[^\n]+" do
      lines[#lines + 1] = line
    end
    change(lines)
    local run_dir = made_run.make(dir, name, {})
    dir:write(name .. "/journal.jsonl", table.concat(lines, "\n") .. "\n")
    local list = damage.of(run_dir .. "/journal.jsonl")
    for i, line in ipairs(list) do
      list[i] = line:gsub("^.*/", "")
    end
    return list, run_dir
  end

  it("is complete with rollbacks, skipped steps and launches", function()
    assert.same({}, (found("whole", function() end)))
    assert.same({}, damage.of(dir.path .. "/nothing"))
  end)

  it("is reported by file and line: invalid JSON, missing or repeated lines", function()
    assert.same({ "journal.jsonl:3: is not a JSON object and is skipped: {broken\\x01",
      "journal.jsonl:5: step 2 is missing before it" }, (found("broken", function(lines)
        lines[3] = "{broken\1"
      end)))
    assert.same({ "journal.jsonl:2: is not a JSON object and is skipped: [1]",
      "journal.jsonl:3: step 1 is missing before it" }, (found("array", function(lines)
        lines[2] = "[1]"
      end)))
    assert.same({ "journal.jsonl:10: step 3 is missing before it" }, (found("gone",
      function(lines) table.remove(lines, 10) end)))
    assert.same({ "journal.jsonl:3: steps 1 to 2 are missing before it" }, (found("gone2",
      function(lines)
        table.remove(lines, 3)
        table.remove(lines, 2)
      end)))
    assert.same({ "journal.jsonl:4: step 2 occurs before it already" }, (found("twice",
      function(lines) table.insert(lines, 4, lines[3]) end)))
  end)

  it("is reported by each reader, which shows the rest", function()
    local _, run_dir = found("shown", function(lines)
      lines[11] = lines[11]:gsub('"kind"', "kind")
    end)
    for _, words in ipairs { "log @", "log @ --export csv", "log @ --export json", "log @ --time",
        "log @ --export tensorboard", "log @ --export wandb", "runs --compare @ @" } do
      local out, err, code = folder.moonreel((words:gsub("@", run_dir)))
      assert.equal(0, code, words .. err)
      assert.matches("note: [^\n]*/shown/journal.jsonl:11: is not a JSON object and is skipped: ",
        err)
      assert.is_true(#out > 0)
    end
  end)

  it("is reported once for many lines", function()
    local _, run_dir = found("many", function(lines)
      for i = 2, 11 do
        lines[i] = "x"
      end
    end)
    local _, err = folder.moonreel("log " .. run_dir)
    assert.equal(6, select(2, err:gsub("note: ", "")))
    assert.matches("note: [^\n]*/many/journal.jsonl: 5 more lines like these\n", err)
  end)
end)
