--- Trackers write a run's journal into files of other tools, during the run and after it.
-- Covers: lua/moonreel/trackers/init.lua lua/moonreel/trackers/tensorboard.lua
-- lua/moonreel/trackers/wandb.lua lua/moonreel/trackers/facts.lua
local base = require "moonreel.core.base"
local core = require "moonreel.core.media"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local tracked = require "spec.support.tracked"
local trackers = require "moonreel.trackers"

local start, step = tracked.start, tracked.step

local SETTINGS = [[{"settings":{"lr":0.5,"name":"x","flag":true,"model":{"depth":2},"seed":7,
"wandb_project":"p","wandb_tags":["a","b"],"resolutions":{"big":{}}},"origin":{
"lr":[{"at":"a","set":true}],"name":[{"at":"a","set":true}],"flag":[{"at":"a","set":true}],
"seed":[{"at":"default"}],"model.depth":[{"at":"a","set":true}]}}]]

local function float(x) return (string.unpack("<f", string.pack("<f", x))) end

describe("trackers", function()
  local dir, run
  before_each(function()
    dir = folder.new()
    run = dir.path .. "/001-x"
    dir:write("001-x/settings.json", SETTINGS)
    dir:write("001-x/recipe.lua", "return recipe {}")
  end)
  after_each(function() dir:remove() end)

  local function journal(lines) dir:write("001-x/journal.jsonl", tracked.text(lines)) end
  local function append(line)
    local file <close> = io.open(run .. "/journal.jsonl", "a")
    file:write(tracked.text { line })
  end

  -- maps each path below a tracker's folder to the bytes of the file
  local function all(name)
    local found = {}
    local function look(path, short)
      for _, one in ipairs(base.exists(path .. "/.") and base.list_dir(path) or {}) do
        if base.exists(path .. "/" .. one .. "/.") then
          look(path .. "/" .. one, short .. one .. "/")
        else
          found[short .. one] = base.read_file(path .. "/" .. one)
        end
      end
    end
    look(run .. "/" .. name, "")
    return found
  end
  -- names and bytes of the files that match a pattern, sorted by name
  local function those(name, pattern)
    local names, texts = {}, {}
    for path in pairs(all(name)) do
      names[#names + 1] = path:match(pattern) and path or nil
    end
    table.sort(names)
    for i, path in ipairs(names) do
      texts[i] = all(name)[path]
    end
    return texts, names
  end
  local function export()
    return trackers.export(run, "tensorboard"), trackers.export(run, "wandb")
  end

  -- the points that TensorBoard shows of a tag: {{step, value}, ...}
  local function curve(tag)
    local points = {}
    for _, text in ipairs(those("tensorboard", "tfevents")) do
      for _, event in ipairs(tracked.events(text)) do
        if event.start then
          while points[1] and points[#points][1] >= event.step do
            points[#points] = nil
          end
        elseif event.values[tag] then
          points[#points + 1] = { event.step, event.values[tag] }
        end
      end
    end
    return points
  end

  -- the points that a W&B server has of a key, and how each folder begins and ends
  local function history(key)
    local points, words = {}, {}
    for _, text in ipairs(those("wandb", "%.wandb$")) do
      local word
      for i, record in ipairs(tracked.records(text)) do
        assert.equal(i, record.number)
        if record[1] == 17 then
          local back = tracked.get(record[2], 23, 2)
          back = back and string.unpack("<d", back)
          word = back and ("back to %d"):format(back) or tracked.get(record[2], 24) and "on"
            or "new"
          while back and points[1] and points[#points][1] > back do
            points[#points] = nil
          end
        elseif record[1] == 2 then
          local items = tracked.items(record[2], 1)
          assert.equal(items._step, tracked.get(record[2], 2, 1))
          assert.is_true(#points == 0 or points[#points][1] < items._step)
          points[#points + 1] = { items._step, items[key] }
        elseif record[1] == 18 then
          word = word .. (", exit %d"):format(tracked.get(record[2], 1))
        end
      end
      words[#words + 1] = word
    end
    return points, words
  end

  local function losses(list)
    local values = {}
    for i, point in ipairs(list) do
      values[i] = ("%d:%.9g"):format(point[1], point[2])
    end
    return table.concat(values, " ")
  end

  local LINES = { start(0), step(1, 5), step(2, 4), step(3, 3), { kind = "save", event = "commit",
    step = 2, wall = 1.75e9 + 3 }, start(2, { wall = 1.75e9 + 10 }), step(3, 0.1), step(4, 0.2),
    { kind = "rollback", step = 3, from = 4, why = "spike", wall = 1.75e9 + 20 }, step(4, 0.3),
    { kind = "end", step = 4, wall = 1.75e9 + 30 }, start(4, { wall = 1.75e9 + 40 }), step(5, 0.5),
    { kind = "stop", step = 5, signal = 15, wall = 1.75e9 + 50 } }

  it("write one curve for a run that was resumed and rolled back", function()
    journal(LINES)
    local board, wandb = export()
    assert.same({ 4, 4, 0, {} }, { board.parts, board.written, board.kept, board.left })
    assert.same({ 4, 4 }, { wandb.parts, wandb.written })
    local want = { { 1, 5 }, { 2, 4 }, { 3, 0.1 }, { 4, 0.3 }, { 5, 0.5 } }
    local points, words = history "loss"
    assert.equal(losses(want), losses(points))
    assert.same({ "new", "back to 2, exit 0", "back to 3, exit 0", "on, exit 143" }, words)
    for _, point in ipairs(want) do
      point[2] = float(point[2])
    end
    assert.equal(losses(want), losses(curve "loss"))
  end)

  it("write the recipe, its settings and its tags", function()
    journal(LINES)
    export()
    local first = tracked.events(those("tensorboard", "tfevents")[1])
    assert.equal("brain.Event:2", first[1].version)
    assert.matches("```lua\nreturn recipe {}\n```", first[3].values["recipe/text_summary"], 1, true)
    local hparams = first[3].values["_hparams_/session_start_info"]
    for _, name in ipairs { "flag", "lr", "model.depth", "name" } do
      assert.matches(name, hparams, 1, true)
    end
    assert.is_nil(hparams:find("seed", 1, true))
    local records = tracked.records(those("wandb", "%.wandb$")[1])
    local reported = records[2][2]
    local config = tracked.items(tracked.get(reported, 4), 1)
    assert.same({ lr = 0.5, name = "x", flag = true, model = { depth = 2 }, seed = 7,
      wandb_project = "p", wandb_tags = { "a", "b" } }, config)
    assert.same({ "abc123", "p", "001-x", "a" }, { tracked.get(reported, 1),
      tracked.get(reported, 3), tracked.get(reported, 8), tracked.get(reported, 10) })
    assert.equal("0.31.0", tracked.get(records[1][2], 1, 1))
  end)

  it("prefer the tracker settings of a session to those in the run's folder", function()
    journal { start(0, { trackers = { wandb = { project = "q", entity = "me", tags = { "z" },
      log = "next" } } }), step(1), { kind = "end", step = 1 } }
    export()
    local text = those("wandb", "%.wandb$")[1]
    assert.equal(1, text:byte(7))
    local reported = tracked.records(text)[2][2]
    assert.same({ "me", "q", "z" }, { tracked.get(reported, 2), tracked.get(reported, 3),
      tracked.get(reported, 10) })
  end)

  it("derive the name of each folder and file from the journal alone", function()
    journal(LINES)
    export()
    local _, names = those("wandb", "%.wandb$")
    assert.equal("offline-run-20250615_150640-abc123/run-abc123.wandb", names[1])
    _, names = those("tensorboard", "tfevents")
    assert.equal("events.out.tfevents.1750000000.moonreel.abc123.000001", names[1])
    local before = { all "tensorboard", all "wandb" }
    base.remove_dir(run .. "/tensorboard")
    base.remove_dir(run .. "/wandb")
    export()
    assert.same(before, { all "tensorboard", all "wandb" })
    local board = export()
    assert.same({ 0, 4 }, { board.written, board.kept })
  end)

  it("write samples, notes and numbers of other lines", function()
    local pixels = ("\x10\x80\xf0"):rep(3 * 16 * 24)
    base.make_dir(run .. "/samples")
    core.encode(run .. "/samples/a.mp4", pixels, { height = 16, width = 24, frames = 3, fps = 8 })
    core.encode(run .. "/samples/b.png", pixels:sub(1, 1152), { height = 16, width = 24 })
    dir:write("001-x/samples/bad.mp4", "no video")
    journal { start(0), step(1), step(2), { kind = "sample", step = 1, wall = 1.75e9 + 2.5,
      files = { { path = "samples/a.mp4", name = "p1", caption = "a ball" }, "samples/b.png",
      "samples/bad.mp4" }, scalars = { ["eval/loss"] = 0.5 } }, { kind = "note", text = "look",
      wall = 1.75e9 + 3 }, step(3), { kind = "end", step = 3 } }
    export()
    local shown = {}
    for _, event in ipairs(tracked.events(those("tensorboard", "tfevents")[1])) do
      for tag, value in pairs(event.values) do
        shown[tag] = { event.step, value }
      end
    end
    assert.equal("GIF89a", tracked.get(shown["samples/p1"][2], 4, 4):sub(1, 6))
    assert.equal("\x89PNG", tracked.get(shown["samples/b"][2], 4, 4):sub(1, 4))
    assert.matches("could not be shown: samples/bad.mp4", shown["samples/bad/text_summary"][2])
    assert.same({ 1, 0.5 }, shown["eval/loss"])
    assert.matches("look", shown["notes/text_summary"][2])
    -- W&B has them in the history row of the newest step
    local row, listed, console
    for _, record in ipairs(tracked.records(those("wandb", "%.wandb$")[1])) do
      local items = record[1] == 2 and tracked.items(record[2], 1)
      row = items and items["samples/step"] and items or row
      listed = record[1] == 6 and tracked.get(record[2], 1, 1) or listed
      console = record[1] == 13 and console or record[1] == 13 and tracked.get(record[2], 3)
        or console
    end
    assert.same({ 2, 1, 0.5 }, { row._step, row["samples/step"], row["eval/loss"] })
    assert.equal("look\n", console)
    local video = row["samples/p1"]
    assert.same({ "video-file", "a ball" }, { video._type, video.caption })
    local copy = those("wandb", "/files/" .. video.path:gsub("%p", "%%%0") .. "$")[1]
    assert.equal(base.read_file(run .. "/samples/a.mp4"), copy)
    assert.same({ base.sha256(copy), #copy }, { video.sha256, video.size })
    assert.same({ "image-file", 16, 24, "png" }, { row["samples/b"]._type, row["samples/b"].height,
      row["samples/b"].width, row["samples/b"].format })
    assert.matches("^media/", listed)
  end)

  -- ---- during a run ----

  local reports
  local function open(branch)
    reports = {}
    return trackers.open { dir = run, root = run, branch = branch,
      names = { "tensorboard", "wandb" }, say = function(line) reports[#reports + 1] = line end,
      report = function(name, why)
        reports[#reports + 1] = name .. ": " .. why
        append { kind = "tracker", tracker = name, text = why, step = 0 }
      end }
  end

  -- the files of a tracker, without those of another run of this spec
  local function both() return { all "tensorboard", all "wandb" } end
  local function again()
    base.remove_dir(run .. "/tensorboard")
    base.remove_dir(run .. "/wandb")
    export()
    return both()
  end

  it("write the same bytes during a run as an export after it", function()
    journal { LINES[1] }
    local session, branch = open(1), 1
    for i = 2, #LINES do
      if LINES[i].kind == "start" then
        session:close()
        branch = branch + 1
        LINES[i].branch = branch
        append(LINES[i])
        session = open(branch)
      else
        append(LINES[i])
        session:look()
        if i == 3 then
          assert.equal("1:5 2:4", losses(curve "loss"))
          -- the newest row waits for lines that may still add to it
          assert.equal("1:5", losses((history "loss")))
        end
      end
    end
    session:close()
    session:close()
    assert.same({}, reports)
    assert.same(both(), again())
  end)

  it("take as much time for a step of a long run as of a short one", function()
    -- processor seconds that 200 steps take after this many steps
    local function seconds_behind(n)
      local lines = { start(0) }
      for i = 1, n do
        lines[i + 1] = step(i)
      end
      lines[#lines + 1] = start(n, { branch = 2, wall = 1.75e9 + n })
      journal(lines)
      base.remove_dir(run .. "/tensorboard")
      base.remove_dir(run .. "/wandb")
      local session <close> = open(2)
      local began = os.clock()
      for i = n + 1, n + 200 do
        append(step(i))
        session:look()
      end
      return os.clock() - began
    end
    assert.is_true(seconds_behind(20000) < 3 * seconds_behind(20) + 0.05)
  end)

  it("repair the files of a killed session: torn, shortened or missing", function()
    local lines = { start(0), step(1), step(2), step(3) }
    journal(lines)
    open(1):close()
    local whole = those("tensorboard", "tfevents")[1]
    for cut = 1, 60, 7 do
      local _, names = those("tensorboard", "tfevents")
      dir:write("001-x/tensorboard/" .. names[1], whole:sub(1, #whole - cut))
      base.remove_dir(run .. "/wandb")
      append(start(2, { branch = cut + 1, wall = 1.75e9 + 100 * cut }))
      open(cut + 1):close()
      assert.equal(whole, (those("tensorboard", "tfevents")[1]))
      assert.same({}, reports)
    end
    assert.same(both(), again())
  end)

  it("leave uploaded files and files that others wrote unchanged", function()
    journal { start(0), step(1), step(2), { kind = "end", step = 2 } }
    open(1):close()
    local _, logs = those("wandb", "%.wandb$")
    local _, events = those("tensorboard", "tfevents")
    dir:write("001-x/wandb/" .. logs[1] .. ".synced", "")
    dir:write("001-x/tensorboard/" .. events[1], all("tensorboard")[events[1]] .. "theirs")
    local theirs = all("tensorboard")[events[1]]
    append { kind = "note", text = "late" }
    append(start(2, { branch = 2, wall = 1.75e9 + 9 }))
    local before = all("wandb")[logs[1]]
    open(2):close()
    assert.equal(before, all("wandb")[logs[1]])
    assert.not_equal(theirs, all("tensorboard")[events[1]]) -- only the torn end was not ours
    local whole = all("tensorboard")[events[1]]
    local foreign = whole .. whole
    dir:write("001-x/tensorboard/" .. events[1], foreign)
    append(start(2, { branch = 3, wall = 1.75e9 + 19 }))
    open(3):close()
    assert.equal(1, #reports)
    assert.matches("contains data that this run did not write; it is left", reports[1])
    assert.equal(foreign, all("tensorboard")[events[1]])
    assert.same({ run .. "/tensorboard/" .. events[1] }, trackers.export(run, "tensorboard").left)
  end)

  it("report an error that repeats once, and the run continues", function()
    journal { start(0), step(1) }
    dir:write("001-x/wandb", "a file where the folder would be")
    local session = open(1)
    for i = 2, 9 do
      append(step(i))
      session:look()
    end
    session:close()
    assert.equal(1, #reports)
    assert.matches("^wandb: ", reports[1])
    assert.equal(9, #curve "loss")
    os.remove(run .. "/wandb")
    append(start(9, { branch = 2, wall = 1.75e9 + 30 }))
    open(2):close()
    assert.equal(9, #history "loss")
  end)

  it("refuse a folder that is no run", function()
    fails("MR_E_USAGE", "there is no such tracker; expected one of tensorboard, wandb",
      trackers.export, run, "mlflow")
    fails("MR_E_DATA", "no journal.jsonl; try: the folder of a run", trackers.export, run, "wandb")
    journal { { kind = "weights" } }
    fails("MR_E_DATA", "has no session yet", trackers.export, run, "wandb")
  end)
end)
