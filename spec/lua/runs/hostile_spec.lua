--- Journals that are cut, edited or of another version. All readers report what they can and never
-- fail by a defect. MOONREEL_FUZZ makes this spec longer.
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local log = require "moonreel.cli.log"
local made_run = require "spec.support.made_run"
local printed = require "spec.support.printed"
local runs = require "moonreel.cli.runs"

local ROUNDS = math.tointeger(os.getenv "MOONREEL_FUZZ") or 60
local SEED = math.tointeger(os.getenv "MOONREEL_SEED") or 3

local start, step = made_run.start, made_run.step
local VALUES <const> = { "null", "-1", "1e300", '"x"', "[1,2]", '{"a":1}', "true", "0",
  "9223372036854775807", '"\\u0000"' }

local function draw(n, what, round)
  return math.floor(n * base.random_uniform(SEED, what, round, 0))
end

-- a text with one damage: cut, a byte changed, a line missing or repeated, a value or key replaced
local ways = {
  function(text, i) return text:sub(1, draw(#text, "cut", i)) end,
  function(text, i)
    local at = 1 + draw(#text, "at", i)
    return text:sub(1, at - 1) .. string.char(draw(256, "byte", i)) .. text:sub(at + 1)
  end,
  function(text, i)
    local at, list = 1 + draw(12, "line", i), {}
    for line in text:gmatch "[^\n]*\n" do
      list[#list + 1] = line
    end
    list[at] = draw(2, "twice", i) == 0 and "" or list[at]:rep(2)
    return table.concat(list)
  end,
  function(text, i)
    local n, at = 0, draw(select(2, text:gsub('":[^,{}]+', "")), "value", i)
    return (text:gsub('":[^,{}]+', function()
      n = n + 1
      return n == at + 1 and '":' .. VALUES[1 + draw(#VALUES, "new", i)] or nil
    end))
  end,
  function(text, i)
    local n, at = 0, draw(select(2, text:gsub('"(%w+)":', "")), "key", i)
    return (text:gsub('"(%w+)":', function()
      n = n + 1
      return n == at + 1 and '"later":' or nil
    end))
  end,
}

describe("a damaged journal", function()
  it("is read by each command as far as possible", function()
    local dir <close> = setmetatable({ it = folder.new() }, { __close = function(d)
      d.it:remove()
    end })
    local whole = made_run.text { start(0, { run = "abc", trackers = { wandb = {} } }), step(1, 5,
      { bucket = "6x32x32 b2", keys = "0011223344556677", t = 500 }), step(2, 4),
      { kind = "spike", step = 2, cause = "loss", value = 4, limit = 3, wall = 102.1 },
      { kind = "save", event = "commit", step = 2, bytes = 5, copy_s = 0.1, write_s = 0.2,
        wall = 102.2 }, step(3, 3), { kind = "rollback", step = 2, from = 3, why = "a spike",
        wall = 103.1 }, { kind = "skip", step = 3, reason = "loss nan, gradient norm inf",
        wall = 104 }, { kind = "nonfinite", step = 3, values = 2, tensors = { "a" }, wall = 104.5 },
      step(4, 2), start(3, { branch = 2, run = "abc" }), step(4, 1), { kind = "end", step = 4,
        loss = 1, wall = 110 } }
    print("hostile_spec: seed " .. SEED .. " (MOONREEL_SEED)")
    local run_dir = made_run.make(dir.it, "001-demo", {})
    for i = 1, ROUNDS do
      local text = ways[1 + i % #ways](whole, i)
      if i % 3 == 0 then
        text = ways[1 + (i // 3) % #ways](text .. "\n{}\n", i + 1000)
      end
      dir.it:write("001-demo/journal.jsonl", text)
      for _, words in ipairs { {}, { "--time" }, { "--time", "--json" }, { "--json" },
          { "--export", "csv" }, { "--export", "json" }, { "--export", "tensorboard" },
          { "--export", "wandb" }, { "--every", "1" } } do
        local good, problem = pcall(printed, log.run, { run_dir, table.unpack(words) })
        assert.is_true(good or type(problem) == "table" and problem.code == "MR_E_DATA",
          ("round %d, log %s: %s\n%s"):format(i, table.concat(words, " "),
            tostring(problem), text))
      end
      for _, words in ipairs { { dir.it.path }, { dir.it.path, "--tree" } } do
        local good, problem = pcall(printed, runs.run, words)
        assert.is_true(good, ("round %d, runs: %s\n%s"):format(i, tostring(problem), text))
      end
      base.remove_dir(run_dir .. "/tensorboard")
      base.remove_dir(run_dir .. "/wandb")
    end
  end)
end)
