---@meta moonreel.core.base
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Hashes, random numbers, files, clocks, facts of this process.
---@class moonreel.core.base
local base = {}

--- A hash word of 1 to 16 integers or names.
---@param ... integer|string
---@return integer
function base.mix(...) end

--- The word of a name in mix() and in streams of random numbers.
---@param name string
---@return integer
function base.name_word(name) end

--- A number in (0, 1), always the same for the same arguments.
---@param seed integer
---@param purpose integer|string
---@param key integer
---@param epoch integer
---@param element? integer
---@return number
function base.random_uniform(seed, purpose, key, epoch, element) end

--- A standard normal number, always the same for the same arguments.
---@param seed integer
---@param purpose integer|string
---@param key integer
---@param epoch integer
---@param element? integer
---@return number
function base.random_normal(seed, purpose, key, epoch, element) end

--- XXH3-128 of a text, 32 hexadecimal digits.
---@param text string
---@return string
function base.hash128(text) end

--- SHA-256 of a text, 64 hexadecimal digits.
---@param text string
---@return string
function base.sha256(text) end

--- CRC-32 of a text, as zlib has it.
---@param text string
---@return integer
function base.crc32(text) end

--- CRC-32C (Castagnoli) of a text.
---@param text string
---@return integer
function base.crc32c(text) end

--- Seconds of a monotonic clock.
---@return number
function base.now_s() end

--- Seconds since 1970, by the wall clock.
---@return number
function base.wall_s() end

--- Wait.
---@param seconds number
function base.sleep(seconds) end

--- A whole file of at most 256 MiB.
---@param path string
---@return string
function base.read_file(path) end

--- Write a file atomically: it exists completely or not at all.
---@param path string
---@param text string
function base.replace_file(path, text) end

--- Rename a file or folder; never onto a device or a pipe.
---@param from string
---@param to string
function base.rename(from, to) end

--- Create a folder, and those above it.
---@param path string
function base.make_dir(path) end

--- Create a folder; false: the path exists. If two processes call this, one gets true.
---@param path string
---@return boolean
function base.new_dir(path) end

--- Add a hard link to a file; false: the file is gone, the new name exists, or the file system does not support links.
---@param from string
---@param to string
---@return boolean
function base.link(from, to) end

--- Remove a folder with everything in it; a missing one is fine.
---@param path string
function base.remove_dir(path) end

--- Names in a folder, sorted.
---@param path string
---@return string[]
function base.list_dir(path) end

--- Bytes that are available for files in this folder; nil: unknown.
---@param path string
---@return integer?
function base.free_bytes(path) end

--- Collect unused values, and give free memory back to the system.
function base.trim() end

--- Whether the path exists.
---@param path string
---@return boolean
function base.exists(path) end

--- Raise an error {code, message, exit} that blames the caller's line.
---@param code string
---@param text string
function base.raise(code, text) end

--- Text that is safe for a terminal: controls, invalid UTF-8 and marks that change the direction of writing become \xHH.
---@param text string
---@return string
function base.printable(text) end

--- The name of a list that a mistyped name most likely means.
---@param name string
---@param names string[]
---@return string?
function base.nearest(name, names) end

--- Whether a file descriptor (default 1, standard output) is a terminal.
---@param fd? integer
---@return boolean
function base.is_terminal(fd) end

--- The temporary name of a file until it is complete; removes temporary files of the same path that killed writers have left.
---@param path string
---@return string
function base.temporary_path(path) end

--- Lock an open temporary file, so that no other host removes it.
---@param file any
function base.hold(file) end

--- The id of this process.
---@return integer
function base.pid() end

return base
