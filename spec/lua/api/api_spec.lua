--- Documentation of the bindings as pages and stubs.
-- Covers: lua/moonreel/api/init.lua lua/moonreel/api/page.lua lua/moonreel/api/stubs.lua
local api = require "moonreel.api"
local base = require "moonreel.core.base"
local stubs = require "moonreel.api.stubs"

describe("docs/api.md", function()
  it("is made from the entries", function()
    local text = require("moonreel.api.page").markdown()
    assert.is_true(text == base.read_file("docs/api.md"),
      "rows have changed: moonreel help api --markdown > docs/api.md")
  end)
end)

describe("docs/stubs", function()
  it("are made from the entries, each a valid Lua file, without others", function()
    local files, there = stubs.files(), {}
    for path, text in pairs(files) do
      assert.is_true(base.exists("docs/stubs/" .. path)
        and text == base.read_file("docs/stubs/" .. path),
        path .. ": rows have changed: moonreel help stubs docs/stubs")
      assert.is_truthy(load(text, "=" .. path, "t"), path)
    end
    for _, name in ipairs(base.list_dir "docs/stubs/moonreel/core") do
      there[#there + 1] = name
      assert.is_truthy(files["moonreel/core/" .. name], name .. " belongs to no module")
    end
    local rooms = 0
    for name in pairs(package.preload) do
      rooms = rooms + (name:match("^moonreel%.core%.") and 1 or 0)
    end
    assert.equal(rooms + 1, #there)
  end)
end)

describe("a signature", function()
  it("is parsed into names, types, optional arguments and results", function()
    local arguments, results = api.signature {
      type = "(f: fun(a: integer, b: any): string[], name?: string|number, ...: any): "
        .. "mr.Ckpt, string[]" }
    assert.same({ { name = "f", type = "fun(a: integer, b: any): string[]", optional = false },
      { name = "name", type = "string|number", optional = true },
      { name = "...", type = "any", optional = false } }, arguments)
    assert.same({ "mr.Ckpt", "string[]" }, results)
    assert.same({}, (api.signature { type = "()" }))
  end)

  it("exists for each entry, with names that are valid in Lua", function()
    for name, face in pairs(api.faces()) do
      for _, row in ipairs(face.rows) do
        for _, one in ipairs(row.call and api.signature(row) or {}) do
          assert.is_truthy(one.type and one.name:match("^[%a_][%w_]*$") or one.name == "...",
            name .. "." .. row.name)
        end
      end
    end
  end)

  it("is printed as a call", function()
    local row = { name = "new",
      type = "(device: mr.Device, params?: mr.Params, n?: integer): mr.Exec" }
    assert.equal("E.new(device [, params [, n]]) -> mr.Exec", api.call_text("E.", row))
    assert.equal("t:sync()", api.call_text("t:", { name = "sync", type = "()" }))
  end)

  it("is printed as a value when it is no call", function()
    assert.equal("base.pi: number\n  Half a turn.",
      api.text("base.", { name = "pi", type = "number", doc = "Half a turn." }))
  end)
end)
