---@meta moonreel.core.index
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Indexes of samples: build and open.
---@class moonreel.core.index
local index = {}

---@class moonreel.core.index.open.options
---@field verify? boolean Check every block of the file first. Default: false.

--- Open a sealed index.
---@param path string
---@param options? moonreel.core.index.open.options
---@return mr.Index
function index.open(path, options) end

---@class moonreel.core.index.ingest.options
---@field captions? string A file of captions for a folder of clips.
---@field root? string The folder that paths of a list are relative to.
---@field source? string The name of this source in the index.
---@field threads? integer 0: one per processor. Default: 0.
---@field deadline_s? number Seconds for one clip; 0: 60. Default: 0.
---@field columns? string Meaning of the columns of a list: "path=video,text=caption"; '-' omits a column.
---@field escape? string CSV: the escape character before a quote; default: quotes are doubled.
---@field part? integer This part of the input, from 1. Default: 0.
---@field parts? integer Number of parts; 0: the whole input. Default: 0.
---@field isolated? boolean Each thread scans in a separate process. Default: false.
---@field resume? boolean Continue an ingest of this input that was killed or stopped. Default: false.
---@field commit_rows? integer Most seconds of work that a kill can lose; 0: default. Default: 0.

--- Build an index from a folder of clips, a CSV or a JSON lines file.
---@param input string
---@param output string
---@param options? moonreel.core.index.ingest.options
---@return mr.Ingest
function index.ingest(input, output, options) end

---@class moonreel.core.index.read_table.options
---@field columns? string Meaning of the columns of a list: "path=video,text=caption"; '-' omits a column.
---@field escape? string CSV: the escape character before a quote; default: quotes are doubled.

--- Call fn with each row of a CSV, TSV or JSON lines file: {path, line, captions, columns, start_us, end_us (0: to its end)}. Returns the columns of numbers, a line per skipped item, and per column "whole" or "real".
---@param file string
---@param fn fun(row: table)
---@param options? moonreel.core.index.read_table.options
---@return string[]
---@return string
---@return table
function index.read_table(file, fn, options) end

---@class moonreel.core.index.sweep.options
---@field look? string packets (default); frames: decode all frames; changes: also measure how much each frame differs from the previous one.
---@field threads? integer 0: one per processor. Default: 0.
---@field deadline_s? number Seconds for a clip, in addition to its own length; 0: 60. Default: 0.
---@field isolated? boolean Each thread checks in a separate process. Default: false.

--- Check the files of rows by several threads.
---@param index mr.Index
---@param rows integer[]
---@param options? moonreel.core.index.sweep.options
---@return mr.Sweep
function index.sweep(index, rows, options) end

--- Build an index without clips, for measurements; nil: only create its rows.
---@param path string|nil
---@param rows integer
---@param seed? integer
function index.synthetic(path, rows, seed) end

--- Start a new index from rows of others; use moonreel.data.derive.
---@param path string
---@return mr.IndexBuilder
function index.builder(path) end

return index
