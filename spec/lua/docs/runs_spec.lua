--- docs/runs.md, followed as by a reader.
local csv = require "moonreel.text.csv"
local page = require "spec.support.page"

describe("docs/runs.md", function()
  it("has each option of its commands", function()
    local text = require("moonreel.core.base").read_file "docs/runs.md"
    for _, name in ipairs { "note", "runs", "log", "watch" } do
      for _, option in ipairs(require("moonreel.cli." .. name).options or {}) do
        local word = option[1]:match "%-%-[%w-]+" or option[1]
        -- it says what else to use
        assert.is_true(word == "--expnums" or text:find(word, 1, true) ~= nil, name .. " " .. word)
      end
    end
  end)

  it("leads through the week of a run, from an empty folder", function()
    local outputs = {}
    -- two more lines describe the files, and renderings take few steps
    local done = page.follow("docs/runs.md", { change = function(words)
      local file = words:match("> (base%.%l+)$")
      return file and words .. "\ncat " .. file
        or (words:gsub("^moonreel watch base", "%0 --steps 2"))
    end })
    for _, one in ipairs(done) do
      assert.equal(0, one.exit, one.words .. ": " .. one.output)
      outputs[one.words:match("^moonreel (.*)$")] = one.output
    end
    assert.equal(28, #done)
    for words, pattern in pairs { ["runs"] = "\n001%-base +finished +30 of 30 ",
      ["log base --follow"] = "step 30/30 .*done: step 30",
      ["runs 'optim.lr<1e-3'"] = "^name[^\n]*\n002%-low +finished [^\n]*\n$",
      ["runs state=finished name~base"] = "\n001%-base [^\n]*first try, with the rate",
      ["runs --compare base low"] = "optim.lr +0.001 +0.0005\n.*loss by step\n",
      ["runs --tree"] = "^001%-base  finished  step 40 of 40 [^\n]*\n├─ launch 2 continues at "
        .. "step 30\n└─ 002%-low .*%-%-load 001%-base@20\n$",
      ["log base --time"] = "\nended or stopped, until the next launch ",
      ['watch base --frames 1 --size 64x64 --raw --last-step 20 --prompt "a green triangle"'] =
        "^step 30  1x64x64  [%d.]+ s  outputs/001%-base/samples/step30/1x64x64\n[^\n]*step 40",
      ["order base --audit"] = "40 steps, [%d,]+ samples of %d epochs?: each step has the samples",
      ["ckpt bisect base -- sh -c 'test \"$MOONREEL_CKPT\" \\< "
        .. "outputs/001-base/ckpt/step-000000000030'"] = "the first bad one: step 30, ",
      ["log base --worst --count 5"] = "\ntry: moonreel data preview " } do
      assert.matches(pattern, outputs[words], words)
    end
    local rows = csv.rows(outputs["log base --export csv > base.csv"], "csv")
    assert.same({ 40, "40" }, { #rows, rows[40].step })
    assert.equal(40, select(2, outputs["log base --export json > base.jsonl"]:gsub("\n", "")))
  end)
end)
