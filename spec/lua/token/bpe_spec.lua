--- Byte pairs: ids are those of the library, files are checked, and text is restored.
-- Covers: lua/moonreel/token/bpe.lua
local base = require "moonreel.core.base"
local bpe = require "moonreel.token.bpe"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local token = require "moonreel.token"

local CLIP = "spec/golden/token/clip"

local function list(t) return table.concat(t, " ") end

describe("byte pairs", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  it("have the ids of the library", function()
    local tok = token.open(CLIP, { max_length = 77, compat = true, say = function() end })
    local path = CLIP .. ".json"
    local cases = json.decode(base.read_file(path), path).cases
    for _, case in ipairs(cases) do
      assert.equal(list(case.ids), list(tok:ids(case.text)), case.text)
    end
    assert.is_true(#cases > 80)
  end)

  it("are enclosed in start and end, which are kept when a caption is cut off", function()
    local said = {}
    local function say(line) said[#said + 1] = line end
    local tok = token.open(CLIP, { max_length = 4, say = say })
    local whole = token.open(CLIP, { max_length = 77 })
    local start, stop = whole.start_id, whole.end_id
    assert.same({ start, stop }, tok:ids "")
    local ids = whole:ids "a red circle moves"
    assert.same({ start, ids[2], ids[3], stop }, tok:ids "a red circle moves")
    assert.matches("a caption of %d+ tokens is cut to 4", said[1])
    assert.same({ start, ids[2], stop, stop }, { table.unpack(tok:tokens { "a" }.ids:totable()) })
    assert.equal("a red circle moves", whole:text(ids))
    assert.equal("é 日本", whole:text(whole:ids "É  日本"))
    fails("MR_E_USAGE", "max_length is 1; expected 2 or more", token.open, CLIP, { max_length = 1 })
  end)

  it("read the spellings of start and end as these tokens under compat only", function()
    local function ids(compat)
      return token.open(CLIP, { compat = compat }):ids "a<|endoftext|>b"
    end
    local stop = token.open(CLIP).end_id
    assert.equal(5, #ids(true))
    assert.equal(stop, ids(true)[3])
    assert.is_true(#ids(false) > 5)
  end)

  it("merge the pair that comes first in the list, from the left", function()
    dir:write("vocab.json", json.encode { ["<|startoftext|>"] = 0, ["<|endoftext|>"] = 1, a = 2,
      ["a</w>"] = 3, aa = 4, ["aaa</w>"] = 5, b = 6 })
    dir:write("merges.txt", "a a\r\naa a</w>\r\n")
    local pairs_of <const> = bpe.open(dir.path)
    assert.equal("5", list(pairs_of:encode "aaa"))
    assert.equal("4 5", list(pairs_of:encode "aaaaa"))
    -- no part has this letter at the end of a word
    assert.equal("1", list(pairs_of:encode "b"))
    assert.equal("6 3", list(pairs_of:encode "ba"))
    assert.equal("aaa ba", pairs_of:decode { 0, 5, 6, 3, 1 })
    assert.same({ "aa", "normal" }, { pairs_of:piece(4) })
    assert.same({ 7, 4, nil }, { #pairs_of, pairs_of:find "aa", pairs_of:find "x" })
    fails("MR_E_RANGE", "vocab%.json: id 2 is 7; expected 0 to 6", pairs_of.decode, pairs_of,
      { 0, 7 })
  end)

  it("are refused with the file and the line", function()
    local function vocabulary(of)
      dir:write("vocab.json", json.encode(of))
      return token.open, dir.path
    end
    local ends = { ["<|startoftext|>"] = 0, ["<|endoftext|>"] = 1 }
    dir:write("merges.txt", "#version: 0.2\na b\na b c\n")
    fails("MR_E_FORMAT", "vocab%.json: there is no <|endoftext|>; expected the vocabulary of a "
      .. "CLIP; try: copy or download it again",
      vocabulary { ["<|startoftext|>"] = 0 })
    ends.x = 1.5
    fails("MR_E_FORMAT", "the id of 'x' is 1%.5; expected an integer of 0 to 16777215",
      vocabulary(ends))
    ends.x = 1
    fails("MR_E_FORMAT", "' have the id 1", vocabulary(ends))
    ends.x = 2
    fails("MR_E_FORMAT", "merges%.txt:3: 'a b c'; expected two parts", vocabulary(ends))
    base.remove_dir(dir.path .. "/merges.txt")
    os.remove(dir.path .. "/merges.txt")
    fails("MR_E_IO", "merges%.txt", vocabulary(ends))
  end)

  it("are found in a folder, in its tokenizer, or next to a text encoder", function()
    local function copy(to)
      for _, name in ipairs { "vocab.json", "merges.txt" } do
        dir:write(to .. name, base.read_file(CLIP .. "/" .. name))
      end
    end
    local function file(path) return token.open(path).pieces:path() end
    copy "tokenizer_2/"
    base.make_dir(dir.path .. "/text_encoder_2")
    assert.matches("tokenizer_2/%./vocab%.json$", file(dir.path .. "/text_encoder_2/"))
    copy "m/tokenizer/"
    assert.matches("m/tokenizer/%./vocab%.json$", file(dir.path .. "/m"))
    assert.matches("clip/%./vocab%.json$", file(CLIP .. "/vocab.json"))
    fails("MR_E_USAGE", "there is no spiece%.model and no vocab%.json in this folder", token.open,
      dir.path)
  end)
end)
