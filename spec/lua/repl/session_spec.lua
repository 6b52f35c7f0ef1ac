--- The console without a terminal: input, results, tensors, help, completion.
-- Covers: lua/moonreel/repl/chunk.lua lua/moonreel/repl/complete.lua lua/moonreel/repl/help.lua
-- lua/moonreel/repl/init.lua lua/moonreel/repl/names.lua lua/moonreel/text/clean.lua
local repl = require "moonreel.repl"
local base = require "moonreel.core.base"
local printed = require "spec.support.printed"

describe("the console", function()
  local session
  before_each(function() session = repl.new() end)

  -- types lines; returns the state after the last one and all output
  local function feed(...)
    local text, state = printed(function(...)
      local state
      for _, line in ipairs { ... } do
        state = session:feed(line)
      end
      return state
    end, ...)
    return state, text
  end

  it("prints expressions without return and keeps the last one in _", function()
    local state, text = feed("1 + 1", "_ * 10", "x = 5", "x, 'a'")
    assert.equal("done", state)
    assert.equal('2\n20\n5\t"a"', text)
  end)

  it("keeps top-level locals as the variables that closures see", function()
    local _, text = feed("local n, m <const> = 1, 7", "function bump() n = n + 1 end",
      "bump()", "bump()", "n", "n = 10", "bump()", "n + m",
      "local function twice(x) return 2 * x end", "twice(n)")
    assert.equal("3\n18\n22", text)
    -- a local of a block stays local to it
    assert.equal("nil",
      (select(2, feed("do local inner = 3 end", "tostring(inner)")):gsub('"', "")))
  end)

  it("reads more lines until the input is complete", function()
    assert.equal("more", (feed("for i = 1, 2 do")))
    assert.equal("more", (feed("  print(i)")))
    local state, text = feed("end")
    assert.equal("done", state)
    assert.equal("1\n2", text)
    assert.equal("more", (feed("y = [[a")))
    assert.equal("done", (feed("b]]")))
    assert.equal("failed", (feed("x = = 2")))
  end)

  it("prints errors with their traceback, and continues", function()
    local state, text = feed("error('boom')")
    assert.equal("failed", state)
    assert.equal("prompt:1: boom", text)
    assert.matches("stack traceback", (select(2, feed("trace()"))))
    assert.equal("2", (select(2, feed("1 + 1"))))
  end)

  it("never sends control characters of a text to the terminal", function()
    local _, text = feed([[("\27]0;title\7\u{202e}x\u{9b}31m\xff")]], [[error("a\27[31mb")]],
      [[{["\27k"] = "\8"}]])
    assert.is_nil(text:find("[%z\1-\8\11-\31\127]"))
    assert.is_nil(text:find("\u{202e}", 1, true))
    assert.is_nil(text:find("\u{9b}", 1, true))
    assert.matches("\\x1b%]0;title\\x07", text)
    -- printable characters stay printable
    assert.equal('"größer 漢字"', (select(2, feed([["größer 漢字"]]))))
  end)

  it("prints tensors with shape, dtype, corners and distribution", function()
    local _, text = feed('t = T.from({2, 10, 3}, (function() local x = {} for i = 1, 60 do x[i] = '
      .. 'i end return x end)())', "t")
    assert.matches("tensor %[2, 10, 3%] f32 cpu", text)
    assert.matches("at %[0, :, :%]", text)
    assert.matches(" 28   29   30", text)
    assert.matches("1 ▕.*▏ 60   mean 30.5", text)
    local _, slice = feed('t["1, 2:4, 0"]', "t[1].shape", "t[\"0, 0, 2\"]")
    assert.matches("  37  40", slice)
    assert.matches("{ 10, 3 }", slice)
    assert.matches("\n3.0$", slice)
  end)

  it("draws lines, bars and pictures, and saves them as PNG", function()
    local _, text = feed("plot({0, 1, 2, 3, 2, 1, 0})")
    assert.matches("▀▀", text)
    assert.matches("3 ▏", text)
    assert.matches("▄", (select(2, feed("hist(T.new('f32', {100}):fill_normal(1, 'h'))"))))
    local dir = os.tmpname()
    os.remove(dir)
    base.make_dir(dir)
    for _, call in ipairs { "plot({1, 5, 2}, {png = %q})", "hist({1, 2, 2}, {png = %q})",
        "imshow(T.new('u8', {3, 20, 30}), {png = %q})",
      "T.new('f32', {20, 30}):save(%q)" } do
      local path = dir .. "/x.png"
      assert.equal("done", (feed(call:format(path))))
      local facts = require("moonreel.data").scan(path)
      assert.is_true(facts.width >= 30 and facts.image)
      os.remove(path)
    end
    feed(("T.from({2, 2}, {1, 2.5, 3, 4}):save(%q)"):format(dir .. "/x.csv"))
    assert.equal("1,2.5\n3,4\n", base.read_file(dir .. "/x.csv"))
    feed(("T.from({2, 2}, {1, 2.5, 3, 4}, 'bf16'):save(%q)"):format(dir .. "/x.safetensors"))
    assert.same({ 1, 2.5, 3, 4 },
      require("moonreel.ckpt").open(dir .. "/x.safetensors").tensor:tensor():totable())
    assert.matches("expected a name that ends in",
      (select(2, feed("T.new('f32', {1}):save('x.doc')"))))
    base.remove_dir(dir)
  end)

  it("builds a small graph, runs it and reads a gradient", function()
    local _, text = feed("g = graph(function(x, w) return ops.linear(x, w) end)",
      "y = g:run{x = T.from({1, 2}, {1, 2}), w = T.from({1, 2}, {3, 4})}",
      "y:item()", "g:grad('w'):totable()", "g:grad('x'):totable()")
    assert.equal("11.0\n{ 1.0, 2.0 }\n{ 3.0, 4.0 }", text)
    assert.matches("the input 'w' is missing", (select(2, feed("g:run{x = y}"))))
    -- also of a function whose output is bf16
    _, text = feed("x = T.from({1, 2}, {1, 2}, 'bf16')", "w = T.from({1, 2}, {3, 4}, 'bf16')",
      "y = g:run{x = x, w = w}", "y:item()", "g:grad('w'):totable()")
    assert.equal("11.0\n{ 1.0, 2.0 }", text)
  end)

  it("helps with ops, fields, functions, values and names", function()
    local function help(x) return select(2, feed(("help(%s)"):format(x))) end
    assert.matches("ops%.linear%(x, w, b%) %-> y", help '"linear"')
    assert.matches("ops%.silu", help "ops.silu")
    assert.matches("optim%.lr: ", help '"optim.lr"')
    assert.matches("Writes one picture as PNG", help "data.png")
    assert.matches("^mr%.Tensor: .*\n.* hist .* shape .* stats .*transpose",
      help "T.new('f32', {1})")
    -- the entries of the bindings: of a module, of a method, of a device; by value and by name
    assert.matches("^T%.new%(dtype, dims%) %-> mr%.Tensor\n  A tensor of zeros%.\n"
      .. "  dtype +mr%.Dtype\n  dims +integer%[%]$", help "T.new")
    assert.equal(help "T.new", help '"T.new"')
    assert.matches("^tensor:slice%(axis, start, stop%) %-> mr%.Tensor", help "T.methods.slice")
    assert.matches("^E%.device%(%[name %[, threads%]%]%) %-> mr%.Device", help "E.device")
    assert.matches("poison +boolean = false +Fill the arena", help "E.new")
    assert.matches("^moonreel%.core%.base%.hash128%(text%)",
      help 'require("moonreel.core.base").hash128')
    -- options that Lua functions declare
    assert.matches("prefetch +integer = 2 +batches decoded ahead", help "data.loader")
    assert.matches("bins +integer = 32", help "hist")
    assert.matches("^function Tensor:hist%(bins%)", help "T.methods.hist")
    assert.equal("a function of Lua itself", help "string.rep")
    -- the methods of a type are listed under the type
    local clip = setmetatable({}, { __name = "x.Y", __methods = { walk = true },
      __index = function() end })
    assert.same({ "walk" }, require("moonreel.repl.help").members(clip))
    assert.matches("did you mean 'linear'", help '"linaer"')
    assert.matches("plot%(x", help "plot")
    assert.matches("moonreel%.data: Clips", help "data")
  end)

  it("completes names, fields, methods, ops, locals and tensors of the checkpoint", function()
    local complete = require "moonreel.repl.complete"
    feed("local cat_local = {field_one = 1}", "t = T.new('f32', {2})")
    local function words(line)
      local word = line:match('[^%s"\'(){},=]*$')
      return table.concat(complete.words(session, line, #line - #word + 1, #line), " ")
    end
    assert.equal("cat_local", words "x = cat_l")
    assert.equal("cat_local.field_one", words "cat_local.f")
    assert.equal("t:stats", words "t:sta")
    assert.equal("t.shape", words "t.shap")
    assert.equal("", words "t:shap")
    assert.equal("T.new", words "T.ne")
    assert.equal("t:transpose", words "t:trans")
    assert.equal("ops.layer_norm ops.layer_norm_modulate", words "ops.layer_n")
    assert.equal("imshow", words "imsh")
    assert.equal("linear linear_f8", words 'help("linea')
    assert.equal("optim.lr", words 'why("optim.lr')
    assert.equal("", words "nosuch.f")
    -- only what can follow a dot
    feed('odd = { ["a b"] = 1, ["end"] = 2, ["x\\n"] = 3, [4] = 4, good = 5 } _ENV["odd 1"] = 1')
    assert.equal("odd.good", words "odd.")
    assert.equal("odd", words "od")
    assert.equal("end", words "en")
    session.env.ckpt = setmetatable({ names = function()
      return { "blocks.10.w", "blocks.2.w", "blocks.2.b", "head" }
    end }, { __name = "mr.Checkpoint" })
    assert.equal("blocks.2. blocks.10.", words 'ckpt:stats("blocks.')
    assert.equal("blocks.2.b blocks.2.w", words 'ckpt["blocks.2')
  end)

  it("stops a Lua loop, a pcall loop, a coroutine and a scan on Ctrl-C, and continues", function()
    -- The signal comes from outside during the code, which would never end. os.execute would ignore
    -- it until its shell has ended.
    local shells = {}
    function session.env.interrupt()
      shells[#shells + 1] = io.popen(("sleep 0.1; kill -INT %d"):format(base.pid()))
    end
    local function stopped(code)
      local state, text = feed("interrupt() " .. code)
      assert.equal("stopped", state)
      assert.matches("stopped by Ctrl%-C", text)
      assert.equal("2", (select(2, feed("1 + 1"))))
    end
    stopped "while true do end"
    stopped "while true do pcall(function() while true do end end) end"
    stopped "coroutine.wrap(function() while true do end end)()"
    stopped "local a = T.new('f32', {1 << 22}) while true do a = a + a end"
    stopped "local a = T.new('f32', {1 << 24}) while true do a:stats() end"
    -- a single call, which ends before it is done
    feed "big = T.new('f32', {6000, 6000})"
    stopped "big:fill_normal(1, 'x')"
    assert.equal("0.0\n", (select(2, feed 'big["-1, -1"]')) .. "\n")
    feed "big:close()"
    for _, shell in ipairs(shells) do
      shell:close()
    end
  end)
end)
