--- The history file: several sessions write it, and no other user can read it.
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

describe("the history of the console", function()
  local dir, path
  before_each(function()
    dir = folder.new()
    path = dir.path .. "/history"
  end)
  after_each(function() dir:remove() end)

  local code = [[local edit = require "moonreel.core.edit"
    edit.history(%q)
    for i = 1, 300 do edit.remember(%q, "%s line " .. i .. (" and more"):rep(i %% 40)) end]]

  -- two sessions at the same time; the lines of each in order
  local function both()
    local words = {}
    for i, name in ipairs { "first", "second" } do
      words[i] = ("'%s' -e '%s' &"):format(process.program(), code:format(path, path, name))
    end
    local done = process.run({ "/bin/sh", "-c", table.concat(words, "\n") .. "\nwait" },
      "", { deadline_s = 600 })
    assert.equal(0, done.exit)
    local last = { first = 0, second = 0 }
    for name, i, rest in base.read_file(path):gmatch("(%l+) line (%d+)([^\n]*)\n") do
      i = math.tointeger(i)
      assert.equal(last[name] + 1, i)
      assert.equal((" and more"):rep(i % 40), rest)
      last[name] = i
    end
    assert.same({ first = 300, second = 300 }, last)
  end

  it("keeps each line of two sessions whole, and is readable by its owner only", function()
    both()
    local done = process.run({ "/usr/bin/stat", "-c", "%a", path }, "")
    assert.equal("600\n", done.output)
  end)

  it("loses no line while another session removes old ones", function()
    dir:write("history", ("old\n"):rep(10001))
    both()
    assert.is_true(select(2, base.read_file(path):gsub("old\n", "")) <= 5000)
  end)

  it("is not written through a link", function()
    dir:write("other", "untouched\n")
    os.execute(("ln -s '%s/other' '%s'"):format(dir.path, path))
    assert.is_false((pcall(require("moonreel.core.edit").remember, path, "x")))
    assert.equal("untouched\n", base.read_file(dir.path .. "/other"))
  end)
end)
