---@meta moonreel.core.edit
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Lines from a person, and the Ctrl-C that stops what runs.
---@class moonreel.core.edit
local edit = {}

--- One line, edited where there is a terminal; nil and "end" or "stopped".
---@param prompt string
---@return string?
---@return string?
function edit.line(prompt) end

--- What Tab asks: words for the bytes from..to of a line.
---@param f fun(line: string, from: integer, to: integer): string[]
function edit.complete(f) end

--- Load the lines of earlier sessions; how many.
---@param path string
---@return integer
function edit.history(path) end

--- One more line, in memory and in the file that sessions share.
---@param path string?
---@param line string
function edit.remember(path, line) end

--- As xpcall; while it runs, Ctrl-C raises MR_E_STOPPED from whatever runs, past every pcall inside.
---@param f fun()
---@param handler fun(failure: any): any
---@return boolean
---@return any
function edit.guard(f, handler) end

--- Outside guard Ctrl-C is ignored from now on.
function edit.deaf() end

--- A coroutine hears Ctrl-C too.
---@param co thread
function edit.watch(co) end

--- Columns and rows of the terminal.
---@return integer
---@return integer
function edit.size() end

--- What the terminal answers to a control sequence, up to its last letter; false: not asked, because input waits; nil: no answer.
---@param question string
---@param last string
---@param seconds? number
---@return string|false|nil
function edit.ask(question, last, seconds) end

return edit
