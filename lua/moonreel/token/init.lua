--- Converts captions to tokens: a SentencePiece model with the end token of T5, or byte pairs with
-- the start and end tokens of CLIP. It handles lengths and special tokens. C side:
-- core/include/moonreel/token.h. Ref: opensora-1.2.md 6, opensora-2.0.md 14.
-- @module moonreel.token
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local bpe = require "moonreel.token.bpe"
local core = require "moonreel.core.token"
local hint = require "moonreel.text.hint"
local options = require "moonreel.text.options"

local token = {}

-- the kinds of vocabularies: the file that identifies it, the function that opens it, the pieces
-- around a caption and those after it in a batch, and the model
local kinds = {
  { file = "spiece.model", open = core.open, ends = "</s>", pad = "<pad>", of = "T5" },
  { file = "vocab.json", open = function(path) return bpe.open((path:gsub("[^/]*$", "."))) end,
    starts = bpe.START, ends = bpe.END, pad = bpe.END, of = "CLIP" },
}

---@class mr.Tokenizer
---@field pieces mr.Pieces|mr.BytePairs  the vocabulary: encode, decode, piece, find, without
---   special handling
---@field max_length integer    the most tokens of a caption, including its end
---@field start_id integer?     begins every caption
---@field end_id integer        ends every caption
---@field pad_id integer?       pads a row of a batch
local Tokenizer = {}
Tokenizer.__name = "mr.Tokenizer"
Tokenizer.__index = Tokenizer

-- where the tokenizer of a folder may be: in it, in a subfolder, or next to it as pipelines are
-- saved
local function folders_of(path)
  local list = { path, path .. "/tokenizer" }
  local before, after = path:match "^(.-)text_encoder([^/]*)/*$"
  list[3] = before and before .. "tokenizer" .. after
  return list
end

-- the file of a vocabulary, if `path` is a folder, and its kind
local function file_of(path)
  for _, folder in ipairs(folders_of(path)) do
    for _, kind in ipairs(kinds) do
      local file = folder .. "/" .. kind.file
      if base.exists(file) then
        return file, kind
      end
    end
  end
  if base.exists(path .. "/.") then
    base.raise("MR_E_USAGE", ("%s: there is no %s and no %s in this folder; try: the path of the "
      .. "file"):format(path,
      kinds[1].file, kinds[2].file))
  end
  return path, path:find "vocab%.json$" and kinds[2] or kinds[1]
end

-- the id of a control piece
local function control(pieces, name)
  local id = pieces:find(name)
  local _, kind = pieces:piece(id or -1)
  return kind == "control" and id or nil
end

-- the spellings that the reference's wrapper converts to tokens, the longest first if one begins
-- with another: {spelling = id}
local function special_of(pieces, kind, extra)
  local special = { [kind.ends] = control(pieces, kind.ends),
    [kind.pad] = control(pieces, kind.pad), [pieces:piece(pieces:unknown())] = pieces:unknown() }
  if kind.starts then
    special[kind.starts] = control(pieces, kind.starts)
    return special
  end
  for i = 0, extra - 1 do
    special[("<extra_id_%d>"):format(i)] = #pieces + extra - 1 - i
  end
  return special
end

local read_options = options.declare("token.open", {
  { "max_length", "integer", "the most tokens of a caption including its end; longer captions "
    .. "are cut",
    default = 300 },
  { "compat", "boolean", "spellings of special tokens in a caption (</s>, <pad>, <unk>, "
    .. "<extra_id_0>, <|endoftext|> ...) are these tokens, as in the wrapper that the reference "
    .. "uses",
    default = false },
  { "extra", "integer", "special tokens <extra_id_N> after the pieces, with compat",
    default = 100 },
  { "say", "function", "called with a message about the first caption that is cut; absent: "
    .. "standard error" },
})

--- Reads a tokenizer.
---@param path string      spiece.model, or vocab.json next to merges.txt, or a folder that contains
---   them
---@param given table|nil  max_length, compat, extra, say
---@return mr.Tokenizer    tok("a caption") gives its ids as a tensor
function token.open(path, given)
  local o = read_options(given)
  local file, kind = file_of(path)
  local pieces = hint("copy or download it again", kind.open, file)
  local end_id = control(pieces, kind.ends)
  if not end_id then
    base.raise("MR_E_FORMAT", ("%s: no control piece %s, which ends captions; expected the model "
      .. "of %s; try: the file that was released with the encoder"):format(pieces:path(),
      kind.ends, kind.of))
  end
  local start_id = kind.starts and control(pieces, kind.starts)
  local least = start_id and 2 or 1
  if o.max_length < least then
    base.raise("MR_E_USAGE", ("token.open: max_length is %d; expected %d or more"):format(
      o.max_length, least))
  end
  local special = o.compat and special_of(pieces, kind, o.extra) or {}
  local spelled = {}
  for text, id in pairs(special) do
    spelled[id] = text
  end
  return setmetatable({ pieces = pieces, max_length = o.max_length,
    start_id = start_id, end_id = end_id, pad_id = control(pieces, kind.pad),
    special = special, spelled = spelled, compat = o.compat,
    say = o.say or function(line) io.stderr:write("note: ", line, "\n") end }, Tokenizer)
end

-- the ids of a text that may contain spellings of special tokens
local function encode(self, text)
  if not next(self.special) then
    return self.pieces:encode(text)
  end
  local ids, from, at = {}, 1, 1
  local function plain(upto)
    local part = self.pieces:encode(text:sub(from, upto))
    table.move(part, 1, #part, #ids + 1, ids)
  end
  -- every spelling begins with < and ends at the next >
  while true do
    local first, last = text:find("<[^<>]*>", at)
    if not first then
      break
    end
    local id = self.special[text:sub(first, last)]
    if id then
      plain(first - 1)
      ids[#ids + 1], from = id, last + 1
    end
    at = last + 1
  end
  plain(#text)
  return ids
end

--- The ids of a caption with its start, if its kind has one, and its end. A caption longer than
-- max_length is cut, and the first cut is reported.
---@param caption string
---@return integer[]
function Tokenizer:ids(caption)
  local ids = encode(self, caption)
  if self.start_id then
    table.insert(ids, 1, self.start_id)
  end
  local most = self.max_length - 1
  if #ids > most then
    if not self.cut then
      self.cut = true
      self.say(("a caption of %d tokens is cut to %d; other long captions are cut, too, without "
        .. "a message (%s)"):format(#ids + 1,
        self.max_length, base.printable(caption:sub(1, 40))))
    end
    ids = table.move(ids, 1, most, 1, {})
  end
  -- the wrapper adds no end after an end that the caption spells
  if self.start_id or not (self.compat and ids[#ids] == self.end_id) then
    ids[#ids + 1] = self.end_id
  end
  return ids
end

--- The ids of a caption as a tensor, i32 [tokens].
---@param caption string
---@return mr.Tensor
function Tokenizer:__call(caption)
  local ids = self:ids(caption)
  return T.from({ #ids }, ids, "i32")
end

--- Encodes captions as a batch.
---@param captions string[]
---@return table  ids i32 [B, max_length], padded; len i32 [B], tokens in use
function Tokenizer:tokens(captions)
  if not self.pad_id then
    base.raise("MR_E_FORMAT", ("%s: no control piece <pad>, which fills a batch; try: the "
      .. "file that was released with the encoder"):format(self.pieces:path()))
  end
  local all, len = {}, {}
  for b, caption in ipairs(captions) do
    local ids = self:ids(caption)
    len[b] = #ids
    for i = 1, self.max_length do
      all[#all + 1] = ids[i] or self.pad_id
    end
  end
  return { ids = T.from({ #captions, self.max_length }, all, "i32"),
    len = T.from({ #captions }, len, "i32") }
end

--- The text of ids, without ends and padding.
---@param ids integer[]|mr.Tensor
---@return string
function Tokenizer:text(ids)
  if type(ids) ~= "table" then
    ids = ids:totable()
  end
  local parts, run = {}, {}
  local function finish()
    parts[#parts + 1] = self.pieces:decode(run)
    run = {}
  end
  for _, id in ipairs(ids) do
    if self.spelled[id] and id >= #self.pieces then
      finish()
      parts[#parts + 1] = self.spelled[id]
    else
      run[#run + 1] = id
    end
  end
  finish()
  return table.concat(parts)
end

--- The texts of the pieces that a caption is split into.
---@param caption string
---@return string[]
function Tokenizer:split(caption)
  local out = {}
  for i, id in ipairs(self:ids(caption)) do
    out[i] = self.pieces:piece(id) or self.spelled[id]
  end
  return out
end

function Tokenizer:__tostring()
  return ("mr.Tokenizer: %s, %d pieces, captions of %d tokens"):format(self.pieces:path(),
    #self.pieces, self.max_length)
end

return token
