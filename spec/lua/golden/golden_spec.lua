-- Covers: spec/golden/runner/*.lua lua/moonreel/cli/golden.lua
local base = require "moonreel.core.base"
local golden = require "spec.golden.runner"

local folder = require "spec.support.folder"

local DIR = "spec/golden"

local function run(dir)
  local lines = {}
  local sum = golden.run(dir, function(line) lines[#lines + 1] = line end)
  return sum, lines
end

-- a directory with copies of files, each changed by a function of its bytes
local function directory(files)
  local dir = os.tmpname()
  os.remove(dir)
  base.make_dir(dir)
  for name, change in pairs(files) do
    base.replace_file(dir .. "/" .. name .. ".safetensors",
      change(base.read_file(DIR .. "/" .. name .. ".safetensors")))
  end
  return dir
end

local function same(bytes) return bytes end

describe("golden", function()
  it("passes each committed reference file", function()
    local sum, lines = run(DIR)
    assert.equal(0, sum.failed, table.concat(lines, "\n"))
    assert.equal(37, sum.passed)
    assert.equal("37 passed, 0 failed, 1 skipped", lines[#lines])
    assert.matches("^PASS adamw_ema [%d.e+-]+ 1e%-06$", lines[2])
  end)

  it("is a command of the source tree, which exits with 0 when a file passed", function()
    local place <close> = folder.new()
    local function golden_of(words, before)
      local out, err, code = folder.moonreel("golden " .. words, before)
      return {out, err, code}
    end
    place:write("good/adamw_ema.safetensors", base.read_file(DIR .. "/adamw_ema.safetensors"))
    place:write("good/poem.json", "{}")
    local done = golden_of(place.path .. "/good/")
    assert.matches("^PASS adamw_ema [^\n]*\nSKIP poem not built yet\n1 passed, 0 failed, "
      .. "1 skipped\n$", done[1])
    assert.same({"", 0}, {done[2], done[3]})
    for name, skipped in pairs{aside = 1, empty = 0} do
      base.make_dir(place.path .. "/" .. name)
      if skipped > 0 then
        place:write(name .. "/poem.json", "{}")
      end
      for _, how in ipairs{"", " --json"} do
        done = golden_of(place.path .. "/" .. name .. how)
        assert.equal(1, done[3])
        assert.equal(("moonreel: golden: %s/%s: nothing was compared (files skipped: %d); "
          .. "expected files of reference numbers, .safetensors or .json; try: spec/golden\n")
          :format(place.path, name, skipped), done[2])
      end
    end
    -- in other folders it says where to run it
    assert.same({"", "moonreel: golden: no spec/golden/runner/init.lua here; expected the source "
      .. "tree, with which the program was built; try: cd TREE && build/cpu/moonreel golden good\n",
      2}, golden_of("good", "cd " .. place.path .. " &&"))
  end)

  it("lists cases that it cannot check, and fails a file that has no others", function()
    local place <close> = folder.new()
    local case = '{"files": {"c.py": "%s"}, "entry": "c.py", "ok": true, "result": {"a": %s}}'
    local strange = case:format("for a in [1]:\\n    pass\\n", "1")
    local plain = case:format("a = [i * 2 for i in range(3)]\\n", "[0, 2, 4]")
    place:write("config_cases.json", '{"inheritance": [' .. strange .. ", " .. plain .. "]}")
    place:write("config_cases_all.json", '{"inheritance": [' .. strange .. "]}")
    local _, lines = run(place.path)
    local said = ", 1 of %d not judged: inheritance 1: python: expected =.* at 'a in %%[1%%]:$"
    assert.matches("^PASS config_cases 0 0" .. said:format(2), lines[1])
    assert.matches("^FAIL config_cases_all 0 0 %(nothing compared%)" .. said:format(1), lines[2])
  end)

  it("fails a file whose numbers differ from ours", function()
    local dir = directory{lr_schedules = function(bytes)
      -- the sign of the last number
      return bytes:sub(1, -2) .. string.char(bytes:byte(-1) ~ 0x80)
    end}
    local sum, lines = run(dir)
    assert.equal(1, sum.failed)
    assert.matches("^FAIL lr_schedules 2 1e%-05 %(onecycle", lines[1])
    os.execute("rm -r " .. dir)
  end)

  it("recognises files of texts by their head, under any name", function()
    local dir = os.tmpname()
    os.remove(dir)
    base.make_dir(dir)
    base.replace_file(dir .. "/t5.model", base.read_file(DIR .. "/token/t5.model"))
    local text = base.read_file(DIR .. "/token/t5.json")
    base.replace_file(dir .. "/mine.json", text)
    -- the ids of "a" and its normal form, changed
    base.replace_file(dir .. "/other.json", (text:gsub('"ids": %[33%]', '"ids": [34]', 1)))
    base.replace_file(dir .. "/third.json", (text:gsub('"norm": "\\u2581a"', '"norm": "a"', 1)))
    base.replace_file(dir .. "/poem.json", "{}")
    local sum, lines = run(dir)
    assert.same({ "PASS mine 0 0", "FAIL other 1 0 (ids)", "SKIP poem not built yet",
      "FAIL third 1 0 (normal forms)" }, { table.unpack(lines, 1, 4) })
    assert.equal(2, sum.failed)
    base.remove_dir(dir)
  end)

  it("fails a file with wrong sizes, without building them", function()
    local dir = directory{stdit3_weights = same, caption_drop = function(bytes)
      return (bytes:gsub('"hidden_size":"64"', '"hidden_size":"99"', 1):gsub('"hidden_size": "64"',
        '"hidden_size": "99"', 1))
    end}
    local sum, lines = run(dir)
    assert.equal(1, sum.failed)
    assert.matches("FAIL caption_drop .*hidden_size 99", lines[1])
    os.execute("rm -r " .. dir)
  end)

  it("runs files of other names by their stem, and skips unknown ones", function()
    local dir = directory{stdit3_weights = same, rflow_train_0 = same}
    os.rename(dir .. "/rflow_train_0.safetensors", dir .. "/rflow_train_of_mine.safetensors")
    base.replace_file(dir .. "/poem.safetensors", base.read_file(DIR .. "/adamw_ema.safetensors"))
    local sum, lines = run(dir)
    assert.matches("^SKIP poem not built yet$", lines[1])
    assert.matches("^PASS rflow_train_of_mine ", lines[2])
    assert.equal(1, sum.passed)
    os.execute("rm -r " .. dir)
  end)
end)
