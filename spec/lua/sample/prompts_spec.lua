--- Sources of prompts, and which of them are rendered.
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local prompts = require "moonreel.sample.prompts"
local settings = require "moonreel.settings"

describe("prompts", function()
  local dir = folder.new()
  teardown(function() dir:remove() end)

  local function read(given, ...)
    return prompts.read(given, settings.bake("tiny/demo", { ... }))
  end

  local function texts(given, ...)
    local found, list = read(given, ...), {}
    for i, row in ipairs(found.rows) do
      list[i] = row.text
    end
    return list, found
  end

  local lines = dir:write("list.txt", "\xEF\xBB\xBF  a\n\n b, c \r\n")
  local csv = dir:write("rows.csv", 'text,ref,neg,name\n"a, b",x.png,dark,one\nc,,,\n')

  it("come from the command line, the recipe, a file or a data set", function()
    assert.same({ "x" }, texts({ "x" }, "sampling.prompts=['y']"))
    assert.same({ "y" }, texts(nil, "sampling.prompts=['y']", "prompt_path=" .. lines))
    local got, found = texts(nil, "sampling.prompts=none", "prompt_path=" .. lines)
    assert.same({ "a", "b, c" }, got)
    assert.equal("list", found.stem)
    got, found = texts(nil, "sampling.prompts=none", "dataset=recipe.replace{type='text'}",
      "dataset.data_path=" .. csv)
    assert.same({ "a, b", "c" }, got)
    assert.same({ "rows", 0 }, { found.stem, found.first })
    assert.equal("prompt", read({ "x" }).stem)
  end)

  it("have their references, names and negative prompts", function()
    local found = read(nil, "sampling.prompts=none", "prompt_path=" .. csv)
    assert.equal("one", found.rows[1].name)
    assert.same({ prompts = { "a, b", "c" }, references = { "x.png", "" },
      negatives = { "dark", "" } }, prompts.options(found.rows))
    assert.same({ prompts = { "x" } }, prompts.options(read({ "x" }).rows))
  end)

  it("are limited by start_index and end_index", function()
    local all = { "a", "b", "c", "d" }
    assert.same({ "c", "d" }, texts(all, "start_index=2"))
    assert.same({ "b", "c" }, texts(all, "start_index=1", "end_index=3"))
    assert.same({ "b", "c" }, texts(all, "start_index=1", "num_samples=2"))
    assert.equal(2, read(all, "start_index=2").first)
    fails("MR_E_USAGE", "there is no prompt with an index from 4 to below 4; there are 4 "
      .. "prompts, counted from 0", read,
      all, "start_index=4")
    fails("MR_E_USAGE", "no prompt; try: ", read, nil, "sampling.prompts=none")
    fails("MR_E_DATA", "none.txt: has no prompt; expected a text per line", read, nil,
      "sampling.prompts=none", "prompt_path=" .. dir:write("none.txt", "\n  \n"))
    fails("MR_E_DATA", "latin.txt:2: 'caf\\xe9' is not UTF%-8", read, nil,
      "sampling.prompts=none", "prompt_path=" .. dir:write("latin.txt", "a\ncaf\xE9\n"))
    fails("MR_E_DATA", "latin.csv: is not UTF%-8", read, nil,
      "sampling.prompts=none", "prompt_path=" .. dir:write("latin.csv", "text\ncaf\xE9\n"))
    fails("MR_E_DATA", "bare.csv: there is no column 'text'; expected text and", read, nil,
      "sampling.prompts=none", "prompt_path=" .. dir:write("bare.csv", "prompt\na\n"))
  end)
end)
