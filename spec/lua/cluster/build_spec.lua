--- The build of each host: a hash of the program and of each plug-in.
local base = require "moonreel.core.base"
local build = require "moonreel.cluster.build"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

local dir = folder.new()
teardown(function() dir:remove() end)

describe("a build", function()
  local here = { program = "abcdef0123", plugins = "cuda=11112222aa media=33334444bb" }
  local function there(program, plugins)
    return build.other({ version = "9", program = program, plugins = plugins }, here)
  end

  it("equals another build when the program and all common plug-ins are equal", function()
    assert.is_nil(there("abcdef0123", "media=33334444bb cuda=11112222aa"))
    -- hosts without GPUs may lack a plug-in; older helpers do not report plug-ins
    assert.is_nil(there("abcdef0123", "media=33334444bb mpi=55"))
    assert.is_nil(there("abcdef0123", ""))
    assert.is_nil(there("abcdef0123", nil))
    assert.is_nil(build.other(setmetatable({ version = "1" }, { __index = build.here() })))
  end)

  it("differs when the program or a plug-in differs, and the error names which", function()
    assert.equal("another build of moonreel (9, fedcba98) than here (abcdef01); try: the same "
      .. "program on all hosts", there("fedcba9876", here.plugins))
    assert.equal("another build of moonreel's media plug-in (9, 33334445) than here (33334444); "
      .. "try: the same program on all hosts",
      there("abcdef0123", "cuda=11112222aa media=33334445bb"))
  end)

  it("hashes the contents of the plug-ins that are installed", function()
    -- each call is a process of its own, because a process reads the plug-ins once
    local function plugins()
      local done = process.run({ "/usr/bin/env", "MOONREEL_PLUGINS=" .. dir.path,
        process.program(), "-e", "require('moonreel.cluster.build').here().plugins" }, "")
      return done.output
    end
    local path = dir:write("libmoonreel_media.so", "one")
    local one = plugins()
    assert.matches("media=" .. base.hash128 "one", one)
    base.replace_file(path, "two")
    assert.matches("media=" .. base.hash128 "two", plugins())
    base.replace_file(path, "one")
    assert.equal(one, plugins())
  end)
end)
