--- Families of models in a folder outside the source tree. They are named like ours, and come only
-- from this process's environment. Files that were made with a family report when it is missing.
-- Covers: lua/moonreel/recipe/families.lua lua/moonreel/recipe/registry.lua
-- lua/moonreel/settings/store.lua lua/moonreel/ckpt/model.lua
local base = require "moonreel.core.base"
local families = require "moonreel.recipe.families"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

describe("a family", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  -- the output of a program with a folder of families; errors are a part of it
  local function run(code, models)
    return process.run({ "/usr/bin/env", "MOONREEL_MODELS=" .. (models or dir.path), "/bin/sh",
      "-c", 'exec "$0" -e "$1" 2>&1', process.program(), code }, "", { deadline_s = 60 }).output
  end

  -- a text encoder with a type, one field and a part of its own
  local function write(name, kind)
    dir:write(name .. "/fields.lua", ('return { record = "text_encoder", types = { %s = { help = '
      .. '"a toy" } }, fields = { { "wide", "integer", default = 3, reader = "model", help = '
      .. '"width" } } }'):format(kind))
    dir:write(name .. "/init.lua",
      ('return { new = function() return require "moonreel.models.%s.part" end }'):format(name))
    dir:write(name .. "/part.lua", 'return { answer = 42 }')
  end

  local ASK = 'local f = require("moonreel.recipe.families").of("text_encoder", "toy") '
    .. 'print(f.name, f:open("init").new().answer, f:open "weights")'

  it("is found by its type in the folders of MOONREEL_MODELS, with its files", function()
    write("a_toy", "toy")
    dir:write("no_family/readme.lua", "error 'is not opened'")
    assert.equal("a_toy\t42\tnil\n", run(ASK))
    assert.equal("a_toy\t42\tnil\n", run(ASK, "spec/support:" .. dir.path))
    assert.matches("text_encoder%.type = 'toy' is not built in this version; built so far: bytes, "
      .. "t5", run(ASK, ""))
    -- its fields join ours, with a default
    assert.equal("3\n", run('print(require("moonreel.settings").bake("tiny/demo", {'
      .. '"text_encoder.type=toy"}).text_encoder.wide)'))
  end)

  it("of ours is found by its name, and another family of that name is refused", function()
    assert.equal("moonreel.models.dct", families.of("vae", "dct").module)
    assert.is_nil(families.of("vae", "dct"):open "weights")
    assert.is_table(families.of("text_encoder", "t5"):open "weights")
    assert.equal("opensora_vae", families.of("model", "OpenSoraVAE_V1_2").name)
    write("t5", "toy")
    assert.matches("MOONREEL_MODELS: .*/t5: there is another family 't5'; try: another name",
      run(ASK))
    assert.matches("MOONREEL_MODELS: no folder '/nowhere'; expected folders of families",
      run(ASK, "/nowhere"))
  end)

  it("that cannot be read is named, and so is a folder that is not taken", function()
    write("a_toy", "toy")
    assert.matches("MOONREEL_MODELS: '/%S+/a_toy' is a family; expected the folder that contains",
      run(ASK, dir.path .. "/a_toy"))
    dir:write("a_toy/init.lua", "return {")
    assert.matches("/%S+/a_toy/init%.lua:1: unexpected symbol near <eof>", run(ASK))
    for text, came in pairs { [""] = "nothing", ["return 3"] = "number", ["return {}"] = "table"
      } do
      dir:write("a_toy/init.lua", text)
      assert.matches("family a_toy %(/%S+/a_toy%): init%.lua returns " .. came
        .. "; expected a table with a function `new`", run(ASK))
    end
    dir:write("a_toy/init.lua", "\27Lua")
    assert.matches("/a_toy/init%.lua: attempt to load a binary chunk", run(ASK))
    dir:write("a_toy/fields.lua", "return 3")
    assert.matches("/a_toy/fields%.lua: it returns number; expected {record", run(ASK))
    write("a-toy", "toy")
    assert.matches("MOONREEL_MODELS: /%S+/a%-toy: a family's name has letters, digits and _; try: "
      .. "mv '/%S+/a%-toy' '/%S+/a_toy'", run(ASK))
  end)

  it("whose encoder lacks something is named by the line that chose it", function()
    write("a_toy", "toy")
    local settings = dir:write("r.lua", 'return recipe.extend("tiny/demo") { text_encoder = '
      .. 'recipe.replace { type = "toy" } }')
    local ask = ('local s = require("moonreel.settings").bake(%q) '
      .. 'require("moonreel.settings.blame").record(s, "model", '
      .. 'require("moonreel.models.pipeline").of, s, "f32")'):format(settings)
    assert.matches("r%.lua:1: .-text_encoder%.type = toy: `width` of its family is nil; expected "
      .. "an integer", run(ask))
    dir:write("a_toy/init.lua", "return {")
    assert.matches("r%.lua:1: .-text_encoder%.type = toy: .-/init%.lua:1: unexpected symbol",
      run(ask))
  end)

  it("that repeats or contradicts another one is refused, and the error names both", function()
    local bake = 'print(pcall(require("moonreel.settings").bake, "tiny/demo"))'
    write("a_toy", "toy")
    write("b_toy", "toy")
    assert.matches("family b_toy %(/%S+/b_toy%): type declared twice: text_encoder%.type = 'toy', "
      .. "which is of family a_toy %(/%S+/a_toy%)", run(bake))
    write("b_toy", "block")
    local fields = dir.path .. "/b_toy/fields.lua"
    local text = base.read_file(fields)
    base.replace_file(fields, (text:gsub('"integer", default = 3',
      '{ map = "text", key = "text" }, default = {}')))
    assert.matches("family b_toy .*: kinds of text_encoder%.wide differ too much between types; "
      .. "the other is of family a_toy", run(bake))
    base.replace_file(fields, (text:gsub('"wide"', '"type"')))
    assert.matches("family b_toy .*: a row of a type hides a common row: text_encoder%.type",
      run(bake))
  end)

  it("is found by tensors that only this family recognises", function()
    local path = dir.path .. "/w.safetensors"
    local row = { name = "toy.weight", dtype = "f32", shape = { 1 }, ptr = "abcd", bytes = 4 }
    require("moonreel.ckpt").write(path, { row })
    local ask = ('local source = require("moonreel.ckpt").open(%q) print(pcall(function() return '
      .. 'require("moonreel.ckpt.model").family(source, "text_encoder").name end))'):format(path)
    local map = 'return { layouts = {}, kinds = { { name = "toy", facts = {}, is = function(has) '
      .. 'return has["toy.weight"] end } } }'
    write("a_toy", "toy")
    assert.matches("no family of text_encoder matches these tensors", run(ask))
    dir:write("a_toy/weights.lua", map)
    assert.equal("true\ta_toy\n", run(ask))
    write("b_toy", "block")
    dir:write("b_toy/weights.lua", map)
    assert.matches("w%.safetensors: families a_toy %(/%S+/a_toy%) and b_toy %(/%S+/b_toy%) both "
      .. "match these tensors", run(ask))
  end)

  it("must be named in a recipe, and MOONREEL_MODELS cannot be set there", function()
    local bake = 'require("moonreel.settings").bake("tiny/demo", {%q})'
    assert.matches('expected one of "bytes", .* %(or that of a family in MOONREEL_MODELS=FOLDER%), '
      .. "or none, got text", run(bake:format("text_encoder.type=toy"), ""))
    write("a_toy", "toy")
    assert.matches("env%.MOONREEL_MODELS is not known",
      run(bake:format("env.MOONREEL_MODELS=" .. dir.path), ""))
  end)

  it("that is missing is named when settings that use it are loaded", function()
    write("a_toy", "toy")
    local made = dir.path .. "/settings.json"
    run(('local s = require("moonreel.settings").bake("tiny/demo", {"text_encoder.type=toy"}) '
      .. 'require("moonreel.core.base").replace_file(%q, s:to_json())'):format(made))
    local load = ('print(require("moonreel.settings").load(%q).text_encoder.wide)'):format(made)
    assert.equal("3\n", run(load))
    assert.matches("settings%.json: text_encoder%.type = 'toy': this build has no such family; "
      .. "try: MOONREEL_MODELS=FOLDER", run(load, ""))
  end)
end)
