--- Which run started from which other.
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local find = require "moonreel.runs.find"
local lineage = require "moonreel.runs.lineage"
local made_run = require "spec.support.made_run"

local start, step = made_run.start, made_run.step

describe("the descent of runs", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  local function journal(name, lines)
    dir:write(name .. "/journal.jsonl", made_run.text(lines))
  end
  local function at(name, n) return ("%s/%s/ckpt/step-%012d"):format(dir.path, name, n) end

  local function shape(node)
    local list = {}
    for i, child in ipairs(node.children) do
      list[i] = shape(child)
    end
    local source = node.source or {}
    return ("%s[%s%s%s]"):format(node.run.name, node.how or "", source.step and "@" .. source.step
      or "", #list > 0 and " " .. table.concat(list, " ") or "")
  end
  local function tree()
    local list = {}
    for i, node in ipairs(lineage.of(find.all(dir.path))) do
      list[i] = shape(node)
    end
    return table.concat(list, " ")
  end

  it("follows --load, --ckpt-path and --start-from-scratch", function()
    journal("001", { start(0), step(1, 5) })
    journal("002", { start(7, { parent = at("001", 7) }) })
    journal("003", { { kind = "weights", path = at("002", 9) }, start(0) })
    journal("004", { start(0, { updates = 7, parent = at("001", 7) }) })
    journal("005", { { kind = "weights", path = "/weights/model.safetensors" }, start(0) })
    journal("006", {})
    assert.equal("001[ 002[--load@7 003[--ckpt-path@9]] 004[--load --start-from-scratch@7]] "
      .. "005[--ckpt-path] 006[]", tree())
  end)

  it("finds a moved run by its name, and ends at a cycle", function()
    journal("001", { start(3, { parent = at("002", 3) }) })
    journal("002", { start(3, { parent = at("001", 3) }) })
    journal("003", { start(3, { parent = "/was/there/001/ckpt/step-000000000003" }) })
    journal("004", { start(3, { parent = at("004", 3) }) })
    assert.equal("002[--load@3 001[--load@3 003[--load@3]]] 004[--load@3]", tree())
  end)

  it("includes launches and rollbacks inside a run, with the steps that they undo", function()
    journal("001", { start(0), step(1, 5), step(2, 4), step(3, 3), start(2, { parent = at("001",
      2) }), step(3, 3), step(4, 9), { kind = "rollback", step = 3, from = 4, why = "spike" },
      start(3, { parent = at("001", 3) }) })
    local node = lineage.of(find.all(dir.path))[1]
    local list = {}
    for i, event in ipairs(node.parts[1].inner) do
      list[i] = ("%s %s at %d, %s back"):format(event.kind, event.number or event.from, event.step,
        event.back or event.why)
    end
    assert.same({ "launch 2 at 2, 1 back", "rollback 4 at 3, spike back",
      "launch 3 at 3, 0 back" }, list)
    assert.is_nil(node.source)
  end)

  it("records what a later launch loaded, after a first one that began with weights", function()
    journal("001", { { kind = "weights", path = "/w.safetensors" }, start(0), step(1, 5),
      start(1, { parent = at("001", 1) }) })
    local node = lineage.of(find.all(dir.path))[1]
    assert.same({ "--ckpt-path", "--load" }, { node.how, node.parts[1].inner[1].how })
  end)

  it("includes the stages of a run", function()
    dir:write("001/settings.json", '{"settings":{"stages":[{"name":"a"},{"name":"b"}]}}')
    journal("001/stages/a", { start(0), step(1, 5) })
    journal("001/stages/b", { start(1, { parent = at("001/stages/a", 1) }) })
    local parts = lineage.of(find.all(dir.path))[1].parts
    assert.same({ "a", "b", "--load", "a", 1 }, { parts[1].stage, parts[2].stage, parts[2].how,
      parts[2].source.stage, parts[2].source.step })
    assert.equal(dir.path .. "/001", parts[2].source.dir)
    assert.is_true(base.exists(parts[2].source.part))
  end)
end)
