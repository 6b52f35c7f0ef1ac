--- Byte-pair encoding: a list of merges builds parts of words from bytes; the vocabulary gives
-- their ids. Reads vocab.json and merges.txt of CLIP. Ref: Sennrich et al. 2016, arXiv:1508.07909;
-- Radford et al. 2021, arXiv:2103.00020.
-- @module moonreel.token.bpe
local base = require "moonreel.core.base"
local core = require "moonreel.core.token"
local read_config = require "moonreel.text.config"

local bpe = {}

bpe.START, bpe.END = "<|startoftext|>", "<|endoftext|>"

-- marks the last part of a word
local LAST = "</w>"

-- the largest allowed id, far larger than those of released files
local MOST_ID = (1 << 24) - 1

-- the most words in the cache
local REMEMBERED = 1 << 14

-- ---- bytes as characters

-- every byte has a visible character: its own in Latin-1, or one after those
local function characters()
  local of_byte, byte_of, next_free = {}, {}, 256
  for byte = 0, 255 do
    local seen = byte >= 0x21 and byte <= 0x7e or byte >= 0xa1 and byte <= 0xac or byte >= 0xae
    of_byte[byte] = utf8.char(seen and byte or next_free)
    next_free = next_free + (seen and 0 or 1)
    byte_of[of_byte[byte]] = string.char(byte)
  end
  return of_byte, byte_of
end

local of_byte, byte_of = characters()

-- ---- the files

---@class mr.BytePairs
---@field ids table<string, integer>   by part
---@field parts table<integer, string> by id
---@field rank table<string, integer>  of merges, "left right"
local Pairs = {}
Pairs.__name = "mr.BytePairs"
Pairs.__index = Pairs

local function read_vocabulary(path)
  local ids, parts, most = read_config(path), {}, -1
  for part, id in pairs(ids) do
    if math.type(id) ~= "integer" or id < 0 or id > MOST_ID then
      base.raise("MR_E_FORMAT", ("%s: the id of '%s' is %s; expected an integer of 0 to %d"):format(
        path, base.printable(part), tostring(id), MOST_ID))
    elseif parts[id] then
      base.raise("MR_E_FORMAT", ("%s: '%s' and '%s' have the id %d"):format(path,
        base.printable(parts[id]), base.printable(part), id))
    end
    parts[id], most = part, math.max(most, id)
  end
  for _, special in ipairs { bpe.START, bpe.END } do
    if not ids[special] then
      base.raise("MR_E_FORMAT", ("%s: there is no %s; expected the vocabulary of a CLIP"):format(
        path,
        special))
    end
  end
  return ids, parts, most + 1
end

-- reads merges in the order of their ranks; the first line may contain a version
local function read_merges(path)
  local rank, n, number = {}, 0, 0
  for line in base.read_file(path):gmatch "([^\n]*)\n?" do
    number = number + 1
    line = line:gsub("\r$", "")
    if line ~= "" and not (number == 1 and line:find "^#version") then
      if not line:find "^[^ ]+ [^ ]+$" then
        base.raise("MR_E_FORMAT", ("%s:%d: '%s'; expected two parts with a space between them")
          :format(path, number, base.printable(line:sub(1, 40))))
      end
      rank[line], n = rank[line] or n, n + 1
    end
  end
  return rank
end

--- Reads a vocabulary.
---@param folder string  contains vocab.json and merges.txt
---@return mr.BytePairs
function bpe.open(folder)
  local self = setmetatable({ file = folder .. "/vocab.json", known = {}, remembered = 0 }, Pairs)
  self.ids, self.parts, self.n = read_vocabulary(self.file)
  self.rank = read_merges(folder .. "/merges.txt")
  return self
end

-- ---- texts to ids

-- the position of the neighbours that merge first; nil: no pair merges
local function first_merge(rank, parts)
  local at, best
  for i = 1, #parts - 1 do
    local r = rank[parts[i] .. " " .. parts[i + 1]]
    if r and (not best or r < best) then
      at, best = i, r
    end
  end
  return at
end

-- the ids of one word
local function of_word(self, word)
  local parts, out = {}, {}
  for i = 1, #word do
    parts[i] = of_byte[word:byte(i)]
  end
  parts[#parts] = parts[#parts] .. LAST
  local at = first_merge(self.rank, parts)
  while at do
    parts[at] = parts[at] .. table.remove(parts, at + 1)
    at = first_merge(self.rank, parts)
  end
  for i, part in ipairs(parts) do
    out[i] = self.ids[part] or self:unknown()
  end
  return out
end

--- The ids of a text, without start and end, and not cut.
---@param text string
---@return integer[]
function Pairs:encode(text)
  local out = {}
  for word in core.words(text):gmatch "[^ ]+" do
    local ids = self.known[word]
    if not ids then
      ids = of_word(self, word)
      if self.remembered == REMEMBERED then
        self.known, self.remembered = {}, 0
      end
      self.known[word], self.remembered = ids, self.remembered + 1
    end
    table.move(ids, 1, #ids, #out + 1, out)
  end
  return out
end

--- The text of ids, with one space between words; start and end are left out.
---@param ids integer[]
---@return string
function Pairs:decode(ids)
  local out = {}
  for i, id in ipairs(ids) do
    local part, kind = self:piece(id)
    if not part then
      base.raise("MR_E_RANGE", ("%s: id %d is %s; expected 0 to %d"):format(self.file, i,
        tostring(id), self.n - 1))
    end
    out[i] = kind == "control" and "" or part
  end
  local text = table.concat(out):gsub("</w>", " "):gsub(utf8.charpattern, byte_of)
  return (text:gsub(" $", ""))
end

-- ---- parts

--- The text and kind (normal, control) of an id; nil: there is no such id.
function Pairs:piece(id)
  local part = self.parts[id]
  return part, part and ((part == bpe.START or part == bpe.END) and "control" or "normal")
end

--- The id of a part by its text; nil: there is no such part.
function Pairs:find(part) return self.ids[part] end

--- The id for text that no part covers.
function Pairs:unknown() return self.ids[bpe.END] end

--- The path of the vocabulary.
function Pairs:path() return self.file end

function Pairs:__len() return self.n end

return bpe
