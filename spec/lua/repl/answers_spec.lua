--- The console's answers to commands of other consoles, to unknown names and to wrong arguments.
-- Covers: lua/moonreel/repl/init.lua lua/moonreel/repl/names.lua lua/moonreel/repl/offered.lua
local T = require "moonreel.core.tensor"
local folder = require "spec.support.folder"
local help = require "moonreel.repl.help"
local made_run = require "spec.support.made_run"
local names = require "moonreel.repl.names"
local printed = require "spec.support.printed"
local repl = require "moonreel.repl"

describe("the console answers", function()
  local session
  before_each(function() session = repl.new(nil, require("moonreel.cli.commands").find) end)

  local function feed(line)
    local text, state = printed(session.feed, session, line)
    session.pending = nil
    return text, state
  end

  it("help, exit and quit with and without parentheses", function()
    local page = feed "help()"
    assert.matches("\n  exit +leave the prompt", page)
    assert.equal(page, (feed "help"))
    assert.equal(feed 'help("linear")', (feed "help linear"))
    assert.matches("^optim%.lr: ", (feed "help optim.lr"))
    for _, line in ipairs { "exit", "quit", "exit()", "quit()", "for i = 1, 2 do exit() end" } do
      assert.same({ "", "left" }, { feed(line) }, line)
    end
    -- a variable of the user overrides the console's name
    assert.same({ "3", "done" }, { feed "exit = 3; return exit" })
  end)

  it("exit by ending the program", function()
    local dir <close> = folder.new()
    local out, err, code = folder.moonreel("repl < " .. dir:write("input", "1 + 1\nexit\n3\n"))
    assert.same({ "2\n", "", 0 }, { out, err, code })
  end)

  it("unknown names with the nearest known one", function()
    for line, want in pairs { foo = "nil: there is no name 'foo' here; help() lists the names",
        ["foo.bar"] = "prompt:1: there is no name 'foo' here; help() lists the names",
        ["opem('x')"] = "prompt:1: there is no name 'opem' here, did you mean 'open'?",
        ["ckpt:ls()"] = "prompt:1: nothing is open as 'ckpt'; try: open(\"CKPT|RUN\")",
        trainer = 'nil: there is no name \'trainer\' here; try: trainer = '
          .. 'require "moonreel.trainer"',
        ["train tiny/demo"] = "prompt:1: syntax error near 'tiny'; 'train' is a command of the "
          .. "shell: moonreel train",
        ["moonreel plan x"] = "prompt:1: syntax error near 'plan'; 'plan' is a command of the "
          .. "shell: moonreel plan",
        ["help hlp"] = "there is no op, field or name 'hlp', did you mean 'help'?" } do
      assert.equal(want, (feed(line)))
    end
    feed "local here = nil"
    assert.equal("", (feed "here"))
    assert.equal("", (feed "nil"))
  end)

  it("a run without a checkpoint with its journal, curve and settings", function()
    local dir <close> = folder.new()
    local path = made_run.make(dir, "001-bare",
      { made_run.start(0), made_run.step(1, 1.0), made_run.step(2, 0.5) })
    names.open_into(session.env, path)
    assert.matches("^run 001%-bare: step 2, loss 0%.5, checkpoints of steps none\nloss",
      (feed "run"))
    assert.equal("2", (feed "#run:journal('step')"))
    assert.equal('"step"', (feed "run:journal()[2].kind"))
    assert.matches("^settings of .*main%.lua", (feed "r"))
    assert.matches("nothing is open as 'ckpt'", (feed "ckpt"))
  end)

  it("modules as modules", function()
    assert.equal('module moonreel.core.tensor; help() about it: help("moonreel.core.tensor")',
      (feed "T"))
    assert.matches("\n  count +from +held", (feed 'help("moonreel.core.tensor")'))
  end)

  it("wrong arguments with the call, without lines of its own files", function()
    local dir <close> = folder.new()
    local path = dir.path .. "/a.safetensors"
    local w = T.new("f32", { 2, 3 }):fill_normal(1, "w")
    require("moonreel.ckpt").write(path, { { name = "blocks.0.w", dtype = "f32", shape = w.shape,
      ptr = w:bytes() } })
    names.open_into(session.env, path)
    names.open_into(session.env, "tiny/demo")
    feed "x = T.from({2}, {1, 2}); g = graph(function(a) return ops.silu(a) end)"
    feed "entry = ckpt['blocks.0.w']; list = ckpt:ls()"
    assert.matches("^wrong arguments for diff%(a, b, .*; trace%(%) shows", (feed "diff(ckpt)"))
    assert.matches("^wrong arguments for info%(name%); trace", (feed "ckpt:info()"))
    assert.equal("a method is called without its object; try a colon: ckpt:ls()",
      (feed "ckpt.ls()"))
    feed "diff(ckpt)"
    assert.matches("compare%.lua:%d+", (feed "trace()"))
    local calls = {}
    for _, row in ipairs(require("moonreel.repl.offered")) do
      if not row[3] then
        calls[#calls + 1] = row[1]
      end
    end
    for _, of in ipairs { "ckpt", "r", "x", "g", "entry", "list" } do
      for _, method in ipairs(help.members(session.env[of])) do
        local found = session.env[of][method]
        if method ~= "close" and type(found) == "function" then
          calls[#calls + 1] = of .. ":" .. method
          calls[#calls + 1] = of .. "." .. method
        end
      end
    end
    assert.is_true(#calls > 80, #calls)
    local failed = 0
    for _, call in ipairs(calls) do
      for _, given in ipairs { "", "nil", "3", '"zz"', "{}", "{ zz = 1 }", "print", "ckpt, 3" } do
        local text, state = feed(("%s(%s)"):format(call, given))
        if state == "failed" then
          failed = failed + 1
          assert.is_nil(text:find("moonreel/[%w_/]+%.lua:%d"), call .. "  " .. text)
          assert.is_nil(text:find("attempt to", 1, true), call .. "  " .. text)
        end
      end
    end
    assert.is_true(failed > 200, failed)
  end)
end)
