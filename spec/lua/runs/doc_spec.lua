--- docs/runs.md by copy and paste: every line of its blocks is run, in order, in one folder.
local base = require "moonreel.core.base"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

describe("docs/runs.md", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  it("leads through the week of a run", function()
    local ran, outputs = 0, {}
    -- a small model of the same name, which trains on less
    dir:write("demo.lua", [[return recipe.extend("tiny/demo") { model = { depth = 1,
      hidden_size = 32, num_heads = 2, caption_channels = 32 }, text_encoder = { width = 32 },
      bucket_config = recipe.replace { ["32px"] = { [6] = { 1.0, 2 } } },
      threads = 1, num_workers = 1 }]])
    local bin = process.program():match("^(.*)/")
    for line in base.read_file("docs/runs.md"):gmatch("\n    (moonreel [^\n]+)") do
      local words = line:gsub("demo%.mrx", demo_data.path()):gsub("tiny/demo", "./demo")
      local done = process.run({ "/bin/sh", "-c", ("cd '%s' && PATH=%s:$PATH NO_COLOR=1 && "
        .. "export PATH NO_COLOR\n{ %s\n} 2>&1"):format(dir.path, bin, words) }, "",
        { deadline_s = 600 })
      assert.equal(0, done.exit, line .. ": " .. done.output)
      ran = ran + 1
      outputs[line:match("^moonreel (.*)$")] = done.output
    end
    assert.equal(20, ran)
    for words, pattern in pairs { ["runs"] = "\n001%-base +finished +30 of 30 ",
      ["log base --follow"] = "step 30/30 .*done: step 30",
      ["runs 'optim.lr<1e-3'"] = "^name[^\n]*\n002%-low +finished [^\n]*\n$",
      ["runs state=finished name~base"] = "\n001%-base [^\n]*first try, with the rate",
      ["runs --compare base low"] = "optim.lr +0.002 +0.0005\n.*loss by step\n",
      ["runs --tree"] = "^001%-base  finished  step 40 of 40 [^\n]*\n├─ launch 2 goes on at "
        .. "step 30\n└─ 002%-low .*%-%-load 001%-base@20\n$",
      ["log base --time"] = "\nstopped on request ",
      ["order base --audit"] = "40 steps, 80 samples of 1 epoch: each step has the samples",
      ["log base --worst --count 5"] = "\ntry: moonreel data preview " } do
      assert.matches(pattern, outputs[words], words)
    end
    local rows = require("moonreel.text.csv").rows(base.read_file(dir.path .. "/base.csv"), "csv")
    assert.same({ 40, "40" }, { #rows, rows[40].step })
    assert.equal(40, select(2, base.read_file(dir.path .. "/base.jsonl"):gsub("\n", "")))
  end)
end)
