--- The console in a real terminal (tmux): the contents of the screen. Skipped without tmux or
-- libedit. #terminal
-- Covers: core/bind/edit.c core/bind/signal.c
local base = require "moonreel.core.base"
local process = require "moonreel.core.process"

local has_tmux = os.execute("command -v tmux >/dev/null 2>&1")

describe("the console in a terminal #terminal", function()
  if not has_tmux then
    pending("tmux is missing")
    return
  end
  local dir, socket

  local function tmux(...)
    local words = {}
    for i, word in ipairs { ... } do
      words[i] = "'" .. tostring(word):gsub("'", "'\\''") .. "'"
    end
    local pipe = io.popen(("tmux -S '%s' -f /dev/null %s 2>&1"):format(socket,
      table.concat(words, " ")))
    local text = pipe:read("a")
    pipe:close()
    return text
  end

  local function screen() return (tmux("capture-pane", "-p", "-S", "-200")) end

  --- Waits until the screen shows a text; a busy machine has a minute for it.
  local function see(text)
    for _ = 1, 1200 do
      if screen():find(text, 1, true) then
        return
      end
      os.execute("sleep 0.05")
    end
    error(("not on the screen: %s\n%s"):format(text, screen()), 2)
  end

  local function type_text(text) tmux("send-keys", "-l", text) end
  local function key(...) tmux("send-keys", ...) end
  local function enter(text)
    type_text(text)
    key "Enter"
  end

  -- `how`: words before the command
  local function start(how, ...)
    local words = { ... }
    words[#words + 1] = ("env MOONREEL_LUA=%s MOONREEL_HISTORY=%s/history NO_COLOR=1 %s %s repl; "
      .. "echo the prompt has ended; sleep 600"):format(
      os.getenv "MOONREEL_LUA" or "", dir, process.program(), how)
    tmux(table.unpack(words))
    see "help() for help"
  end

  setup(function()
    dir = os.tmpname()
    os.remove(dir)
    base.make_dir(dir)
    socket = dir .. "/tmux"
    -- a tensor of 1 GB, in a hole of a sparse file
    local head =
      '{"big":{"dtype":"F32","shape":[250000000],"data_offsets":[0,1000000000]},"blocks.0.w":{"dtype":"F32","shape":[1],"data_offsets":[1000000000,1000000004]}}'
    head = head .. (" "):rep(-#head % 8)
    local file = assert(io.open(dir .. "/big.safetensors", "wb"))
    file:write(string.pack("<I8", #head), head)
    file:close()
    os.execute(("truncate -s %d '%s/big.safetensors'"):format(8 + #head + 1000000004, dir))
    start("", "new-session", "-d", "-x", "100", "-y", "40")
  end)
  teardown(function()
    tmux "kill-server"
    base.remove_dir(dir)
  end)

  it("completes names, methods and tensor names", function()
    enter(('ckpt = open("%s/big.safetensors")'):format(dir))
    enter "'opened ' .. #ckpt:names()"
    see '"opened 2"'
    type_text "ckpt:momen"
    key "Tab"
    see "> ckpt:moments"
    key "C-u"
    type_text 'ckpt["blo'
    key "Tab"
    see 'ckpt["blocks.0.w'
    key "C-u"
    type_text "ops.layer_norm_mod"
    key "Tab"
    see "> ops.layer_norm_modulate"
    key "C-u"
  end)

  it("recalls history, also of an earlier session, from a private file", function()
    enter "111 + 222"
    see "333"
    key "Up"
    key "Home"
    type_text "1000 + "
    key "Enter"
    see "1333"
    local pipe = io.popen(("stat -c %%a '%s/history'"):format(dir))
    assert.equal("600", pipe:read("l"))
    pipe:close()
    assert.matches("111 %+ 222\n", base.read_file(dir .. "/history"))
    -- a concurrent session has the lines of the first one, and adds to them
    start("", "new-window")
    key "Up"
    see "> 1000 + 111 + 222"
    key "C-u"
    enter "5000 + 55"
    see "5055"
    tmux "kill-window"
    assert.matches("1000 %+ 111 %+ 222\n5000 %+ 55\n$", base.read_file(dir .. "/history"))
  end)

  it("reads several lines, shows help and plots", function()
    enter "for i = 1, 2 do"
    see ".."
    enter "print('line ' .. i * 7)"
    enter "end"
    see "line 14"
    enter 'help("linear")'
    see "x times the transpose of w"
    enter "plot({0, 5, 1, 4})"
    see "▀"
    key "C-l"
    -- this terminal reports that it has no sixel
    enter "imshow(T.from({2, 4}, {0, 1, 1, 0, 1, 0, 1, 1}))"
    see "▒▒█▒"
    enter "hist({1, 2, 2, 3}, {bins = 3})"
    see "4 values in 3 bins"
  end)

  it("loses no line that is pasted after a first picture", function()
    start("", "new-window")
    local lines = { "imshow(T.from({2, 4}, {0, 1, 1, 0, 1, 0, 1, 1}))" }
    for i = 1, 9 do
      lines[#lines + 1] = ("print('pasted ' .. %d * 11)"):format(i)
    end
    type_text(table.concat(lines, "\n") .. "\n")
    see "pasted 99"
    local shown = screen()
    for i = 1, 9 do
      assert.is_truthy(shown:find(("\npasted %d "):format(i * 11), 1, true)
        or shown:find(("\npasted %d\n"):format(i * 11), 1, true), shown)
    end
    tmux "kill-window"
  end)

  it("stops a Lua loop and a scan of 1 GB on Ctrl-C", function()
    for i, code in ipairs { "while true do end", 'for i = 1, 100 do ckpt:stats("big") end' } do
      key "C-l"
      enter(("busy = 1; print('be' .. 'gun %d'); "):format(i) .. code)
      see("begun " .. i) -- the text of the other one may still be on the screen
      tmux("clear-history")
      key "C-c"
      see "stopped by Ctrl-C"
      enter "busy + 41"
      see "42"
      key "C-l"
    end
  end)

  it("drops a line on Ctrl-C and exits only on Ctrl-D", function()
    type_text "half a line"
    see "half a line"
    key "C-c"
    see "half a line\n>"
    enter "6 * 111"
    see "666"
    key "C-d"
    see "\nthe prompt has ended"
  end)

  it("runs on all ranks, and Ctrl-C stops their code, but no rank", function()
    start("-n 2", "new-window")
    see "2 ranks run what is typed"
    enter "print('be' .. 'gun'); while true do end"
    see "begun\nbegun"
    key "C-c"
    see "rank 1: stopped by Ctrl-C"
    type_text "half a line"
    see "half a line"
    key "C-c"
    see "half a line\n>"
    enter "comm.world():all_gather(T.from({1}, {comm.world():rank() + 7}))"
    see "7  8"
    key "C-d"
    see "\nthe prompt has ended"
  end)
end)
