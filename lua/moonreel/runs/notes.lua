--- Notes of users on a run: RUN/notes.jsonl, lines {kind = "note", text, step, wall}. They have
-- their own file because only the run writes its journal: it may be running, perhaps on another
-- host, and may keep back part of a line while its disk is full.
-- @module moonreel.runs.notes
local base = require "moonreel.core.base"
local core_journal = require "moonreel.core.journal"
local json = require "moonreel.core.json"
local tail = require "moonreel.runs.tail"

local notes = {}

local MOST <const> = 65536 -- largest size of a text in bytes

--- The notes file of a run.
---@param dir string
---@return string path
function notes.path(dir) return dir .. "/notes.jsonl" end

--- Adds a note; it is on the disk when this returns.
---@param dir string        directory of the run
---@param text string       UTF-8, at most 64 KiB
---@param step integer|nil  the current step of the run
---@return table            the line; raises MR_E_USAGE for a text that is empty, too long or not
---   UTF-8, MR_E_IO
function notes.add(dir, text, step)
  if text:match("^%s*$") then
    base.raise("MR_E_USAGE", "note: the text is empty; try: moonreel note RUN \"lower lr\"")
  elseif #text > MOST then
    base.raise("MR_E_USAGE", ("note: the text has %d bytes; expected at most %d; try: a file in "
      .. "the run's folder, and a note that names it"):format(#text, MOST))
  elseif not utf8.len(text) then
    base.raise("MR_E_USAGE", "note: the text is not UTF-8; try: a terminal with a UTF-8 locale")
  end
  local entry = { kind = "note", text = text, step = step, wall = base.wall_s() }
  local file <close> = core_journal.open(notes.path(dir))
  file:append(json.encode(entry))
  file:sync()
  return entry
end

--- The number of notes of a run, and the newest one.
---@param dir string
---@return integer
---@return string|nil text
function notes.count(dir)
  local n, text = 0, nil
  for entry in tail.open(notes.path(dir)):entries() do
    if entry.kind == "note" and type(entry.text) == "string" then
      n, text = n + 1, entry.text
    end
  end
  return n, text
end

return notes
