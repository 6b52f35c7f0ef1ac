--- Ids are those of the library for each text; ends, lengths and special tokens are T5's.
-- MOONREEL_TOKENS=DIR compares with another folder of texts, see spec/golden/token.
-- Covers: core/bind/token.c
local base = require "moonreel.core.base"
local core = require "moonreel.core.token"
local json = require "moonreel.core.json"
local token = require "moonreel.token"

local folder = os.getenv "MOONREEL_TOKENS" or "spec/golden/token"

local function list(t) return table.concat(t, " ") end

local function text_of(case)
  return case.text or (case.hex:gsub("..", function(x) return string.char(tonumber(x, 16)) end))
end

describe("a SentencePiece model", function()
  for _, name in ipairs { "t5", "bytes", "raw", "suffix", "plain" } do
    it("has the ids of the library: " .. name, function()
      local pieces = core.open(("%s/%s.model"):format(folder, name))
      local path = ("%s/%s.json"):format(folder, name)
      local cases, different = json.decode(base.read_file(path), path).cases, {}
      for i, case in ipairs(cases) do
        local text = text_of(case)
        local ids = pieces:encode(text)
        if list(ids) ~= list(case.ids) or case.norm and pieces:normal(text) ~= case.norm
            or case.back and pieces:decode(case.ids) ~= case.back then
          different[#different + 1] = ("%d: %q: %s"):format(i, text, list(ids))
        end
      end
      assert.equal("", table.concat(different, "\n"))
      assert.is_true(#cases > 100)
    end)
  end

  it("finds its pieces by id and by text", function()
    local pieces <close> = core.open "spec/golden/token/bytes.model"
    local id = pieces:find "<pan left>"
    assert.same({ "<pan left>", "user", 0.0 }, { pieces:piece(id) })
    assert.equal("control", (select(2, pieces:piece(pieces:find "<sep>"))))
    assert.equal("byte", (select(2, pieces:piece(pieces:find "<0x0A>"))))
    assert.is_nil(pieces:find "no such piece")
    assert.is_nil(pieces:piece(#pieces))
    assert.equal(0, pieces:unknown())
    assert.equal("spec/golden/token/bytes.model", pieces:path())
  end)

  it("reports an unknown id", function()
    local pieces <close> = core.open "spec/golden/token/t5.model"
    local function fails(id) return (select(2, pcall(pieces.decode, pieces, { 3, id }))).message end
    assert.matches("t5%.model: id 2 is 346; expected 0 to 345", fails(346))
    assert.matches("id 2 is %-1;", fails(-1))
    assert.matches("id 2 is 1%.5;", fails(1.5))
    assert.matches("id 2 is x;", fails "x")
  end)
end)

describe("a tokenizer", function()
  local said
  local function open(given)
    said = {}
    given = given or {}
    given.say = function(line) said[#said + 1] = line end
    return token.open("spec/golden/token/t5.model", given)
  end

  it("ends a caption; an empty one is only its end", function()
    local tok = open()
    assert.equal("50 82 1", list(tok:ids "red green"))
    assert.equal("1", list(tok:ids ""))
    assert.equal("a red circle", tok:text(tok:ids "a  red circle "))
    assert.same({ "▁red", "▁green", "</s>" }, tok:split "red green")
  end)

  it("returns a tensor for a text", function()
    local ids = open() "red green"
    assert.same({ 3 }, ids.shape)
    assert.equal("i32", ids.dtype)
    assert.same({ 50, 82, 1 }, ids:totable())
    assert.equal("red green", open():text(ids))
  end)

  it("pads a batch", function()
    local batch = open { max_length = 4 }:tokens { "red", "red green", "" }
    assert.same({ 3, 4 }, batch.ids.shape)
    assert.same({ 50, 1, 0, 0, 50, 82, 1, 0, 1, 0, 0, 0 }, batch.ids:totable())
    assert.same({ 2, 3, 1 }, batch.len:totable())
  end)

  it("cuts off what is too long, keeps the end, and reports that once", function()
    local tok = open { max_length = 3 }
    assert.equal("50 82 1", list(tok:ids "red green"))
    assert.same({}, said)
    assert.equal("50 82 1", list(tok:ids "red green blue"))
    assert.equal("50 1", list(open { max_length = 2 }:ids "red green blue"))
    tok:ids "red green blue"
    tok = open { max_length = 3 }
    tok:ids "red green blue"
    tok:ids "red green blue"
    assert.same({ "a caption of 4 tokens is cut to 3; other long captions are cut, too, "
      .. "without a message (red green blue)" },
      said)
  end)

  -- ids that T5Tokenizer of transformers 4.44 returns with this model
  it("reads the spellings of special tokens as these tokens under compat only", function()
    local tok, plain = open { compat = true }, open()
    for text, ids in pairs { ["a </s> b"] = "33 1 3 98 1", ["a</s>b"] = "33 1 3 98 1",
        ["<pad>x"] = "0 3 155 1", ["x<unk>y"] = "3 155 2 156 1",
        ["<extra_id_0> red <extra_id_1>"] = "445 50 444 1", ["<extra_id_99>"] = "346 1",
        ["red<extra_id_3>green"] = "50 442 82 1", ["  </s>  "] = "1",
        ["a </s></s>b"] = "33 1 1 3 98 1", ["</s"] = "3 2 339 1",
        ["</S>"] = "3 2 320 2 1", ["<s>"] = "3 2 339 2 1",
        ["<extra_id_100>"] =
          "3 2 344 155 129 342 341 2 343 335 2 324 327 327 2 1" } do
      assert.equal(ids, list(tok:ids(text)), text)
    end
    assert.equal("33 3 2 339 2 3 98 1", list(plain:ids "a </s> b"))
    assert.equal("<extra_id_0>red<extra_id_1>", tok:text(tok:ids "<extra_id_0> red <extra_id_1>"))
    assert.same({ "<extra_id_0>", "▁red", "</s>" }, tok:split "<extra_id_0> red")
    assert.equal("a <pad", (plain:text(plain:ids "a <pad"):gsub(" ⁇ ", "<")))
  end)

  it("opens the model of a folder", function()
    local dir = os.tmpname()
    os.remove(dir)
    base.make_dir(dir .. "/tokenizer")
    local good, err = pcall(token.open, dir)
    assert.is_false(good)
    assert.matches(dir .. ": there is no spiece.model and no vocab.json in this folder; try: "
      .. "the path of the file",
      err.message, 1, true)
    base.replace_file(dir .. "/tokenizer/spiece.model",
      base.read_file "spec/golden/token/t5.model")
    assert.equal(dir .. "/tokenizer/spiece.model", token.open(dir).pieces:path())
    base.remove_dir(dir)
  end)

  it("names the file that is no model", function()
    local function fails(path, code)
      local good, err = pcall(token.open, path)
      assert.is_false(good)
      assert.equal(code, err.code)
      return err.message
    end
    assert.matches("/no/spiece%.model: expected a SentencePiece unigram model",
      fails("/no/spiece.model", "MR_E_IO"))
    assert.matches("README%.md: damaged, or another format; expected", fails("README.md",
      "MR_E_FORMAT"))
    assert.matches("bytes%.json: it is JSON, the tokenizer of another library; expected",
      fails("spec/golden/token/bytes.json", "MR_E_FORMAT"))
    local path = os.tmpname()
    base.replace_file(path, "\n\9\n\5<unk>\24\2")
    assert.matches("no control piece </s>, which ends captions; expected the model of T5",
      fails(path, "MR_E_FORMAT"))
    os.remove(path)
    assert.matches("max_length is 0; expected 1 or more", (select(2, pcall(open,
      { max_length = 0 }))).message)
  end)
end)
