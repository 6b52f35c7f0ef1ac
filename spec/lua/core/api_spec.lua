--- Documentation of the bindings: each function has an entry, and each entry has text.
-- Covers: core/bind/api.c core/bind/bind.c
local api = require "moonreel.core.api"
local T = require "moonreel.core.tensor"

-- all rooms of the core, opened, so that their types exist
local rooms = {}
for name in pairs(package.preload) do
  if name:match("^moonreel%.core%.") then
    rooms[name] = require(name)
  end
end

describe("the entries of the bindings", function()
  local faces = api.faces()

  local function row_of(face, name)
    for _, row in ipairs(face.rows) do
      if row.name == name then
        return row
      end
    end
  end

  it("name each function of each module", function()
    for name, module in pairs(rooms) do
      -- ops have entries of their own kind
      for key, value in pairs(name == "moonreel.core.op" and {} or module) do
        local row = faces[name] and row_of(faces[name], key)
        assert.is_truthy(row, ("%s.%s has no row"):format(name, key))
        if type(value) == "function" then
          assert.equal(value, row.call)
        end
      end
    end
  end)

  it("name each method of each type, with the function that runs", function()
    local t, seen = T.new("f32", { 1 }), 0
    for _, row in ipairs(faces["mr.Tensor"].rows) do
      if row.call and not row.name:match("^__") then
        assert.equal(row.call, t[row.name], row.name)
        seen = seen + 1
      end
    end
    assert.is_true(seen > 12)
    local registry = debug.getregistry()
    for name, meta in pairs(registry) do
      if type(name) == "string" and name:match("^mr%.") and type(meta) == "table"
          and type(meta.__index) == "table" and faces[name] then
        for key, f in pairs(meta.__index) do
          local row = row_of(faces[name], key)
          assert.is_truthy(row, ("%s:%s has no row"):format(name, key))
          assert.equal(f, row.call)
        end
      end
    end
  end)

  it("have a signature and a sentence each", function()
    for name, face in pairs(faces) do
      assert.matches("%w.*%.$", face.doc, name)
      for _, row in ipairs(face.rows) do
        local where = name .. "." .. row.name
        assert.matches("[%.%?]$", row.doc, where)
        if row.call then
          assert.matches("^%(.*%)", row.type, where)
        else
          assert.is_nil(row.type:match("^%("), where)
        end
        -- a function with a table of options says so in its signature, and each option has a
        -- sentence
        if row.options then
          assert.matches("options%??: table", row.type, where)
          for _, option in ipairs(row.options) do
            assert.matches("%.$", option.doc, where .. " " .. option.name)
            assert.is_string(option.type)
          end
        else
          assert.is_nil(row.type:match("options"), where)
        end
      end
    end
  end)

  it("contain the options with their kinds and defaults", function()
    local fields = {}
    for _, option in ipairs(row_of(faces["moonreel.core.media"], "decode").options) do
      fields[option.name] = option
    end
    assert.same({ name = "interval", type = "integer", default = 1,
      doc = "Step from one returned frame to the next." }, fields.interval)
    assert.is_nil(fields.filter.default)
    assert.equal("string", fields.filter.type)
  end)

  it("of a type that owns resources include close()", function()
    local close = row_of(faces["mr.Tensor"], "close")
    local t = T.new("f32", { 1 })
    assert.equal(close.call, t.close)
    t:close()
    t:close()
    assert.has_error(function() return t.shape end)
    assert.equal("mr.Tensor (closed)", tostring(t))
  end)
end)
