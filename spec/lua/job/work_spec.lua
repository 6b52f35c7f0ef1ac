--- A signal while a job works ends it at once. It leaves no files, or a cache that can be
-- continued.
-- Covers: lua/moonreel/job/work.lua
local base = require "moonreel.core.base"
local job = require "moonreel.job"
local settings = require "moonreel.settings"
local signalled = dofile "spec/support/signalled.lua"
local small_set = require "spec.support.small_set"
local store = require "moonreel.core.store"
local trainer = require "moonreel.trainer"

describe("a job", function()
  local dir, words
  local recipe, weights
  local function silent() end
  local function with(list, ...)
    return table.move({ ... }, 1, select("#", ...), #list + 1, table.move(list, 1, #list, 1, {}))
  end
  setup(function()
    dir, words = small_set.new()
    recipe = dir.path .. "/small.lua"
    assert.equal(0, (trainer.run(settings.bake(recipe, with(words, "steps=1")),
      { write = silent })))
    weights = "ckpt_path=" .. dir.path .. "/runs/001-small"
  end)
  teardown(function() dir:remove() end)

  local SEARCH <const> = { "batch_search.step_time=20", "batch_search.spread={'small': {1: 3}}" }
  local function words_of(name, ...)
    local more = name == "batch_search" and SEARCH
      or name == "eval_loss" and { weights, "mask_ratios=none" } or { "save_text_features=true" }
    return with(with(words, "job=" .. name, ...), table.unpack(more))
  end

  local function signal(name, where, ...)
    return signalled(name, where, { "train", recipe, table.unpack((words_of(...))) })
  end

  it("ends at the first signal at any point, and writes nothing", function()
    -- an endless loop in functions that catch errors; every second time they catch this one
    local cases = {
      { "extract", "moonreel.models.pipeline", "of" },
      { "eval_loss", "moonreel.sample", "open" },
      { "eval_loss", "moonreel.trainer.samples", "open_loader" },
      { "batch_search", "moonreel.trainer.setup", "models" },
      { "batch_search", "moonreel.job.batch_search", "measure" },
    }
    for i, case in ipairs(cases) do
      local name, exit = table.unpack(i % 2 == 0 and { "INT", 130 } or i == 3 and { "HUP", 129 }
        or { "TERM", 143 })
      local r = signal(name, ([[
        local room, name = require(%q), %q
        local real, pcall = room[name], %s
        room[name] = function(...)
          pcall(function() send() while true do end end)
          return real(...)
        end]]):format(case[2], case[3], i % 2 == 0 and "pcall" or "function(f) f() end"), case[1],
        i == 1 and "cache=" .. dir.path .. "/none" or "threads=1")
      assert.equal(exit, r.exit, r.output)
      assert.matches("stop requested: nothing is written\n$", r.output)
    end
    assert.same({ "001-small" }, base.list_dir(dir.path .. "/runs"))
    assert.is_false(base.exists(dir.path .. "/none"))
  end)

  it("keeps the finished part of a cache, and makes no part of it twice", function()
    local COUNT <const> = [[
      local codec, made = require "moonreel.codec", 0
      require("moonreel.job.extract").commit_bytes = %d
      local new = codec.new
      function codec.new(...)
        local one = new(...)
        return setmetatable({ close = function() one:close() end, encode = function(_, ...)
          if made == %d then send() while true do end end
          made = made + 1
          return one:encode(...)
        end }, { __index = function(_, name)
          local value = one[name]
          return type(value) == "function" and function(_, ...) return value(one, ...) end or value
        end })
      end
      local exit = os.exit
      function os.exit(...) io.stderr:write("made ", made, "\n") exit(...) end]]
    local function extract(most, path, bytes)
      local r = signal("TERM", COUNT:format(bytes or 1 << 26, most), "extract", "cache="
        .. dir.path .. "/" .. path)
      return r.exit, math.tointeger(r.output:match("made (%d+)")), r.output
    end
    local code, whole, report = extract(-1, "whole")
    assert.equal(0, code, report)
    -- batches of 2 and 3: within one, after one
    local made = 0
    for _, most in ipairs { 0, 1, 4, 5, -1 } do
      local n
      -- without a commit before the stop, and with one after each batch
      code, n, report = extract(most, "stopped", most > 4 and 1 or nil)
      assert.equal(most < 0 and 0 or 143, code, report)
      assert.matches(most < 0 and "done: " or ("stop requested: %s samples are kept; the same "
        .. "command continues"):format(most > 4 and "[1-9]%d*" or "%d+"), report)
      made = made + n
    end
    assert.equal(whole, made)
    local one <close> = store.open(dir.path .. "/whole/1-of-1", { verify = true })
    local two <close> = store.open(dir.path .. "/stopped/1-of-1", { verify = true })
    assert.equal(one:fingerprint(), two:fingerprint())
    assert.equal(0, (job.run(settings.bake(recipe, words_of("extract",
      "cache=" .. dir.path .. "/stopped")), { write = silent })))
  end)
end)
