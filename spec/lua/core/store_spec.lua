--- Values under keys, in Lua.
-- Covers: core/bind/store.c
local T = require "moonreel.core.tensor"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local store = require "moonreel.core.store"

describe("moonreel.core.store", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  it("stores bytes and dense tensors, and returns them", function()
    local path = dir.path .. "/one"
    local t = T.from({ 2, 3 }, { 1, 2, 3, 4, 5, 6 })
    do
      local w <close> = store.create(path)
      w:put("a\0b", t)
      w:put("c", "")
      assert.is_true(w:has "c")
      assert.is_false(w:has "a")
      assert.is_true(w:waiting() > 24)
      w:commit("how far", "two")
      assert.equal(2, #w)
      assert.equal(0, w:waiting())
      fails("MR_E_SHAPE", "expected a dense tensor", w.put, w, "d", t:transpose())
      fails("MR_E_USAGE", "has a value already", w.put, w, "c", "more")
      w:finish()
    end
    local s <close> = store.open(path, { verify = true })
    assert.equal(2, #s)
    assert.equal("two", s:text "how far")
    assert.is_nil(s:text "nothing")
    assert.equal(t:bytes(), s:get "a\0b")
    assert.equal("", s:get "c")
    assert.is_nil(s:get "d")
    assert.equal("a\0b", s:seek "")
    assert.equal("c", s:seek "b")
    assert.is_nil(s:seek "d")
    assert.equal(32, #s:fingerprint())
    -- copies as much as both hold; bytes after that are unchanged
    local wide = T.from({ 8 }, { 9, 9, 9, 9, 9, 9, 9, 9 })
    assert.equal(24, s:read("a\0b", wide))
    assert.same({ 1, 2, 3, 4, 5, 6, 9, 9 }, wide:totable())
    local short = T.new("f32", { 2 })
    assert.equal(24, s:read("a\0b", short))
    assert.same({ 1, 2 }, short:totable())
    assert.is_nil(s:read("d", short))
    fails("MR_E_SHAPE", "expected a dense tensor", s.read, s, "a\0b", wide:reshape { 2, 4 }
      :transpose())
    fails("MR_E_USAGE", "already exists", store.create, path)
  end)
end)
