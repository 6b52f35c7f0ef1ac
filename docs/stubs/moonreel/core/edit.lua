---@meta moonreel.core.edit
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Line input with history, and Ctrl-C that stops running code.
---@class moonreel.core.edit
local edit = {}

--- Read a line, with editing on a terminal; nil and "end" or "stopped".
---@param prompt string
---@return string?
---@return string?
function edit.line(prompt) end

--- Set the completion function: it returns words for the bytes from..to of a line.
---@param f fun(line: string, from: integer, to: integer): string[]
function edit.complete(f) end

--- Load the lines of earlier sessions; returns their number.
---@param path string
---@return integer
function edit.history(path) end

--- Add a line in memory and to the file that sessions share.
---@param path string?
---@param line string
function edit.remember(path, line) end

--- Like xpcall. Meanwhile Ctrl-C raises MR_E_STOPPED in the running code, through every pcall inside.
---@param f fun()
---@param handler fun(failure: any): any
---@return boolean
---@return any
function edit.guard(f, handler) end

--- Ignore Ctrl-C outside of guard from now on.
function edit.deaf() end

--- Make Ctrl-C stop a coroutine, too.
---@param co thread
function edit.watch(co) end

--- Columns and rows of the terminal.
---@return integer
---@return integer
function edit.size() end

--- The answer of the terminal to a control sequence, up to its last letter; false: not sent, because input is pending; nil: no answer.
---@param question string
---@param last string
---@param seconds? number
---@return string|false|nil
function edit.ask(question, last, seconds) end

return edit
