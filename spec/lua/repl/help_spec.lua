--- help(f) of a function that a user wrote: its head line, the comment above it, and its place.
local folder = require "spec.support.folder"
local help = require "moonreel.repl.help"

describe("help of a user's function", function()
  it("is its head line, the comment above it, and its file and line", function()
    local dir <close> = folder.new()
    local path = dir:write("mine.lua", "local x\n-- Doubles a number.\n-- Any number will do.\n"
      .. "  function twice(n)\n  return 2 * n\nend\nreturn twice\n")
    local twice = dofile(path)
    assert.equal("function twice(n)\n  Doubles a number.\n  Any number will do.\n  ("
      .. debug.getinfo(twice, "S").short_src .. ":4)", help.of_function(twice))
  end)

  it("is its place alone when its file is gone or its text came from a string", function()
    local dir <close> = folder.new()
    local gone = dofile(dir:write("gone.lua", "-- Returns one.\nreturn function() return 1 end\n"))
    os.remove(dir.path .. "/gone.lua")
    assert.equal("function, " .. debug.getinfo(gone, "S").short_src .. ":2", help.of_function(gone))
    assert.equal('function, [string "return function() end"]:1',
      help.of_function(load "return function() end"()))
    assert.is_nil(help.of_function(print))
  end)
end)
